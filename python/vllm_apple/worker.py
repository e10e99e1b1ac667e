"""The worker: hands vLLM's steps to the engine and its tokens back. It holds no model and no KV tensor."""

import threading
import time
from collections import deque

import ingot
import numpy as np
import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import (
    EMPTY_MODEL_RUNNER_OUTPUT,
    AsyncModelRunnerOutput,
    DraftTokenIds,
    LogprobsLists,
    LogprobsTensors,
    ModelRunnerOutput,
)
from vllm.v1.worker.worker_base import WorkerBase

from . import compat, ranks, strict
from .declined import Declined
from .drafts import ModelDrafter, NgramDrafter
from .engine_options import make_draft_options, make_options, wants_logits
from .logits_path import LogitsPath
from .step_builder import Plan, StepBuilder

RESERVE = 512 << 20  # bytes left to the system beside gpu_memory_utilization
_TORCH_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "int8": torch.int8}
_SCALE_BYTES = 4  # of a row of K or V in int8


class AppleWorker(WorkerBase):
    draft_inspection = None  # of the draft model, where there is one

    # -- lifecycle, in the order vLLM calls it --------------------------------------------------------------------

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_async = bool(self.scheduler_config.async_scheduling)
        self.overlaps = self.is_async or self.parallel_config.pipeline_parallel_size > 1
        # Stages work on several steps at once, so a worker must take the next one before it has answered this. vLLM gives a
        # worker a thread that answers where this says so; the scheduler, in another process, goes by its own.
        self.scheduler_config.async_scheduling = self.overlaps

    def init_device(self) -> None:
        strict.install()
        self.device = torch.device("cpu")
        self.place = ranks.connect(self)
        self.model_runner = Runner(self)
        self.engine = None  # of the rank that leads
        self.follower = None  # of the others
        self.plan = None  # built by execute_model(), not yet asked for by sample_tokens()
        self.flying = deque(maxlen=8)  # outputs of the last steps, where vLLM asks for them while it plans the next
        self.step_times = deque(maxlen=4096)  # (rows, us it ran, us that the device had waited for it) of the last steps
        self.drafter = None
        self.drawn = None  # the plan of the last step, until its requests' drafts are asked for

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Only plans: the engine allocates the KV cache as it loads, and how large that is vLLM says later."""
        self.options = {**make_options(self.vllm_config), **self.place.options}
        if load_dummy_weights:
            self.options["load_format"] = "dummy"
        self.draft_options = make_draft_options(self.vllm_config) if self.place.leads else None
        try:
            self.inspection = self._inspect(self.place.rank)
            if self.draft_options is not None:
                self.draft_inspection = ingot.inspect(**self.draft_options, kv_blocks=self._least_blocks())
        except ingot.Error as error:
            raise Declined(str(error)) from None

    def _inspect(self, rank: int):
        return ingot.inspect(**self.options, kv_blocks=self._least_blocks(), rank=rank)

    def _least_blocks(self) -> int:
        return -(-self.options["max_model_len"] // self.options["block_size"]) + 1

    def get_kv_cache_spec(self) -> dict:
        """For vLLM's arithmetic only: it hands out block numbers, the engine has the blocks. The same on all ranks."""
        config, dtype = self.inspection.config, self.options["kv_dtype"]
        spec = FullAttentionSpec(
            block_size=self.options["block_size"],
            num_kv_heads=max(self._inspect(rank).kv_heads for rank in range(self.place.tp * self.place.pp)),
            head_size=config["head_size"] + (_SCALE_BYTES if dtype == "int8" else 0),
            dtype=_TORCH_DTYPES[dtype],
        )
        return {f"model.layers.{i}.self_attn.attn": spec for i in range(*self.inspection.layers)}

    def determine_available_memory(self) -> int:
        """Bytes for the KV cache: gpu_memory_utilization of what is free, less everything else the engine will hold."""
        cache = self.cache_config
        if given := getattr(cache, "kv_cache_memory_bytes", None):
            return int(given)
        memory = self.inspection.memory
        available = (memory["available"] or 0) // self.place.sharers
        usable = min(int(available * cache.gpu_memory_utilization), available - RESERVE) - fixed_bytes(memory)
        if self.draft_inspection is None:
            return max(0, usable)
        # Each block has a second part, the draft model's.
        draft = self.draft_inspection.memory
        share = memory["kv_cache"] / (memory["kv_cache"] + draft["kv_cache"])
        return max(0, int((usable - fixed_bytes(draft)) * share))

    def initialize_from_config(self, kv_cache_config) -> None:
        start = time.monotonic()
        group, self.place.group = self.place.group, None  # the engine's from here on
        options = {**self.options, "kv_blocks": kv_cache_config.num_blocks, "group": group}
        if self.place.pp > 1:  # as they were planned, whichever machine turns out to be the fastest
            bounds = [self._inspect(stage * self.place.tp).layers for stage in range(self.place.pp)]
            options["pp_layers"] = [end - first for first, end in bounds]
        try:
            if not self.place.leads:
                self.follower = ingot.Follower(**options)
                return
            self.engine = ingot.Engine(**options)
        except ingot.Error as error:
            raise Declined(str(error)) from None
        limits, seed = self.engine.limits, self.model_config.seed or 0
        self.logits = LogitsPath(self.vllm_config, limits.vocab, seed) if wants_logits(self.vllm_config) else None
        top = self.logits.top if self.logits else 0
        if top > limits.max_top:
            raise Declined(f"VLLM_METAL_TOPK_LOGITS={top}: the engine hands over at most {limits.max_top} logits of a row")
        self.builder = StepBuilder(limits, seed, self.logits is not None, top)
        self.drafter = self._make_drafter(kv_cache_config.num_blocks)
        compat.logger.info(
            "ingot %s on %s, %d ranks: %s, %d KV blocks of %d, loaded in %.1f s",
            ingot.__version__, self.engine.device, self.parallel_config.world_size, self.engine.config["weight_format"],
            kv_cache_config.num_blocks, self.options["block_size"], time.monotonic() - start,
        )

    def _make_drafter(self, blocks: int):
        config = self.vllm_config.speculative_config
        if config is None:
            return None
        if self.draft_options is None:
            return NgramDrafter(config)
        try:
            engine = ingot.Engine(**self.draft_options, kv_blocks=blocks)
        except ingot.Error as error:
            raise Declined(f"draft model: {error}") from None
        if engine.limits.vocab != self.engine.limits.vocab:
            raise Declined(f"draft model: it has {engine.limits.vocab} tokens, the model {self.engine.limits.vocab}")
        return ModelDrafter(engine, self.builder, config.num_speculative_tokens)

    def compile_or_warm_up_model(self):
        return compat.compilation_times(0.0)

    def initialize_cache(self, num_gpu_blocks: int, num_cpu_blocks: int) -> None:
        self.cache_config.num_gpu_blocks = num_gpu_blocks
        self.cache_config.num_cpu_blocks = num_cpu_blocks

    def get_supported_kv_cache_layouts(self) -> list[str]:
        return ["LBHNC"]

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def check_health(self) -> None:
        return

    def shutdown(self) -> None:
        self.engine = self.follower = None

    # -- what vLLM may ask for now and then -----------------------------------------------------------------------

    def execute_dummy_batch(self) -> None:
        return

    def profile(self, *args, **kwargs) -> None:
        raise Declined("profiling by request is not supported: start with VLLM_METAL_PROFILE=1, the table comes at the end")

    def sleep(self, level: int = 1) -> None:
        raise Declined("sleep mode is not supported: the engine keeps its memory")

    def wake_up(self, tags=None) -> None:
        return

    def take_step_times(self) -> list[tuple]:
        """By collective_rpc: (rows, us it ran, us that the device had waited for it) of the steps since the last call."""
        times = list(self.step_times)
        self.step_times.clear()
        return times

    def take_draft_token_ids(self):
        """Guesses for the requests that drew a token in the last step."""
        plan, self.drawn = self.drawn, None
        if self.drafter is None or plan is None or plan.error is not None or not len(plan.sampled):
            return None
        with self.builder.lock:
            held = {plan.req_ids[i]: row for i, row in zip(plan.sampled.tolist(), plan.rows.tolist())}
            return DraftTokenIds(list(held), self.drafter.propose(self.builder, list(held.values())))

    def reset_mm_cache(self) -> None:
        return

    def get_kv_connector_handshake_metadata(self):
        return None

    def add_lora(self, lora_request) -> bool:
        raise Declined("LoRA adapters are not supported: merge the adapter into the model")

    # -- a step ---------------------------------------------------------------------------------------------------

    def execute_model(self, scheduler_output):
        if not self.place.leads:
            return None
        self.builder.update(scheduler_output)
        if not scheduler_output.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        try:
            self._score_long_prompts(scheduler_output)
            self.plan = self.builder.build(scheduler_output)
        except ingot.Error as error:
            self.plan = Plan.failed(list(scheduler_output.num_scheduled_tokens), str(error))
        if not self.plan.structured:
            self._submit(self.plan)
        return None

    def sample_tokens(self, grammar_output):
        plan, self.plan = self.plan, None
        if plan is None:
            return None
        if plan.structured:
            if self.logits is not None:
                plan.grammar = grammar_output
            elif grammar_output is not None:
                self.builder.set_grammar(plan, grammar_output)
            self._submit(plan)
        output = StepOutput(self, plan)
        if not self.overlaps:
            self.drawn = plan
            return output.get_output()
        self.flying.append(output)
        return output

    def _score_long_prompts(self, scheduler_output) -> None:
        """The one case of more than one step: more prompt logprobs than a step has output rows."""
        plans = self.builder.build_scores(scheduler_output)
        for output in list(self.flying) if plans else ():
            output.get_output()  # steps are waited for in order
        for plan in plans:
            result = self.engine.run(plan.step)
            self.builder.apply(plan, result, result.tokens[plan.output_rows])

    def _submit(self, plan: Plan) -> None:
        if plan.error is not None:
            return
        try:
            plan.ticket = self.engine.submit(plan.step)
            if self.is_async:
                self.builder.submitted(plan)
        except RuntimeError as error:  # ingot.Error is one
            plan.error = str(error)


