"""vLLM's schedulers, with one thing added: a step that failed ends the requests that were in it, and nothing else."""

from collections import deque

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.request import RequestStatus

# 0.12.0 knows no status for a failure; its requests end as aborted, the reason beside it.
FAILED = getattr(RequestStatus, "FINISHED_ERROR", RequestStatus.FINISHED_ABORTED)


class FailedSteps:
    """Mixin: reads the reason that the worker attached to its output."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._in_flight = deque(maxlen=8)  # [SchedulerOutput, why it cannot be trusted or None]; planned, no result yet

    def schedule(self, *args, **kwargs):
        output = super().schedule(*args, **kwargs)
        if output.total_num_scheduled_tokens:
            self._in_flight.append([output, None])
        return output

    def update_from_output(self, scheduler_output, model_runner_output):
        reason, failed_now = getattr(model_runner_output, "failure", None), True
        while self._in_flight and scheduler_output.total_num_scheduled_tokens:
            output, earlier = self._in_flight.popleft()
            if output is scheduler_output:
                reason, failed_now = earlier or reason, earlier is None
                break
        if reason is None:
            return super().update_from_output(scheduler_output, model_runner_output)
        failed = [self.requests[r] for r in scheduler_output.num_scheduled_tokens if r in self.requests]
        failed = [request for request in failed if not request.is_finished()]
        self.finish_requests([request.request_id for request in failed], FAILED)
        if failed_now:
            self._distrust(reason)
        outputs = super().update_from_output(scheduler_output, model_runner_output)  # they are gone: nothing is read
        for request in failed:
            entry = EngineCoreOutput(
                request.request_id, [], finish_reason=request.get_finished_reason(), stop_reason=reason
            )
            outputs.setdefault(request.client_index, EngineCoreOutputs()).outputs.append(entry)
        return outputs

    def _distrust(self, reason: str) -> None:
        """Blocks count as cached from the moment they are planned, and the failed step's may never have been written: the
        prefix cache starts anew, and steps planned before that was known fail too."""
        pool = self.kv_cache_manager.block_pool
        for block in pool.blocks:
            pool._maybe_evict_cached_block(block)
        for entry in self._in_flight:
            entry[1] = f"the step before failed: {reason}"


class AppleScheduler(FailedSteps, Scheduler):
    pass


class AppleAsyncScheduler(FailedSteps, AsyncScheduler):
    pass
