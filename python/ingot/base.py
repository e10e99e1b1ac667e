"""What LLM and AsyncLLM have in common: a loaded model, and prompts made ready for it."""

from __future__ import annotations

import json
import numbers
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Union

from . import _ingot
from .answers import Answering
from .default_model import fetch_default_model
from .hub import find_model
from .params import SamplingParams, merge

Prompt = Union[str, Sequence[int]]  # a text, or token ids
Messages = Sequence[Mapping[str, Any]]  # a conversation: {"role", "content"}, ...
Sampling = Union[SamplingParams, Sequence[SamplingParams], None]  # one for all prompts, or one for each

MOST_SUBMITTED = 512  # of one call's prompts; the rest follow as these are answered


@dataclass
class Plan:
    """A prompt that is ready to be submitted."""

    prompt: Optional[str]
    ids: list[int]
    params: SamplingParams
    format: _ingot.StructuredOutput
    most: int  # new tokens where max_tokens does not say
    talk: Optional[_ingot.ChatTalk] = None
    in_reasoning: bool = False
    thinking_budget: int = -1


class LoadedModel:
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
        embeddings: bool = False,
        pooling: str = "auto",
        prefix_ram: int = 0,
        prefix_dir: str = "",
        prefix_dir_bytes: int = 0,
        packed_cache: str = "off",
        packed_cache_dir: str = "",
        packed_cache_bytes: int = 0,
        speculate: str = "auto",
        draft_model: Optional[str] = None,
    ):
        try:
            path = find_model(str(model)) if model else fetch_default_model()
            draft_path = find_model(str(draft_model)) if draft_model else ""
        except RuntimeError as error:
            raise _ingot.Error(str(error)) from None
        self._core = _ingot.LlmCore(
            path, quantize, device, threads, isa, max_model_len, kv_blocks, kv_dtype, max_step_tokens, max_seqs,
            prefix_caching, embeddings, pooling, prefix_ram, str(prefix_dir), prefix_dir_bytes,
            packed_cache, str(packed_cache_dir), packed_cache_bytes,
            speculate, draft_path,
        )

    def close(self) -> None:
        """Ends what is running (with the finish_reason "cancelled") and frees the model's memory."""
        self._core.close()

    def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Token ids of a text."""
        return self._core.encode(text, add_special, parse_special)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        return self._core.decode(list(token_ids), True)

    def stats(self) -> dict[str, Any]:
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

    def _plan_prompts(self, prompts: Any, sampling: Sampling, options: Mapping[str, Any]) -> tuple[bool, list[Plan]]:
        """Whether it is one prompt, and the plans of all."""
        single = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], numbers.Integral))
        plans = []
        for prompt, params, format in self._with_params([prompts] if single else prompts, sampling, options):
            text = prompt if isinstance(prompt, str) else None
            ids = self._core.encode(text, True, False) if text is not None else [int(token) for token in prompt]
            plans.append(Plan(text, ids, params, format, 16))
        return single, plans

    def _plan_chats(
        self,
        messages: Any,
        sampling: Sampling,
        options: Mapping[str, Any],
        tools: Optional[Sequence[Mapping[str, Any]]],
        tool_choice: str,
        parallel_tool_calls: bool,
        tool_format: str,
        thinking_budget: Optional[int],
        add_generation_prompt: Optional[bool],
        continue_final_message: bool,
        variables: Optional[Mapping[str, Any]],
    ) -> tuple[bool, list[Plan]]:
        if isinstance(messages, (str, Mapping)) or not messages:
            raise ValueError('messages must be a conversation, [{"role": "user", "content": "..."}], or a list of them')
        single = isinstance(messages[0], Mapping)
        talk = _ingot.ChatTalk(self._core, json.dumps(list(tools)) if tools else "", tool_choice, tool_format)
        budget = -1 if thinking_budget is None else thinking_budget
        starts = not continue_final_message if add_generation_prompt is None else add_generation_prompt
        plans = []
        for talked, params, format in self._with_params([messages] if single else messages, sampling, options, False):
            text, in_reasoning = talk.render(
                json.dumps(list(talked)), starts, continue_final_message, json.dumps(dict(variables or {}))
            )
            ids = self._core.encode(text, False, True)
            format = params.read_format()
            talk.hold(format, parallel_tool_calls, in_reasoning, budget)
            self._core.compile(format)
            plans.append(Plan(text, ids, params, format, self.limits.max_model_len, talk, in_reasoning, budget))
        return single, plans

    def _with_params(
        self, prompts: Sequence[Any], sampling: Sampling, options: Mapping[str, Any], compiled: bool = True
    ) -> list[tuple]:
        """(prompt, its parameters, its format compiled): once for all prompts that share them."""
        compile_format = self._compile if compiled else lambda params: None
        if sampling is None or isinstance(sampling, SamplingParams):
            params = merge(sampling, options)
            format = compile_format(params)
            return [(prompt, params, format) for prompt in prompts]
        if len(sampling) != len(prompts):
            raise ValueError(f"{len(sampling)} sampling_params for {len(prompts)} prompts: give one, or one for each")
        every = [merge(params, options) for params in sampling]
        return [(prompt, params, compile_format(params)) for prompt, params in zip(prompts, every)]

    def _compile(self, params: SamplingParams) -> _ingot.StructuredOutput:
        format = params.read_format()
        self._core.compile(format)
        return format

    def _plan_texts(self, texts: Any) -> tuple[bool, list[list[int]]]:
        """Whether it is one text, and the token ids of all."""
        single = isinstance(texts, str) or (len(texts) > 0 and isinstance(texts[0], numbers.Integral))
        every = [texts] if single else texts
        return single, [self._core.encode(t, True, False) if isinstance(t, str) else [int(token) for token in t] for t in every]

    def _submit_text(self, ids: list[int], bell: Optional[_ingot.Bell] = None) -> _ingot.Generation:
        request = _ingot.Request(self._core, ids)
        request.embed = True
        return self._core.submit(request, bell)

    def _submit(self, plan: Plan, bell: Optional[_ingot.Bell] = None) -> Answering:
        request = _ingot.Request(self._core, plan.ids)
        plan.params.fill(request, plan.format, plan.most)
        request.thinking_budget = plan.thinking_budget
        readers, short_ids = [], False
        if plan.talk is not None:
            readers = [plan.talk.reader(plan.in_reasoning) for _ in range(plan.params.n)]
            short_ids = plan.talk.short_ids
            if plan.talk.keeps_special:
                request.skip_special_tokens = False
        generation = self._core.submit(request, bell)
        return Answering(self._core, generation, plan.prompt, plan.ids, plan.params, readers, short_ids)