class Runner:
    """What Ray's older executor calls instead of the worker."""

    supports_mm_inputs = False

    def __init__(self, worker: AppleWorker):
        self.worker = worker

    def execute_model(self, scheduler_output, intermediate_tensors=None):
        return self.worker.execute_model(scheduler_output)

    def sample_tokens(self, grammar_output):
        return self.worker.sample_tokens(grammar_output)


class StepOutput(AsyncModelRunnerOutput):
    """The result of a submitted step; vLLM asks for it from a thread of its own while it plans the next one."""

    def __init__(self, worker: AppleWorker, plan: Plan):
        self.worker, self.plan = worker, plan
        self.lock, self.output = threading.Lock(), None

    def get_output(self) -> ModelRunnerOutput:
        with self.lock:
            if self.output is None:
                self.output = self._wait()
            return self.output

    def _wait(self) -> ModelRunnerOutput:
        plan, builder = self.plan, self.worker.builder
        index = {req_id: i for i, req_id in enumerate(plan.req_ids)}
        if plan.error is None:
            try:
                result = self.worker.engine.wait(plan.ticket, self.worker.overlaps)
            except RuntimeError as error:
                plan.error = str(error)
        if plan.error is not None:
            compat.logger.error("a step failed, and its %d requests with it: %s", len(index), plan.error)
            output = make_output(plan.req_ids, index, [[] for _ in index])
            output.failure = plan.error
            return output
        stats = result.stats
        self.worker.step_times.append((plan.step.num_scheduled_tokens, stats["run_us"], stats["gap_us"]))
        if self.worker.logits is not None and len(plan.sampled):
            tokens, logprobs = self._draw(result)
        else:
            tokens = result.tokens[plan.output_rows]
            if plan.guessed is not None:
                right = plan.accepted(tokens)
                plan, tokens = plan.restricted(right), tokens[right]
            logprobs = gather_logprobs(plan, result)
        builder.apply(plan, result, tokens)
        drawn: list[list[int]] = [[] for _ in plan.req_ids]
        for i, token in zip(plan.sampled.tolist(), tokens.tolist()):
            drawn[i].append(token)
        return make_output(plan.req_ids, index, drawn, logprobs, gather_prompt_logprobs(plan))

    def _draw(self, result):
        """The logits path: vLLM's sampler draws."""
        plan, builder, path = self.plan, self.worker.builder, self.worker.logits
        req_ids = [plan.req_ids[i] for i in plan.sampled]
        requests = [builder.requests[req_id] for req_id in req_ids]
        # Full logits are numbered among themselves, the best ones by the rows of the result.
        rows = plan.output_rows if path.top else np.argsort(np.argsort(plan.output_rows))
        tokens, scores = path.sample(req_ids, requests, builder.known_tokens(plan), result, rows, plan.grammar)
        if scores is None:
            return tokens, None
        count, at = len(plan.req_ids), plan.sampled
        lists = [np.zeros((count, *t.shape[1:]), t.numpy().dtype) for t in scores[:3]]
        for into, tensor in zip(lists, scores[:3]):
            into[at] = tensor.numpy()
        return tokens, LogprobsLists(*lists, None)


