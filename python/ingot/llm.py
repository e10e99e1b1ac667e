"""Prompts in, text out: the native orchestrator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterator, Literal, Mapping, Optional, Sequence, Union, overload

from . import _ingot
from .answers import Answering, Completion, Delta, ReadingProgress, embedding_of, together
from .base import MOST_SUBMITTED, LoadedModel, Messages, Plan, Prompt, Sampling
from .params import nearest_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .params import ChatOptions, SamplingOptions

Progress = Callable[[int, int], object]  # called with (tokens read, tokens of all prompts)


class LLM(LoadedModel):
    """A model that answers prompts: continuous batching, prefix caching, sampling, all in native code.

    >>> with LLM("model.gguf") as llm:
    ...     print(llm.chat([{"role": "user", "content": "Why is the sky blue?"}]))

    `model` is a GGUF file, a Hugging Face folder or a name on the hub (`OWNER/NAME`, see find_model); without one the
    default model is used, and fetched the first time. `quantize` (int8, int4) rounds plain weights at load. Sizes of 0
    are left to the engine. `embeddings` lets embed() take models that were not made for it, `pooling` says how (last, mean,
    cls). Any thread may call any method; close(), or the end of a `with`, frees the memory.
    """

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompts: Prompt, sampling_params: Sampling = None, *, progress: Optional[Progress] = None,
        **options: Unpack[SamplingOptions],
    ) -> Completion: ...

    @overload
    def generate(
        self, prompts: Sequence[Prompt], sampling_params: Sampling = None, *, progress: Optional[Progress] = None,
        **options: Unpack[SamplingOptions],
    ) -> list[Completion]: ...

    @nearest_names
    def generate(self, prompts: Any, sampling_params: Sampling = None, *, progress: Optional[Progress] = None, **options: Any) -> Any:
        """Answers one prompt (a text, or a list of token ids) with a Completion, or a list of them, side by side, with a
        list. How: a SamplingParams, or its fields as keyword arguments, or both. `progress` is called with (tokens read,
        tokens of all prompts) while prompts are read.
        """
        single, plans = self._plan_prompts(prompts, sampling_params, options)
        completions = self._answer(plans, progress)
        return completions[0] if single else completions

    @nearest_names
    def stream(
        self, prompt: Prompt, sampling_params: Sampling = None, *, progress: Optional[Progress] = None, **options: Unpack[SamplingOptions]
    ) -> Iterator[Delta]:
        """generate() that yields a Delta as soon as there is something new. Closing the iterator cancels the request."""
        single, plans = self._plan_prompts(prompt, sampling_params, options)
        if not single:
            raise ValueError("stream() takes one prompt: use AsyncLLM for several at once")
        return self._stream(plans[0], progress)

    @overload
    def chat(
        self, messages: Messages, sampling_params: Sampling = None, *, stream: Literal[False] = False, **options: Unpack[ChatOptions]
    ) -> Completion: ...

    @overload
    def chat(
        self, messages: Sequence[Messages], sampling_params: Sampling = None, *, stream: Literal[False] = False,
        **options: Unpack[ChatOptions],
    ) -> list[Completion]: ...

    @overload
    def chat(
        self, messages: Messages, sampling_params: Sampling = None, *, stream: Literal[True], **options: Unpack[ChatOptions]
    ) -> Iterator[Delta]: ...

    @nearest_names
    def chat(
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
    ) -> Union[Completion, list[Completion], Iterator[Delta]]:
        """generate() on a conversation, a list of {"role", "content"} put into the model's chat template, or on a list of
        conversations. Answers run to their end unless max_tokens says otherwise. With `stream` an iterator of Deltas.

        `tools` are offered to the model as OpenAI's API has them; its calls come back in `tool_calls` of each choice, as
        that API has them too. The conversation goes on with the message of the choice (`Choice.message()`) and one of the
        role "tool" for each result. `tool_choice` is "auto", "none", "required" or a function's name; the last two hold the
        answer to calls, to one where `parallel_tool_calls` is False. `tool_format` says how the model writes calls; default: as its template does. `thinking_budget`
        closes the model's reasoning after so many tokens. What `response_format` asks for begins after the reasoning.
        `continue_final_message`: the answer goes on with the last message. `chat_template_kwargs`: more variables for the
        template, e.g. {"enable_thinking": False}.
        """
        single, plans = self._plan_chats(
            messages, sampling_params, options, tools, tool_choice, parallel_tool_calls, tool_format, thinking_budget,
            add_generation_prompt, continue_final_message, chat_template_kwargs,
        )
        if not stream:
            completions = self._answer(plans, progress)
            return completions[0] if single else completions
        if not single:
            raise ValueError("stream=True takes one conversation: use AsyncLLM for several at once")
        return self._stream(plans[0], progress)

    @overload
    def embed(self, texts: Prompt, *, dimensions: Optional[int] = None) -> list[float]: ...  # type: ignore[overload-overlap]

    @overload
    def embed(self, texts: Sequence[Prompt], *, dimensions: Optional[int] = None) -> list[list[float]]: ...

    def embed(self, texts: Any, *, dimensions: Optional[int] = None) -> Any:
        """The vector of a text (or of token ids), of length 1, or of each of a list. `dimensions` keeps the front of the
        vectors, at length 1 again. A model that was not made for it raises an Error unless it was loaded with `embeddings`.
        """
        single, every = self._plan_texts(texts)
        generations: list[_ingot.Generation] = []
        vectors = []
        with together(generations):
            for number in range(len(every)):
                while len(generations) < min(len(every), number + MOST_SUBMITTED):
                    generations.append(self._submit_text(every[len(generations)]))
                while not generations[number].done:
                    generations[number].wait(1.0)
                vectors.append(embedding_of(generations[number], dimensions))
        return vectors[0] if single else vectors

    def _answer(self, plans: list[Plan], progress: Optional[Progress]) -> list[Completion]:
        answers: list[Answering] = []
        told = ReadingProgress(progress, plans) if progress else None
        completions = []
        with together(answers):
            for number in range(len(plans)):
                while len(answers) < min(len(plans), number + MOST_SUBMITTED):
                    answers.append(self._submit(plans[len(answers)]))
                for delta in _read(answers[number], told, answers):
                    answers[number].add(delta)
                completions.append(answers[number].completion())
        return completions

    def _stream(self, plan: Plan, progress: Optional[Progress]) -> Iterator[Delta]:
        answer = self._submit(plan)
        try:
            yield from _read(answer, ReadingProgress(progress, [plan]) if progress else None, [answer])
        finally:
            answer.cancel()


def _read(answer: Answering, told: Optional[ReadingProgress], answers: list[Answering]) -> Iterator[Delta]:
    finished = False
    while not finished:
        finished = answer.generation.done  # before take(): what came until then is taken below
        if not finished:
            answer.generation.wait(0.1 if told else 1.0)
        if told:
            told.tell(answers)
        yield from answer.take()
    answer.check()
