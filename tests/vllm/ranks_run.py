"""What ranks_test.py runs in a process of its own, whose workers may be forked: a line of JSON on stdin a case, a line of results
on stdout each. This process must have no thread that could hold a lock then, so it runs no engine itself."""

import contextlib
import json
import os
import sys
import threading
import time

import conftest  # noqa: F401  the environment of every test
import psutil
from models import generate, metric, tokens_of, vllm_llm


def run(case: dict) -> dict:
    options = dict(skip_tokenizer_init=True, max_num_batched_tokens=64, **case["options"])
    start = time.monotonic()
    # Only where vLLM's engine has a process of its own does it tell whoever waits that a worker is gone.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if case["kill"] is None else "1"
    with contextlib.ExitStack() as stack:
        if options.get("distributed_executor_backend") == "ray":
            stack.callback(start_ray().shutdown)
        llm = stack.enter_context(vllm_llm(case["model"], **options))
        result = {"start_s": round(time.monotonic() - start, 1)}
        result["tokens"] = [tokens_of(generate(llm, ask["prompts"], ask["new"], **ask["params"])) for ask in case["asks"]]
        result["preemptions"] = metric(llm, "vllm:num_preemptions")
        if case["kill"] is not None:
            result["killed"] = kill(llm, case["kill"], case["asks"][0]["prompts"])
        result["seconds"] = round(time.monotonic() - start, 1)
    return result


def start_ray():
    import ray

    for left in (2, 1, 0):
        try:
            ray.init(num_gpus=2, num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, logging_level="warning")
            return ray
        except Exception:  # it gives itself 30 s, which a busy machine may need twice
            ray.shutdown()
            if not left:
                raise


def kill(llm, rank: int, prompts) -> dict:
    """SIGKILL to a rank in the midst of answers: what those who asked are told, and when; which workers are left then."""
    workers = [p for p in psutil.Process().children(recursive=True) if "Worker_TP" in " ".join(p.cmdline())]
    victim = next(p for p in workers if f"Worker_TP{rank}" in " ".join(p.cmdline()))
    times = []

    def strike():
        times.append(time.monotonic())
        victim.kill()

    threading.Timer(0.5, strike).start()
    try:
        generate(llm, prompts * 100, 80)
        told = ""
    except Exception as error:  # noqa: BLE001  vLLM has several kinds
        told = type(error).__name__
    seconds = time.monotonic() - times[0]
    _, left = psutil.wait_procs(workers, timeout=30)
    return {"told": told, "seconds": round(seconds, 1), "left": len(left)}


if __name__ == "__main__":
    lines = os.fdopen(os.dup(1), "w")  # stdout is vLLM's, which writes what it likes
    os.dup2(2, 1)
    for line in sys.stdin:
        lines.write(json.dumps(run(json.loads(line))) + "\n")
        lines.flush()