def fixed_bytes(memory: dict) -> int:
    return memory["total"] - memory["kv_cache"]


def make_output(req_ids, index, drawn, logprobs=None, prompt_logprobs=None) -> ModelRunnerOutput:
    return ModelRunnerOutput(
        req_ids=req_ids,
        req_id_to_index=index,
        sampled_token_ids=drawn,
        logprobs=logprobs,
        prompt_logprobs_dict=prompt_logprobs or {},
        pooler_output=[],
    )


def gather_logprobs(plan: Plan, result):
    """[S, 1 + most alternatives]: the drawn token first. Requests that asked for none, or drew none, have zeros. With
    drafts, a line for each token instead, and where those of a request begin."""
    if plan.logprobs < 0:
        return None
    top, count, begins = plan.logprobs, len(plan.req_ids), None
    at, rows = plan.sampled, plan.output_rows
    if plan.guessed is not None:
        begins = np.searchsorted(plan.sampled, np.arange(count)).tolist()
        at = np.arange(len(plan.sampled))
        count = len(at)
    ids, values = np.zeros((count, top + 1), np.int32), np.full((count, top + 1), -np.inf, np.float32)
    ranks = np.zeros(count, np.int32)
    ids[at, 0], values[at, 0], ranks[at] = result.tokens[rows], result.logprobs[rows], result.ranks[rows]
    width = min(top, result.top_ids.shape[1])
    ids[at, 1 : 1 + width], values[at, 1 : 1 + width] = result.top_ids[rows, :width], result.top_values[rows, :width]
    return LogprobsLists(ids, values, ranks, begins)


def gather_prompt_logprobs(plan: Plan) -> dict:
    """Of the requests whose prompt is scored to its end in this step."""
    done = {part.req_id: part.request.prompt_scores for part in plan.parts if part.last}
    return {
        req_id: LogprobsTensors(*(torch.from_numpy(a) for a in (scores.ids, scores.logprobs, scores.ranks)))
        for req_id, scores in done.items()
    }
