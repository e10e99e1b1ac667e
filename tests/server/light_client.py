"""An HTTP client that costs almost nothing: bytes are collected as they come, with the time, and understood afterwards.

Meant for load: on a small machine the client must not take the cores from the server it measures. One Connection sends one
request after another over the same socket.
"""

import asyncio
import json
import time


class Answer:
    """One reply. `stamps` has (seconds, bytes so far) for each piece that arrived."""

    def __init__(self, raw, stamps, sent, complete):
        self.raw = bytes(raw)
        self.stamps = stamps
        self.sent = sent
        self.complete = complete  # False: cut off, by either side
        head, _, rest = self.raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        self.status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        self.headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        self.chunked = "chunked" in self.headers.get("transfer-encoding", "")
        self.payload = rest

    def body(self):
        """The body without its chunk frames."""
        if not self.chunked:
            return self.payload
        out, at = bytearray(), 0
        while True:
            line = self.payload.find(b"\r\n", at)
            if line < 0:
                return bytes(out)
            size = int(self.payload[at:line].split(b";")[0], 16)
            if size == 0:
                return bytes(out)
            out += self.payload[line + 2:line + 2 + size]
            at = line + 4 + size

    def json(self):
        return json.loads(self.body())

    def events(self):
        """The data of each server-sent event, parsed; [DONE] is left out."""
        out = []
        for block in self.body().split(b"\n\n"):
            data = b"".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:"))
            if data and data != b"[DONE]":
                out.append(json.loads(data))
        return out

    def text(self, choice=0):
        """The text of one choice: of a stream or of a whole answer, of chat or completions."""
        parts = []
        for event in self.events() if self.is_stream() else [self.json()]:
            for entry in event.get("choices", ()):
                if entry["index"] == choice:
                    message = entry.get("delta") or entry.get("message") or entry
                    parts.append(message.get("content") or message.get("text") or "")
        return "".join(parts)

    def finish(self, choice=0):
        reasons = [entry.get("finish_reason") for event in (self.events() if self.is_stream() else [self.json()])
                   for entry in event.get("choices", ()) if entry["index"] == choice]
        return next((reason for reason in reversed(reasons) if reason), None)

    def usage(self):
        found = [event["usage"] for event in (self.events() if self.is_stream() else [self.json()]) if event.get("usage")]
        return found[-1] if found else None

    def is_stream(self):
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def event_times(self):
        """When each event of a stream that carries a choice arrived, in seconds."""
        times, done = [], 0
        for when, size in self.stamps:
            count = self.raw.count(b'"choices":[{', done, size) + self.raw.count(b'"choices": [{', done, size)
            times += [when] * count
            done = max(done, size - 11)  # a mark may lie across two pieces, but is never counted twice
        return times


class Connection(asyncio.Protocol):
    """A keep-alive connection; open() first. request() may stop early: then the connection is closed."""

    def __init__(self):
        self.transport = None
        self.waiter = None

    @classmethod
    async def open(cls, host, port):
        _, self = await asyncio.get_running_loop().create_connection(cls, host, port)
        return self

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, error):
        self.transport = None
        self.finish(False)

    def data_received(self, data):
        if self.waiter is None or self.waiter.done():
            return
        self.raw += data
        self.stamps.append((time.perf_counter(), len(self.raw)))
        if self.need is None:
            end = self.raw.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.raw[:end]).lower()
            at = head.find(b"\r\ncontent-length:")
            self.need = end + 4 + int(head[at + 17:].split(b"\r\n")[0]) if at >= 0 else -1 if b"chunked" in head else -2
        if self.need >= 0 and len(self.raw) >= self.need or self.need == -1 and self.raw.endswith(b"\r\n0\r\n\r\n"):
            self.finish(True)
        elif self.cut is not None and self.raw.count(b"data:") >= self.cut:
            self.close()

    def finish(self, complete):
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(complete or self.need == -2)

    def close(self):
        if self.transport is not None:
            self.transport.abort()  # no lingering: the server sees it at once
        self.finish(False)

    async def request(self, method, path, body=None, headers="", cut_events=None, cut_s=None, timeout=300):
        """Sends a request and waits for its reply. cut_events, cut_s: go away after so many events or seconds."""
        data = json.dumps(body).encode() if body is not None else b""
        self.raw, self.stamps, self.need, self.cut = bytearray(), [], None, cut_events
        self.waiter = asyncio.get_running_loop().create_future()
        sent = time.perf_counter()
        if self.transport is None:
            raise ConnectionError("the connection is closed")
        self.transport.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                             f"Content-Length: {len(data)}\r\n{headers}\r\n".encode() + data)
        try:
            complete = await asyncio.wait_for(asyncio.shield(self.waiter), cut_s if cut_s is not None else timeout)
        except asyncio.TimeoutError:
            self.close()
            if cut_s is None:
                raise TimeoutError(f"{method} {path}: no end of the answer within {timeout} s") from None
            complete = False
        return Answer(self.raw, self.stamps, sent, complete)
