"""The platform: what vLLM must know about the device, and the limits it has to keep to."""

import os
import sys

import ingot
import torch
from vllm.platforms.interface import Platform, PlatformEnum

from . import compat, quantization, ranks, strict
from .declined import Declined
from .engine_options import check_features, make_options, wants_logits

DEFAULT_BLOCK_SIZE = 16
MOST_STEP_TOKENS = 2048  # more rows in a step than this gain nothing; Metal's own limit is lower


class ApplePlatform(Platform):
    _enum = PlatformEnum.OOT
    device_name = "cpu"  # torch.device() is made of it for the process group
    device_type = "cpu"  # what torch sees: tensors that cross are in host memory
    dispatch_key = "CPU"
    dist_backend = "gloo"
    ray_device_key = "GPU"  # what a machine lends, by `ray start --num-gpus`; Ray numbers no resources of other names
    simple_compile_backend = "eager"
    supported_quantization: list[str] = []

    @property
    def supported_dtypes(self):
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def pre_register_and_update(cls, parser=None) -> None:
        quantization.register(parser)

    @classmethod
    def check_and_update_config(cls, vllm_config) -> None:
        compat.warn_if_untested()
        ingot.settings()  # a bad variable ends the start-up here, by name
        check_features(vllm_config)
        ranks.remember_replicas(vllm_config)
        ranks.keep_ray_from_nccl(vllm_config)
        parallel = vllm_config.parallel_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = "vllm_apple.worker.AppleWorker"
        if not vllm_config.cache_config.block_size:
            vllm_config.cache_config.block_size = DEFAULT_BLOCK_SIZE
        cls._switch_off_torch(vllm_config)
        never_fork_a_gpu()
        if vllm_config.model_config is not None:
            cls._clamp(vllm_config)
            use_scheduler(vllm_config)

    @staticmethod
    def _switch_off_torch(vllm_config) -> None:
        from vllm.config import CompilationMode, CUDAGraphMode

        compilation = vllm_config.compilation_config
        compilation.mode = CompilationMode.NONE
        compilation.cudagraph_mode = CUDAGraphMode.NONE
        compilation.cudagraph_capture_sizes = []
        if vllm_config.model_config is not None:
            vllm_config.model_config.disable_cascade_attn = True

    @staticmethod
    def _clamp(vllm_config) -> None:
        """The engine's limits are vLLM's limits. A model the engine declines ends the start-up with its reason."""
        scheduler = vllm_config.scheduler_config
        model = vllm_config.model_config
        options = make_options(vllm_config)
        parallel = vllm_config.parallel_config
        options.update(tp=parallel.tensor_parallel_size, pp=parallel.pipeline_parallel_size, pp_layers=ranks.given_layers())
        options["max_step_tokens"] = 0  # the device's own most
        options["max_seqs"] = 1
        try:
            longest = ingot.inspect(**{**options, "max_model_len": 1, "kv_blocks": 1}).config["max_position"]
            if model.max_model_len > longest and getattr(model, "original_max_model_len", None) in (None, -1):
                compat.logger.info("max_model_len %d -> %d: the positions of the model", model.max_model_len, longest)
                options["max_model_len"] = model.max_model_len = longest
            options["kv_blocks"] = -(-model.max_model_len // options["block_size"])
            limits = ingot.inspect(**options).limits
        except ingot.Error as error:
            raise Declined(str(error)) from None
        most_tokens = min(limits.max_step_tokens, MOST_STEP_TOKENS)
        before = (scheduler.max_num_batched_tokens, scheduler.max_num_seqs)
        scheduler.max_num_batched_tokens = min(before[0], most_tokens)
        scheduler.max_num_seqs = min(before[1], scheduler.max_num_batched_tokens)
        if not scheduler.enable_chunked_prefill and model.max_model_len > scheduler.max_num_batched_tokens:
            scheduler.enable_chunked_prefill = True
        model.max_logprobs = min(model.max_logprobs, limits.max_top) if model.max_logprobs >= 0 else limits.max_top
        after = (scheduler.max_num_batched_tokens, scheduler.max_num_seqs)
        if after != before:
            compat.logger.info(
                "the engine's limits: max_num_batched_tokens %d -> %d, max_num_seqs %d -> %d",
                before[0], after[0], before[1], after[1],
            )

    @classmethod
    def import_kernels(cls) -> None:
        """vLLM's own kernels are never used."""

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "ingot"

    @classmethod
    def get_device_uuid(cls, device_id: int = 0) -> str:
        return "ingot-0"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @classmethod
    def get_current_memory_usage(cls, device=None) -> float:
        return 0.0

    @classmethod
    def set_device(cls, device) -> None:
        strict.check_device(device)

    @classmethod
    def check_if_supports_dtype(cls, dtype) -> None:
        """Any of supported_dtypes: the engine keeps its own precision."""

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def inference_mode(cls):
        return torch.no_grad()

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return False

    @classmethod
    def supports_structured_output(cls) -> bool:
        return True


def never_fork_a_gpu() -> None:
    """A GPU that this process has opened, as _clamp() does, is of no use to a process forked from it: CUDA does not support that."""
    name = ingot.settings()["device"]
    if name == "auto":
        name = next((device for device, usable, _ in ingot.devices() if usable and device == "cuda"), "metal")
    if name == "cuda" or (name == "metal" and sys.platform == "darwin"):
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"


def use_scheduler(vllm_config) -> None:
    """vLLM's own scheduler, with one thing added: a failed step ends its requests instead of the server."""
    scheduler = vllm_config.scheduler_config
    if scheduler.async_scheduling and vllm_config.parallel_config.pipeline_parallel_size > 1:
        compat.logger.info("async scheduling is off: steps that are in different stages have different requests")
        scheduler.async_scheduling = False
    if scheduler.async_scheduling and vllm_config.speculative_config is not None:
        compat.logger.info("async scheduling is off: drafts follow from the tokens before them")
        scheduler.async_scheduling = False
    if scheduler.async_scheduling and wants_logits(vllm_config):
        compat.logger.info("async scheduling is off: tokens are drawn from logits by vLLM's sampler")
        scheduler.async_scheduling = False
    if scheduler.scheduler_cls in (None, "vllm.v1.core.sched.scheduler.Scheduler"):
        kind = "AppleAsyncScheduler" if scheduler.async_scheduling else "AppleScheduler"
        scheduler.scheduler_cls = f"vllm_apple.scheduler.{kind}"
