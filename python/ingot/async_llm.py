"""Prompts in, text out, many at once on an event loop."""

from __future__ import annotations

import asyncio
import functools
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Literal, Mapping, Optional, Sequence, Union, overload

from . import _ingot
from .answers import Answering, Completion, Delta, ReadingProgress, embedding_of, together
from .base import MOST_SUBMITTED, LoadedModel, Messages, Plan, Prompt, Sampling
from .llm import LLM, Progress
from .params import nearest_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .params import ChatOptions, SamplingOptions


class _Waker:
    """Wakes what waits for news on one event loop. The step loop rings without Python's lock."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.bell = _ingot.Bell()
        self._waiting: set[asyncio.Future[None]] = set()
        loop.add_reader(self.bell.fileno(), self._wake)

    def _wake(self) -> None:
        self.bell.silence()
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, seconds: Optional[float]) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._waiting.discard(future)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake()
        loop.remove_reader(self.bell.fileno())


class AsyncLLM(LoadedModel):
    """LLM for programs with an event loop: the same arguments, answers awaited. Many coroutines may ask at once, and what
    they ask runs side by side; one that is cancelled cancels its request.

    >>> async with AsyncLLM("model.gguf") as llm:
    ...     print(await llm.generate("Once upon a time", max_tokens=32))
    ...     async for delta in await llm.chat([{"role": "user", "content": "Why is the sky blue?"}], stream=True):
    ...         print(delta, end="")

    The constructor blocks while the model is loaded.
    """

    @functools.cached_property
    def _wakers(self) -> weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waker]:
        return weakref.WeakKeyDictionary()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        super().close()
        for loop, waker in list(self._wakers.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(waker.stop, loop)
        self._wakers.clear()

    @overload
    async def generate(  # type: ignore[overload-overlap]
        self, prompts: Prompt, sampling_params: Sampling = None, *, progress: Optional[Progress] = None,
        **options: Unpack[SamplingOptions],
    ) -> Completion: ...

    @overload
    async def generate(
        self, prompts: Sequence[Prompt], sampling_params: Sampling = None, *, progress: Optional[Progress] = None,
        **options: Unpack[SamplingOptions],
    ) -> list[Completion]: ...

    @nearest_names
    async def generate(
        self, prompts: Any, sampling_params: Sampling = None, *, progress: Optional[Progress] = None, **options: Any
    ) -> Any:
        single, plans = self._plan_prompts(prompts, sampling_params, options)
        completions = await self._answer(plans, progress)
        return completions[0] if single else completions

    @nearest_names
    def stream(
        self, prompt: Prompt, sampling_params: Sampling = None, *, progress: Optional[Progress] = None, **options: Unpack[SamplingOptions]
    ) -> AsyncIterator[Delta]:
        single, plans = self._plan_prompts(prompt, sampling_params, options)
        if not single:
            raise ValueError("stream() takes one prompt: call it once for each")
        return self._stream(plans[0], progress)

    @overload
    async def chat(
        self, messages: Messages, sampling_params: Sampling = None, *, stream: Literal[False] = False, **options: Unpack[ChatOptions]
    ) -> Completion: ...

    @overload
    async def chat(
        self, messages: Sequence[Messages], sampling_params: Sampling = None, *, stream: Literal[False] = False,
        **options: Unpack[ChatOptions],
    ) -> list[Completion]: ...

    @overload
    async def chat(
        self, messages: Messages, sampling_params: Sampling = None, *, stream: Literal[True], **options: Unpack[ChatOptions]
    ) -> AsyncIterator[Delta]: ...

    @nearest_names
    async def chat(
        self,
        messages: Any,
        sampling_params: Sampling = None,
        *,
        stream: bool = False,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        tool_choice: str = "auto",
        parallel_tool_calls: bool = True,
        tool_format: str = "",
        thinking_budget: Optional[int] = None,
        add_generation_prompt: Optional[bool] = None,
        continue_final_message: bool = False,
        chat_template_kwargs: Optional[Mapping[str, Any]] = None,
        progress: Optional[Progress] = None,
        **options: Any,
    ) -> Union[Completion, list[Completion], AsyncIterator[Delta]]:
        single, plans = self._plan_chats(
            messages, sampling_params, options, tools, tool_choice, parallel_tool_calls, tool_format, thinking_budget,
            add_generation_prompt, continue_final_message, chat_template_kwargs,
        )
        if not stream:
            completions = await self._answer(plans, progress)
            return completions[0] if single else completions
        if not single:
            raise ValueError("stream=True takes one conversation: call chat() once for each")
        return self._stream(plans[0], progress)

    @overload
    async def embed(self, texts: Prompt, *, dimensions: Optional[int] = None) -> list[float]: ...  # type: ignore[overload-overlap]

    @overload
    async def embed(self, texts: Sequence[Prompt], *, dimensions: Optional[int] = None) -> list[list[float]]: ...

    async def embed(self, texts: Any, *, dimensions: Optional[int] = None) -> Any:
        single, every = self._plan_texts(texts)
        generations: list[_ingot.Generation] = []
        vectors, waker = [], self._waker()
        with together(generations):
            for number in range(len(every)):
                while len(generations) < min(len(every), number + MOST_SUBMITTED):
                    generations.append(self._submit_text(every[len(generations)], waker.bell))
                while not generations[number].done:
                    await waker.wait(1.0)
                vectors.append(embedding_of(generations[number], dimensions))
        return vectors[0] if single else vectors

    embed.__doc__ = LLM.embed.__doc__
    generate.__doc__, stream.__doc__, chat.__doc__ = LLM.generate.__doc__, LLM.stream.__doc__, LLM.chat.__doc__

    def _waker(self) -> _Waker:
        loop = asyncio.get_running_loop()
        if loop not in self._wakers:
            self._wakers[loop] = _Waker(loop)
        return self._wakers[loop]

    async def _answer(self, plans: list[Plan], progress: Optional[Progress]) -> list[Completion]:
        answers: list[Answering] = []
        told = ReadingProgress(progress, plans) if progress else None
        completions, waker = [], self._waker()
        with together(answers):
            for number in range(len(plans)):
                while len(answers) < min(len(plans), number + MOST_SUBMITTED):
                    answers.append(self._submit(plans[len(answers)], waker.bell))
                async for delta in _read(answers[number], waker, told, answers):
                    answers[number].add(delta)
                completions.append(answers[number].completion())
        return completions

    async def _stream(self, plan: Plan, progress: Optional[Progress]) -> AsyncIterator[Delta]:
        waker = self._waker()
        answer = self._submit(plan, waker.bell)
        try:
            async for delta in _read(answer, waker, ReadingProgress(progress, [plan]) if progress else None, [answer]):
                yield delta
        finally:
            answer.cancel()


async def _read(
    answer: Answering, waker: _Waker, told: Optional[ReadingProgress], answers: list[Answering]
) -> AsyncIterator[Delta]:
    finished = False
    while not finished:
        finished = answer.generation.done  # before take(): what came until then is taken below
        deltas = answer.take()
        if told:
            told.tell(answers)
        for delta in deltas:
            yield delta
        if not deltas and not finished:  # what comes from here on rings after wait() has begun
            await waker.wait(0.1 if told else None)
    answer.check()
