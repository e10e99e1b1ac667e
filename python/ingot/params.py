"""How answers are sampled: the parameters, and what becomes of a name that is none of them."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence, TypedDict, TypeVar, Union

from . import _ingot
from .structured import read_format

T = TypeVar("T", bound=Callable[..., Any])


class SamplingOptions(TypedDict, total=False):
    """The fields of SamplingParams, as keyword arguments of the methods that answer."""

    max_tokens: Optional[int]
    n: int
    temperature: Optional[float]
    top_p: Optional[float]
    top_k: Optional[int]
    min_p: Optional[float]
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: Optional[float]
    seed: Optional[int]
    min_tokens: int
    stop: Union[str, Sequence[str]]
    stop_token_ids: Sequence[int]
    bad_words: Sequence[str]
    logit_bias: Optional[Mapping[int, float]]
    allowed_token_ids: Sequence[int]
    ignore_eos: bool
    include_stop_str_in_output: bool
    skip_special_tokens: bool
    logprobs: Optional[int]
    prompt_logprobs: Optional[int]
    best_of: int
    use_beam_search: bool
    length_penalty: float
    early_stopping: bool
    priority: int
    cache_salt: str
    speculate: bool
    timeout: Optional[float]
    response_format: Any
    structured: Optional[Mapping[str, Any]]


class ChatOptions(SamplingOptions, total=False):
    """Those of chat() too."""

    tools: Optional[Sequence[Mapping[str, Any]]]
    tool_format: str
    add_generation_prompt: Optional[bool]
    continue_final_message: bool
    chat_template_kwargs: Optional[Mapping[str, Any]]
    progress: Optional[Callable[[int, int], object]]


def nearest_names(function: T) -> T:
    """Spells `**options` out as the fields of SamplingParams, for help() and for people who mistype one of them."""
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    if len(own) < len(inspect.signature(function).parameters):
        own += [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(SamplingParams).parameters.values()
        ]
    names = [parameter.name for parameter in own]

    @functools.wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        for name in options:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"{function.__qualname__}() got an unexpected keyword argument {name!r}{hint}")
        return function(*args, **options)

    checked.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return checked  # type: ignore[return-value]


def _check_init(cls: type[Any]) -> Any:
    cls.__init__ = nearest_names(cls.__init__)
    return cls


@dataclass(kw_only=True)
class SamplingParams:
    """How a prompt is answered, under vLLM's names. None leaves a value to the model: to its makers' advice
    (generation_config.json, general.sampling.*), else to the value named here."""

    max_tokens: Optional[int] = None  # new tokens; None: 16 in generate(), the rest of the context in chat()
    n: int = 1  # answers to each prompt
    temperature: Optional[float] = None  # 1; 0 is greedy
    top_p: Optional[float] = None  # 1: off
    top_k: Optional[int] = None  # 0 or -1: off
    min_p: Optional[float] = None  # 0: off
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: Optional[float] = None  # 1: off
    seed: Optional[int] = None  # the same seed gives the same answer; None: a random one
    min_tokens: int = 0  # no end before
    stop: Union[str, Sequence[str]] = ()  # texts that end the answer
    stop_token_ids: Sequence[int] = ()
    bad_words: Sequence[str] = ()  # texts that are never generated
    logit_bias: Optional[Mapping[int, float]] = None  # token id -> added to its logit
    allowed_token_ids: Sequence[int] = ()  # none: all
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True  # they leave no text
    logprobs: Optional[int] = None  # alternatives reported for each new token; None: no logprobs
    prompt_logprobs: Optional[int] = None  # the same for each token of the prompt
    best_of: int = 0  # answers generated, of which the n most likely are returned; 0: n
    use_beam_search: bool = False  # greedy; beams are ranked by logprob / length ** length_penalty
    length_penalty: float = 1.0
    early_stopping: bool = False  # a beam search ends as soon as it has enough finished beams
    priority: int = 0  # lower runs first
    cache_salt: str = ""  # prompts meet in the prefix cache only under the same salt
    speculate: bool = True  # False: no token of the answer is guessed, which changes its speed alone
    timeout: Optional[float] = None  # seconds until the answer ends, with the finish_reason "timeout"
    response_format: Any = None  # what the answer must be, as OpenAI's API has it, or a pydantic model
    structured: Optional[Mapping[str, Any]] = None  # the same as vLLM has it: {"json": ...}, {"regex": ...}, ...

    def fill(self, request: _ingot.Request, format: _ingot.StructuredOutput, most: int) -> None:
        """Puts them into a request. `format`: compiled; `most`: new tokens where max_tokens does not say."""
        request.max_tokens = most
        request.structured = format
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None or field.name in ("response_format", "structured"):
                continue
            if field.name == "stop" and isinstance(value, str):
                value = [value]
            if field.name == "seed":
                value %= 1 << 64
            elif not isinstance(value, (str, int, float)):
                value = dict(value) if isinstance(value, Mapping) else list(value)
            try:
                setattr(request, field.name, value)
            except TypeError:
                raise TypeError(f"{field.name} must be {field.type}, not {value!r}") from None

    def read_format(self) -> _ingot.StructuredOutput:
        return read_format(self.response_format, self.structured)


SamplingParams = _check_init(SamplingParams)  # type: ignore[misc]


def merge(params: Optional[SamplingParams], options: Mapping[str, Any]) -> SamplingParams:
    """Parameters with those that were given by name in place of what they have."""
    return dataclasses.replace(params, **options) if params is not None else SamplingParams(**options)
