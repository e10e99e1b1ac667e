"""Workers of vLLM's executors as ranks of one engine.

vLLM starts the workers, and its process group (gloo) tells each of them where the others listen; everything else goes through
the engine's own sockets. The worker whose answers vLLM reads is the engine's rank 0: it builds the steps and hands them out. The
others follow it, and what vLLM calls them with is of no interest to them.
"""

import os
import secrets
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import ingot

from .declined import Declined

PATIENCE_S = 120  # for all ranks to connect, once they know the addresses
REPLICAS_HERE = "replicas_here"  # in additional_config: vLLM forgets it in the processes of independent replicas


@dataclass
class Place:
    """Which part of the engine this worker is."""

    rank: int = 0
    tp: int = 1  # ranks that share the layers of a stage
    pp: int = 1  # stages
    sharers: int = 1  # workers that share this machine, this one included
    group: Optional[ingot.Group] = None  # until the engine has it

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def options(self) -> dict:
        """Of the engine: what follows from it."""
        options = {"tp": self.tp, "pp": self.pp, "pp_layers": given_layers()}
        if self.sharers > 1:
            options["threads"] = max(1, cores() // self.sharers)
        return options


def check(vllm_config) -> None:
    """Declines the ways of sharing a model that the engine has not."""
    parallel = vllm_config.parallel_config
    if parallel.tensor_parallel_size not in (1, 2, 4):
        raise Declined(f"tensor_parallel_size {parallel.tensor_parallel_size}: a model is cut for 1, 2 or 4 ranks")
    if parallel.pipeline_parallel_size > 1 and vllm_config.speculative_config is not None:
        raise Declined("speculative_config: guesses follow from the step before, pipeline_parallel_size runs several at once")
    for name in ("prefill_context_parallel_size", "decode_context_parallel_size"):
        if (getattr(parallel, name, 1) or 1) > 1:
            raise Declined(f"{name}: a sequence stays whole; cut the model by tensor_parallel_size instead")
    if getattr(parallel, "enable_expert_parallel", False):
        raise Declined("enable_expert_parallel: experts are shared by the ranks of tensor_parallel_size; leave it out")
    if parallel.distributed_executor_backend == "external_launcher":
        raise Declined("distributed_executor_backend external_launcher: the engine's ranks run behind mp and ray")


def remember_replicas(vllm_config) -> None:
    replicas = getattr(vllm_config.parallel_config, "data_parallel_size_local", 1)
    if replicas > 1 and isinstance(vllm_config.additional_config, dict):
        vllm_config.additional_config[REPLICAS_HERE] = replicas


def keep_ray_from_nccl(vllm_config) -> None:
    """vLLM 0.12 has Ray connect stages by NCCL, unless told otherwise, for tensors of which we send none."""
    if vllm_config.parallel_config.distributed_executor_backend == "ray":
        os.environ.setdefault("VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE", "shm")


def connect(worker) -> Place:
    """Joins the worker with the others of its replica."""
    parallel = worker.parallel_config
    extra = worker.vllm_config.additional_config
    replicas = extra.get(REPLICAS_HERE, 1) if isinstance(extra, dict) else 1
    if parallel.world_size == 1 and parallel.distributed_executor_backend != "ray":
        return Place(sharers=replicas)
    _init_vllm(worker)
    if parallel.world_size == 1:
        return Place(sharers=replicas)
    size = parallel.world_size
    rank = (worker.rank % size + parallel.tensor_parallel_size) % size  # the one whose answers vLLM reads is rank 0
    machine, network = _memory(), _network()
    is_near = len({note["network"] for note in _tell_all(size, rank, {"network": network})}) == 1
    try:
        host = "127.0.0.1" if is_near else _own_address()
        if host in ("0.0.0.0", "::"):
            raise Declined("other machines must reach this one: set VLLM_HOST_IP to its address")
        listener = ingot.GroupListener(host)
        note = {"rank": (listener.address, socket.gethostname(), machine), "key": secrets.token_bytes(32)}
        notes = _tell_all(size, rank, note)
        group = listener.join(rank, [note["rank"] for note in notes], notes[0]["key"], PATIENCE_S)
    except ingot.Error as error:
        raise Declined(f"the ranks of the engine could not connect: {error}") from None
    return Place(
        rank, parallel.tensor_parallel_size, parallel.pipeline_parallel_size, group.neighbours * replicas, group
    )


def given_layers() -> list[int]:
    """Of each stage, where the user says so by vLLM's variable; nothing: the engine cuts by what layers cost."""
    text = os.environ.get("VLLM_PP_LAYER_PARTITION", "")
    return [int(part) for part in text.split(",")] if text else []


def _init_vllm(worker) -> None:
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment

    parallel = worker.parallel_config
    if worker.distributed_init_method.startswith("tcp://"):
        name_interface()
    init_distributed_environment(
        parallel.world_size, worker.rank, worker.distributed_init_method, worker.local_rank, "gloo"
    )
    ensure_model_parallel_initialized(parallel.tensor_parallel_size, parallel.pipeline_parallel_size)


def name_interface() -> None:
    """gloo takes what the name of this machine stands for, often its loopback address; here what VLLM_HOST_IP or Ray says."""
    import psutil

    address = _own_address()
    for name, places in psutil.net_if_addrs().items():
        if any(place.address == address for place in places):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _tell_all(size: int, rank: int, note: dict) -> list[dict]:
    """The notes of all workers of this replica, in the order of the engine's ranks."""
    import torch.distributed as dist

    notes: list = [None] * dist.get_world_size()
    dist.all_gather_object(notes, {**note, "engine_rank": rank})
    first = dist.get_rank() // size * size  # a process group of vLLM may span replicas
    return sorted(notes[first : first + size], key=lambda note: note["engine_rank"])


def _own_address() -> str:
    """Where other machines reach this one, as vLLM has it."""
    address = os.environ.get("VLLM_HOST_IP", "")
    if not address and "ray" in sys.modules:
        import ray

        address = ray.util.get_node_ip_address() if ray.is_initialized() else ""
    if not address:
        from vllm.utils.network_utils import get_ip

        address = get_ip()
    return address


def _memory() -> str:
    """The same in processes that share a memory."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _network() -> str:
    """The same in processes that reach one another by the loopback address."""
    try:
        return f"{_memory()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return _memory()


def cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1
