"""vLLM's schedulers, with one thing added: a step that failed ends the requests that were in it, and nothing else."""

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.request import RequestStatus

# 0.12.0 knows no status for a failure; its requests end as aborted, the reason beside it.
FAILED = getattr(RequestStatus, "FINISHED_ERROR", RequestStatus.FINISHED_ABORTED)


class FailedSteps:
    """Mixin: reads the reason that the worker attached to its output."""

    def update_from_output(self, scheduler_output, model_runner_output):
        reason = getattr(model_runner_output, "failure", None)
        if reason is None:
            return super().update_from_output(scheduler_output, model_runner_output)
        failed = [self.requests[r] for r in scheduler_output.num_scheduled_tokens if r in self.requests]
        failed = [request for request in failed if not request.is_finished()]
        self.finish_requests([request.request_id for request in failed], FAILED)
        outputs = super().update_from_output(scheduler_output, model_runner_output)  # they are gone: nothing is read
        for request in failed:
            entry = EngineCoreOutput(
                request.request_id, [], finish_reason=request.get_finished_reason(), stop_reason=reason
            )
            outputs.setdefault(request.client_index, EngineCoreOutputs()).outputs.append(entry)
        return outputs


class AppleScheduler(FailedSteps, Scheduler):
    pass


class AppleAsyncScheduler(FailedSteps, AsyncScheduler):
    pass
