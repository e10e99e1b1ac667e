"""vLLM's API server as a process of a test's own, and what its processes hold in memory."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path


def free_port() -> int:
    """One that nobody listens on, below those that the system gives to whoever asks for any."""
    while True:
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


START_S = 240 * int(os.environ.get("INGOT_TEST_TIME_SCALE", "1"))


class Server:
    """A command that serves HTTP on `port`; ended by SIGINT, with all its processes."""

    def __init__(self, *command, port: int, start_s=START_S, **environment):
        self.port, self.start_s = port, start_s
        self.command = [str(word) for word in command]
        self.environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "INFO", **environment}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self.output = tempfile.TemporaryFile("w+b")
        self.process = subprocess.Popen(
            self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        end = time.monotonic() + self.start_s
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"{' '.join(self.command)}: exit {self.process.returncode}\n{self.log()[-6000:]}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return self
            except OSError:
                time.sleep(0.25)
        self.__exit__(None, None, None)
        raise AssertionError(f"not ready within {self.start_s} s\n{self.log()[-6000:]}")

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # its session: nobody else's
        except ProcessLookupError:
            pass
        self.process.wait()

    def log(self) -> str:
        return os.pread(self.output.fileno(), 1 << 26, 0).decode(errors="replace")

    def pss_bytes(self) -> int:
        """Proportional set size of the process and all below it: what is shared counts once."""
        total = 0
        for pid in _session(self.process.pid):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        return total


def _session(leader: int) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if os.getsid(int(path.name)) == leader:
                    found.append(int(path.name))
            except ProcessLookupError:
                pass
    return found


def vllm_serve(model: str, *options, **environment) -> Server:
    port = free_port()
    vllm = Path(sys.executable).parent / "vllm"
    return Server(vllm, "serve", model, "--host", "127.0.0.1", "--port", port, *options, port=port, **environment)


def documents_command(model: str, *options) -> Server:
    """VLLM_PLATFORM=apple VLLM_METAL_ATTENTION=1 VLLM_APPLE_USE_ENGINE=1 python -m vllm.entrypoints.openai.api_server ..."""
    port = free_port()
    return Server(
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--gpu-memory-utilization", "0.9",
        "--host", "127.0.0.1", "--port", port, *options,
        port=port, VLLM_PLATFORM="apple", VLLM_METAL_ATTENTION="1", VLLM_APPLE_USE_ENGINE="1",
    )
