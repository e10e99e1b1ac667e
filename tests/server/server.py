"""Starts `ingot serve` for a test, and stops it; runs a test file with its cases counted for the suite's summary."""

import contextlib
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOAK = os.environ.get("INGOT_SOAK", "0") not in ("", "0")  # the long forms
LISTENING = re.compile(r"https?://(?:\[[0-9a-f:]*\]|[\w.-]+):(\d+)")


def binary():
    """The program under test: INGOT_BINARY, which ctest sets, else the release build's."""
    return pathlib.Path(os.environ.get("INGOT_BINARY") or ROOT / "build" / "bin" / "ingot")


def default_model():
    path = os.environ.get("INGOT_DEFAULT_MODEL")
    if not path:
        sys.exit("error: INGOT_DEFAULT_MODEL is not set; run this through scripts/python_test.sh")
    return path


def free_port():
    """One that nobody listens on, below those that the system gives to whoever asks for any."""
    while True:
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """A server process on a port of its own choice. As a context manager it must end cleanly on SIGTERM.

    The tests give it --threads 1 where speed does not matter: threads that wait for each other at every layer suffer most when
    the machine is shared, with other tests for one.
    """

    def __init__(self, *args, model=None, env=None, start_s=120, host="127.0.0.1", port=0, tls=False):
        self.args = [str(word) for word in args]
        self.model = model
        self.env = dict(os.environ, **(env or {}))
        self.start_s = start_s
        self.host = host
        self.scheme = "https" if tls else "http"
        self.process = None
        self.port = port

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        else:
            self.kill()
            print(f"the end of the server's output:\n{self.log()[-4000:]}", file=sys.stderr)

    def command(self):
        model = ["-m", str(self.model)] if self.model else []
        return [str(binary()), "serve", *model, "--host", self.host, "--port", str(self.port), *self.args]

    def start(self):
        self.output = tempfile.TemporaryFile("w+b")
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                        env=self.env)
        end = time.monotonic() + self.start_s
        while time.monotonic() < end:
            found = LISTENING.search(self.log())
            if found:
                self.port = int(found.group(1))
                return
            if self.process.poll() is not None:
                raise AssertionError(f"{' '.join(self.command())}: exit {self.process.returncode}\n{self.log()[-4000:]}")
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"no address printed within {self.start_s} s\n{self.log()[-4000:]}")

    def log(self):
        """All that it printed so far."""
        return os.pread(self.output.fileno(), 1 << 26, 0).decode(errors="replace")

    def logged(self, word, seconds=30):
        """Waits for a word in what it prints: a request's line may come a moment after its answer. True when it came."""
        end = time.monotonic() + seconds
        while word not in self.log() and time.monotonic() < end:
            time.sleep(0.02)
        return word in self.log()

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, seconds):
        """The exit status, or a failure when there is none in time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not end within {seconds} s\n{self.log()[-4000:]}") from None

    def stop(self, seconds=30):
        if self.process is None or self.process.returncode is not None:
            return
        if self.process.poll() is None:
            self.signal()
        status = self.wait(seconds)
        if status != 0:
            raise AssertionError(f"exit {status} after SIGTERM\n{self.log()[-4000:]}")

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def url(self):
        return f"{self.scheme}://{self.host}:{self.port}"

    def get(self, path, headers=None, timeout=30):
        """(status, body) of a GET."""
        request = urllib.request.Request(self.url + path, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def metrics(self):
        """The sum of each sample of /metrics over its labels; buckets are left out."""
        sums = {}
        for line in self.get("/metrics")[1].decode().splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                if not name.endswith("_bucket"):
                    sums[name] = sums.get(name, 0) + float(value)
        return sums

    def forget_peak(self):
        """From now on VmHWM is the most since then."""
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def rss_mb(self, name="VmRSS"):
        """Resident memory in MiB (VmHWM: the most there was), or None where the system does not tell."""
        try:
            text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return None
        return int(re.search(name + r":\s*(\d+) kB", text).group(1)) / 1024

    def wait_idle(self, seconds=30):
        """Waits until nothing runs or waits, and returns the metrics of then."""
        end = time.monotonic() + seconds
        while True:
            metrics = self.metrics()
            if metrics["vllm:num_requests_running"] == 0 and metrics["vllm:num_requests_waiting"] == 0:
                return metrics
            if time.monotonic() > end:
                raise AssertionError(f"still busy after {seconds} s: {metrics}")
            time.sleep(0.02)

    def wait_draining(self, seconds=30):
        """Waits until it says that it takes no more requests."""
        end = time.monotonic() + seconds
        while True:
            try:
                if self.get("/ready")[0] == 503:
                    return
            except ConnectionError:  # accepted, but not yet asked anything: closed when the draining began
                pass
            if time.monotonic() > end:
                raise AssertionError(f"not draining after {seconds} s")
            time.sleep(0.01)


class CountingResult(unittest.TextTestResult):
    """Remembers each case, for the file that scripts/count_tests.py reads."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cases = []

    def addSuccess(self, test):
        super().addSuccess(test)
        self.cases.append((test.id(), None))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.cases.append((test.id(), "failure"))

    def addError(self, test, err):
        super().addError(test, err)
        self.cases.append((test.id(), "failure"))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.cases.append((test.id(), "skipped"))


def write_cases(cases):
    """One file in the folder GTEST_OUTPUT names, as a GoogleTest binary of this test's name would write it."""
    folder, name = os.environ.get("GTEST_OUTPUT", ""), os.environ.get("INGOT_TEST_NAME")
    if not folder.startswith("xml:") or not name:
        return
    suites = xml.Element("testsuites")
    for case, outcome in cases:
        entry = xml.SubElement(suites, "testcase", name=case)
        if outcome:
            xml.SubElement(entry, outcome)
    xml.ElementTree(suites).write(pathlib.Path(folder[4:]) / f"{name}.xml")


def main():
    """Runs the cases of the calling file: unittest's own command line."""
    program = unittest.main(module="__main__", exit=False, verbosity=2,
                            testRunner=unittest.TextTestRunner(resultclass=CountingResult, verbosity=2))
    write_cases(program.result.cases)
    sys.exit(not program.result.wasSuccessful())
