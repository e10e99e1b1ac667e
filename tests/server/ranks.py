"""A server of several ranks, and what becomes of its processes."""

import os
import pathlib
import shutil
import time

import server as fixture

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", "/bin/false"]


def missing():
    """Why such servers cannot be tested here, or None."""
    if shutil.which("mpirun") is None:
        return "there is no mpirun (openmpi-bin)"
    return None if pathlib.Path("/proc/self/environ").exists() else "needs /proc to tell the ranks"


def children(pid):
    try:
        return [int(word) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
                for word in (task / "children").read_text().split()]
    except OSError:
        return []


def descendants(pid):
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def rank_of(pid):
    """Its number among the ranks; None: it is none of them."""
    try:
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((int(word.partition(b"=")[2]) for word in words if word.startswith(b"OMPI_COMM_WORLD_RANK=")), None)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def left_of(pids, seconds):
    """Those of them that still run after as many seconds."""
    end = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < end:
        time.sleep(0.02)
    return left


class Supervised(fixture.Server):
    """A server whose ranks are processes below its own."""

    def ranks(self):
        """Process ids by rank."""
        found = {rank_of(pid): pid for pid in descendants(self.process.pid)}
        found.pop(None, None)
        return found

    def end_all(self):
        """Whatever is left of it."""
        if self.process is None:
            return
        for pid in [*descendants(self.process.pid), self.process.pid]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.process.wait()


class RankServer(Supervised):
    """A server of `ranks` processes with a thread each, under mpirun; `cut`: what they share, layers (--tp) or stages (--pp)."""

    def __init__(self, *args, ranks=2, mpirun=(), cut="--tp", **options):
        super().__init__(*args, "--threads", 1, cut, ranks, **options)
        self.mpirun = [*MPIRUN, *mpirun, "-n", str(ranks)]

    def command(self):
        return [*self.mpirun, *super().command()]
