"""What comes back: answers whole, and as they grow."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Union

from . import _ingot


class Logprob(NamedTuple):
    """How likely a token was. `rank` 1 is the most likely."""

    logprob: float
    rank: int
    decoded_token: Optional[str]


Logprobs = dict[int, Logprob]  # token id -> how likely it was: the token itself first, then the alternatives


@dataclass
class Choice:
    """One answer. Of chat() it also has what the text means: `content`, `reasoning` and `tool_calls`."""

    index: int = 0
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: Optional[list[Logprobs]] = None  # one entry a token where they were asked for
    finish_reason: Optional[str] = None  # "stop", "length", "tool_calls", "cancelled", ...
    stop_reason: Union[int, str, None] = None  # the token or text of `stop` that ended it
    content: Optional[str] = None  # of chat() only
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def cumulative_logprob(self) -> Optional[float]:
        if self.logprobs is None:
            return None
        return sum(entry[token].logprob for token, entry in zip(self.token_ids, self.logprobs))

    def message(self) -> dict[str, Any]:
        """The assistant's message, to go on with the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": str(self) or None}
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message

    def __str__(self) -> str:
        return self.text if self.content is None else self.content

    def _add(self, delta: Delta) -> None:
        self.text += delta.text
        self.token_ids += delta.token_ids
        if delta.logprobs is not None:
            self.logprobs = (self.logprobs or []) + delta.logprobs
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.stop_reason = delta.stop_reason if delta.finish_reason else self.stop_reason
        if delta.content is not None:
            self.content = (self.content or "") + delta.content
        self.reasoning += delta.reasoning
        for call in delta.tool_calls:
            if "id" in call:
                self.tool_calls.append({"id": call["id"], "type": "function", "function": dict(call["function"])})
            else:
                self.tool_calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]


@dataclass
class Completion:
    """The answers to one prompt, and what they took (`usage`: tokens, cached tokens, seconds)."""

    prompt: Optional[str]  # of chat(): as the model's template put it; None where token ids were given
    prompt_token_ids: list[int]
    outputs: list[Choice]
    usage: dict[str, Any]
    prompt_logprobs: Optional[list[Optional[Logprobs]]] = None  # one entry a token, the first is None

    @property
    def choices(self) -> list[Choice]:
        """`outputs`, under the name that OpenAI's API has for them."""
        return self.outputs

    @property
    def text(self) -> str:
        return self.outputs[0].text

    def __str__(self) -> str:
        return str(self.outputs[0])


@dataclass
class Delta:
    """What a choice gained. Of chat() it also has what that means; `tool_calls` are as in a stream of OpenAI's API: the
    first entry of a call has its `index`, `id` and name, those that follow more of its arguments."""

    choice: int
    text: str
    token_ids: list[int]
    logprobs: Optional[list[Logprobs]] = None
    finish_reason: Optional[str] = None  # of the last one
    stop_reason: Union[int, str, None] = None
    content: Optional[str] = None
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        return self.text if self.content is None else self.content


class Answering:
    """One prompt while it is answered."""

    def __init__(
        self,
        core: _ingot.LlmCore,
        generation: _ingot.Generation,
        prompt: Optional[str],
        ids: list[int],
        params: Any,
        readers: list[_ingot.ChatReader],
        short_ids: bool,
    ):
        self._core, self._readers, self._short_ids = core, readers, short_ids
        self._logprobs = params.logprobs is not None
        self.generation, self.prompt, self.ids = generation, prompt, ids
        self._scores_prompt = params.prompt_logprobs is not None
        self._outputs = [Choice(index) for index in range(params.n)]
        self._timed_out = False

    def cancel(self) -> None:
        self.generation.cancel()

    def take(self) -> list[Delta]:
        return [self._delta(*entry) for entry in self.generation.take()]

    def check(self) -> None:
        """Raises what the request failed of. An answer that ran out of time is one all the same."""
        if (error := self.generation.summary()["error"]) and not self._timed_out:
            raise _ingot.Error(error)

    def add(self, delta: Delta) -> None:
        self._outputs[delta.choice]._add(delta)

    def completion(self) -> Completion:
        prompt_logprobs: Optional[list[Optional[Logprobs]]] = None
        if self._scores_prompt:
            scores = self.generation.prompt_scores()
            prompt_logprobs = [self._score(*score) if score[2] > 0 else None for score in scores]
        return Completion(self.prompt, self.ids, self._outputs, self.generation.summary(), prompt_logprobs)

    def _delta(self, choice: int, text: str, ids: list[int], scores: list, finish: str, stop: Any) -> Delta:
        self._timed_out |= finish == "timeout"
        delta = Delta(choice, text, ids, [self._score(*s) for s in scores] if self._logprobs else None, finish or None, stop)
        if self._readers:
            reader = self._readers[choice]
            delta.content, delta.reasoning, calls = reader.read(text, bool(finish))
            delta.tool_calls = [self._call(*call) for call in calls]
            if finish:
                delta.finish_reason = reader.finish_reason(finish)
        return delta

    def _call(self, index: int, id: str, name: Optional[str], arguments: str) -> dict[str, Any]:
        if name is None:
            return {"index": index, "function": {"arguments": arguments}}
        if not id:
            id = uuid.uuid4().hex[:9] if self._short_ids else f"call_{uuid.uuid4().hex[:24]}"
        return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _score(self, token: int, logprob: float, rank: int, top: list[tuple[int, float]]) -> Logprobs:
        entry = {token: Logprob(logprob, rank, self._name(token))}
        for place, (other, value) in enumerate(top, 1):
            entry.setdefault(other, Logprob(value, place, self._name(other)))
        return entry

    def _name(self, token: int) -> Optional[str]:
        return self._core.decode([token], False) if self._core.has_tokenizer else None


@contextlib.contextmanager
def together(running: list[Any]) -> Iterator[None]:
    """What goes wrong with one of them ends all."""
    try:
        yield
    except BaseException:
        for one in running:
            one.cancel()
        raise


def embedding_of(generation: _ingot.Generation, dimensions: Optional[int]) -> list[float]:
    """The vector that a request was made for, which is done."""
    vector = generation.embedding(dimensions or 0)
    if error := generation.summary()["error"]:
        raise _ingot.Error(error)
    return vector


class ReadingProgress:
    """Tells a callback how many tokens of all prompts were read, when that has changed."""

    def __init__(self, callback: Callable[[int, int], object], plans: Iterable[Any]):
        self._callback, self._total, self._told = callback, sum(len(plan.ids) for plan in plans), -1

    def tell(self, answers: list[Answering]) -> None:
        read = sum(answer.generation.read_tokens for answer in answers)
        if read > self._told:
            self._told = read
            self._callback(read, self._total)
