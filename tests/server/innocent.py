"""A client that does nothing wrong, in a process of its own: it asks /health and streams answers over and over, and remembers when it
waited and for how long.

How long something took says little on a machine that others use too. So what the system knows is taken off: how long the threads that
serve, and those of this client, were ready to run while other programs had the cores. Not so where the server's own threads that do
what clients send had them.
"""

import asyncio
import bisect
import contextlib
import http.client
import json
import multiprocessing
import os
import pathlib
import threading
import time

import light_client

PROBE_S = 0.05  # the longest answer of /health
GAPS = 3        # times the longest gap in a stream beside well-behaved ones, and
SLICE_S = 0.02  # what the system's scheduler adds: the tiny model's gaps are shorter than one of its turns
FIRST_S = 1.0   # the longest wait for a stream's first token
ADDRESS = "127.0.0.2"
REQUEST = {"prompt": "Tell me", "max_tokens": 40, "temperature": 0, "stream": True, "ignore_eos": True}
LEVELS = (1, 8, 63)  # streams of company that are measured

processes = multiprocessing.get_context("fork")


class Bystanders:
    """What other programs took from a server and from this process, sampled now and then."""

    EVERY_S = 0.01

    def __init__(self, pid):
        self.files = {}  # schedstat of a thread: whether it does what clients send, and so stands back for the others
        usual = os.nice(0)  # that of a suite which stands back as a whole is not 0
        for process in (pid, os.getpid()):
            for task in pathlib.Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(OSError):  # it may have ended
                    nice = int((task / "stat").read_text().rpartition(")")[2].split()[16])
                    self.files[task / "schedstat"] = process == pid and nice > usual
        self.last = dict.fromkeys(self.files, 0)
        self.times, self.taken = [], []

    def look(self):
        """Seconds that threads were kept from the cores, less those that the server's own workers had."""
        for file, works in self.files.items():
            with contextlib.suppress(OSError):
                ran, waited = file.read_text().split()[:2]
                self.last[file] = -int(ran) if works else int(waited)
        self.times.append(time.monotonic())
        self.taken.append(sum(self.last.values()) / 1e9)
        time.sleep(self.EVERY_S)

    def between(self, begin, end):
        before = max(0, bisect.bisect_right(self.times, begin) - 1)
        after = min(len(self.times) - 1, bisect.bisect_left(self.times, end))
        return max(0, self.taken[after] - self.taken[before])


class Innocent:
    """From a with statement's begin to its end. Then `probes`, `firsts` and `gaps` hold (seconds, those of others left out; all of them)."""

    def __init__(self, server, expected):
        self.port, self.pid, self.expected = server.port, server.process.pid, expected
        self.stop, self.count = processes.Event(), processes.Value("i", 0)
        self.end, self.child_end = processes.Pipe(False)
        self.process = processes.Process(target=self.run, daemon=True)

    def __enter__(self):
        self.process.start()
        self.child_end.close()
        self.wait_answers(1)
        return self

    def __exit__(self, *_):
        self.stop.set()
        report = self.end.recv() if self.end.poll(60) else ([], [], [], [], ["no report"])
        self.probes, self.firsts, self.gaps, self.answers, self.troubles = report
        self.process.join(10)
        self.end.close()

    def wait_answers(self, more, seconds=30):
        """Waits for so many more whole answers, or for an end."""
        wanted, end = self.count.value + more, time.monotonic() + seconds
        while self.count.value < wanted and self.process.is_alive() and time.monotonic() < end:
            time.sleep(0.005)

    def longest(self):
        return ", ".join(f"{what} {max(times, default=(0, 0))[0] * 1e3:.0f} ms"
                         for what, times in (("/health", self.probes), ("first", self.firsts), ("gap", self.gaps)))

    def wrong(self):
        """What was not as it should be, in words."""
        found = list(self.troubles)
        if set(self.answers) != {self.expected}:
            found.append(f"answers: {set(self.answers)}, alone: {self.expected!r}")
        return found

    def late(self, usual_gap):
        """What took too long, in words."""
        found = []
        for what, times, bound in (("/health", self.probes, PROBE_S), ("the first token", self.firsts, FIRST_S),
                                   ("a gap in the stream", self.gaps, SLICE_S + GAPS * usual_gap)):
            own, seconds = max(times, default=(99, 99))
            if own > bound:
                found.append(f"{what}: {own:.3f} s of {seconds:.3f}, where {bound:.3f} are allowed")
        return found

    # ---- in its own process ----

    def run(self):
        self.probed, self.begun, self.gapped, self.said, self.trouble = [], [], [], [], []
        threads = [threading.Thread(target=self.watch, args=(work,)) for work in (self.health, self.stream)]
        for thread in threads:
            thread.start()
        others = Bystanders(self.pid)
        while any(thread.is_alive() for thread in threads):
            others.look()
        others.look()
        seconds = lambda begin, end: end - begin - (others.between(begin, end) if end - begin > SLICE_S else 0)
        net = lambda spans: [(seconds(begin, end), end - begin) for begin, end in spans]
        self.child_end.send((net(self.probed), net(self.begun), net(self.gapped), self.said, self.trouble))

    def watch(self, work):
        while not self.stop.is_set():
            try:
                work()
            except Exception as error:  # reported
                self.trouble.append(f"{work.__name__}: {error!r}")
                return

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=(ADDRESS, 0))

    def health(self):
        begin = time.monotonic()
        link = self.connect()
        link.request("GET", "/health")
        status = link.getresponse().status
        link.close()
        self.probed.append((begin, time.monotonic()))
        if status != 200:
            self.trouble.append(f"/health: {status}")
        time.sleep(0.01)

    def stream(self):
        link = self.connect()
        last = time.monotonic()
        link.request("POST", "/v1/completions", json.dumps(REQUEST), {"Content-Type": "application/json"})
        reply = link.getresponse()
        text = b""
        while True:
            piece = reply.read1(1 << 16)
            now = time.monotonic()
            (self.gapped if text else self.begun).append((last, now))
            last = now
            if not piece:
                break
            text += piece
        link.close()
        if reply.status != 200:
            self.trouble.append(f"{reply.status}: {text[:300]}")
            return
        events = [json.loads(line[6:]) for line in text.split(b"\n") if line.startswith(b"data: {")]
        self.said.append("".join(event["choices"][0]["text"] for event in events))
        self.count.value += 1


class Company:
    """Makes innocent clients of a server, and knows what gaps their streams have beside well-behaved ones."""

    def __init__(self, server):
        self.server, self.gaps = server, {}
        self.expected = None
        with self.innocent() as alone:
            alone.wait_answers(1)
        self.expected = alone.answers[0]

    def innocent(self):
        return Innocent(self.server, self.expected)

    def usual(self, streams):
        """The longest gap beside so many streams, or somewhat fewer."""
        level = max(level for level in LEVELS if level <= streams)
        if level not in self.gaps:
            done = threading.Event()
            others = threading.Thread(target=lambda: asyncio.run(self.stream_beside(level, done)))
            others.start()
            with self.innocent() as client:
                client.wait_answers(3)
            done.set()
            others.join()
            self.gaps[level] = max(seconds for _, seconds in client.gaps)
        return self.gaps[level]

    async def stream_beside(self, streams, done):
        async def one():
            connection = await light_client.Connection.open("127.0.0.1", self.server.port)
            while not done.is_set():
                await connection.request("POST", "/v1/completions", {**REQUEST, "max_tokens": 200})
            connection.close()
        await asyncio.gather(*(one() for _ in range(streams)))
