"""A stand-in for `ingot serve` with scripted answers, for the tests of the chat page.

It speaks the part of the API that the page uses, and it can be told to be busy, to want a key, to break off, or to say
things that no page should obey. The last word of the question chooses the answer.
"""

import http.server
import json
import pathlib
import threading
import time

INJECTION = """Before <img src=x onerror="window.pwned=1"> <script>window.pwned=2</script> after.

<div onclick="window.pwned=3">block</div>

[click](javascript:window.pwned=4) [tab](java\tscript:window.pwned=5) [data](data:text/html,<script>window.pwned=6</script>)
[upper](JAVASCRIPT:window.pwned=7) [file](file:///etc/passwd) [relative](/v1/models) <javascript:window.pwned=8>
![x](javascript:window.pwned=9) ![remote](https://example.org/pixel.png) [quote](https://example.org/"onmouseover="window.pwned=10)

| <b>head</b> | <svg onload=window.pwned=11> |
|---|---|
| <iframe srcdoc="<script>parent.pwned=12</script>"> | ok |

```html"><img src=x onerror=window.pwned=13>
<script>window.pwned=14</script>
```
"""

MARKDOWN = """# Title

A paragraph with **bold**, *italic*, ***both***, ~~gone~~, `code <b>`, snake_case_name, 2 * 3 * 4 and a
second line. See [the site](https://example.org/a_(b)?q=1&r=2 "title") or https://example.org/bare. Mail: <mailto:me@example.org>.

- one
- two
  - nested *deep*
    1. deeper
- [x] done
- [ ] open

3. three
4. four

   ```python
   # inside a list
   print("hi")
   ```

> quoted
> > twice

| left | right |
|:-----|------:|
| a \\| b | **1** |
| short |

---

```cpp
int main() { return 0; }  // <script>alert(1)</script>
```

Last line with \\*stars\\* and &lt;tag&gt;.
"""

LATEX = r"""The roots of $ax^2 + bx + c = 0$ are

$$
x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}
$$

so that for $a=1$ and \(b=0\) we have:
\[
\begin{aligned} x_1 &= \sqrt{-c} \\ x_2 &= -\sqrt{-c} \end{aligned}
\]

- in a list: $\sum_{i=1}^n i = \frac{n(n+1)}{2}$
- in the middle $$\int_0^1 x\,dx$$ of a line

It costs $5 and $6, or US$7 to $8, at most 9$ or 10$; `$x$` is code; a \$ is a dollar. $HOME/bin and $PATH stay.

Broken: $\frac{1}{$ and $\nosuchcommand{x}$. Bombs: $\def\a{\a\a}\a$ and \(\href{javascript:window.pwned=21}{x}\). Never closed: \(x + y.
"""

LONG = "".join(f"Paragraph {i} with some *words* in it and `code` too.\n\n" for i in range(150)) + (
    "```text\n" + "".join(f"line {i} of the long block\n" for i in range(400)) + "```\n\nThe end.")


class Mock:
    """The server's script: what the tests set and read."""

    def __init__(self, folder):
        self.files = {path.name: path.read_text(encoding="utf-8") for path in pathlib.Path(folder).iterdir()
                      if path.name in ("chat.html", "chat.csp", "katex.js", "katex.css")}
        self.lock = threading.Lock()
        self.reset()

    def reset(self):
        self.requests = []       # bodies of chat requests
        self.keys = []           # Authorization headers of those
        self.disconnects = 0     # streams the page gave up
        self.key = None          # the API key to ask for
        self.busy = 0            # chat requests to refuse with 503 before one is answered
        self.retry_after = "1"
        self.gone = False        # every connection is dropped
        self.may_end = threading.Event()  # what is answered calmly waits for it
        self.loading = None      # how much of the model is loaded, until it is
        self.fetched = []        # the page's own files that were asked for
        self.running = 0
        self.tokens = 0
        self.metrics_calls = 0


def answer(question, turns):
    """(pieces, seconds between them, how it ends) for a question."""
    word = question.split()[-1] if question.split() else ""
    if word == "markdown":
        return split(MARKDOWN, 7), 0.001, "stop"
    if word == "injection":
        return split(INJECTION, 5), 0.001, "stop"
    if word == "slow":
        return [f"word{i} " for i in range(400)], 0.05, "stop"
    if word == "long":
        return split(LONG, 40), 0.0005, "stop"
    if word == "limit":
        return ["cut", " off"], 0.001, "length"
    if word == "break":
        return ["half an", " answer"], 0.01, "break"
    if word == "fail":
        return ["some"], 0.01, "error"
    if word == "latex":
        return split(LATEX, 3), 0.002, "stop"
    if word == "calmly":
        return ["word "], 0.01, "stop"
    if word == "few":
        return ["one", " two", " three"], 0.02, "stop"
    if word == "think":
        return ["<think>", "hidden ", "plan</think>\n\n", "Visible **answer**."], 0.001, "stop"
    return split(f"Answer {turns} to: {question}", 2), 0.01, "stop"


def split(text, size):
    return [text[i:i + size] for i in range(0, len(text), size)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mock = None

    def log_message(self, *arguments):
        pass

    def reply(self, status, body, content_type="application/json", **headers):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def error(self, status, message, code=None, **headers):
        self.reply(status, {"error": {"message": message, "type": "error", "code": code}}, **headers)

    def refused(self):
        if self.mock.gone:
            self.close_connection = True
            return True
        if self.mock.key and self.headers.get("Authorization") != "Bearer " + self.mock.key:
            self.error(401, "no valid API key", "invalid_api_key")
            return True
        return False

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/":
            self.reply(200, self.mock.files["chat.html"], "text/html; charset=utf-8", Content_Security_Policy=self.mock.files["chat.csp"])
        elif self.refused():
            return
        elif path[1:] in self.mock.files:
            self.mock.fetched.append(path)
            self.reply(200, self.mock.files[path[1:]], "text/javascript" if path.endswith("js") else "text/css", Cache_Control="max-age=9" if query else "no-store")
        elif path == "/health":
            if self.mock.loading is None:
                self.reply(200, {"status": "ok"})
            else:
                self.reply(503, {"status": "loading", "progress": self.mock.loading}, Retry_After="1")
        elif self.mock.loading is not None and path != "/metrics":
            self.error(503, "the model is still loading: try again later", "loading", Retry_After="1")
        elif self.path == "/v1/models":
            self.reply(200, {"object": "list", "data": [{"id": "mock-1b", "object": "model", "max_model_len": 8192}]})
        elif self.path == "/props":
            self.reply(200, {"chat_sampling": {"top_k": 33, "min_p": 0.02}})
        elif self.path == "/metrics":
            self.mock.metrics_calls += 1
            self.reply(200, self.metrics(), "text/plain; version=0.0.4")
        else:
            self.error(404, "no such path: " + self.path)

    def metrics(self):
        labels = '{engine="0",model_name="mock {1b}"}'
        values = {"num_requests_running": self.mock.running, "num_requests_waiting": 3, "kv_cache_usage_perc": 0.42,
                  "prefix_cache_queries_total": 200, "prefix_cache_hits_total": 150, "generation_tokens_total": self.mock.tokens}
        return "".join(f"# HELP vllm:{n} x\n# TYPE vllm:{n} gauge\nvllm:{n}{labels} {v}\n" for n, v in values.items())

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/chat/completions":
            return self.error(404, "no such path")
        request = json.loads(body)
        self.mock.requests.append(request)
        self.mock.keys.append(self.headers.get("Authorization"))
        if self.refused():
            return None
        with self.mock.lock:
            if self.mock.busy > 0:
                self.mock.busy -= 1
                return self.error(503, "The queue is full.", Retry_After=self.mock.retry_after)
        if self.mock.loading is not None:
            return self.error(503, "the model is still loading: try again later", "loading", Retry_After="1")
        question = request["messages"][-1]["content"] or ""
        if question.endswith("overflow"):
            return self.error(400, "the prompt has 9000 tokens, the context is 8192", "context_length_exceeded")
        self.stream(request, question)
        return None

    def stream(self, request, question):
        pieces, pause, end = answer(question, sum(m["role"] == "user" for m in request["messages"]))
        if request.get("continue_final_message"):
            pieces, pause, end = [" and", " so", " on", "."], 0.01, "stop"
        if request.get("response_format"):
            pieces, pause, end = split('{"name": "*Ada*", "age": 36}', 4), 0.01, "stop"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.mock.running += 1
        try:
            if question.endswith("read") and request.get("return_progress"):
                for processed in (0, 512, 1024, *[2048] * 600):  # until the page gives it up
                    self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": None}],
                                "prompt_progress": {"total": 6001, "cache": 0, "processed": processed, "time_ms": 1}})
                    time.sleep(0.1)
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
            if request.get("tools"):
                self.calls()
                pieces, end = [], "tool_calls"
            for piece in pieces:
                self.event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
                self.mock.tokens += 1
                time.sleep(pause)
            if question.endswith("calmly"):
                self.mock.may_end.wait(60)
            if end == "break":
                time.sleep(0.5)  # a connection that is cut takes along what the browser has not read yet
                self.close_connection = True
                self.connection.close()
                return
            if end == "error":
                self.event({"error": {"message": "the step failed", "type": "server_error"}})
            else:
                self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": end}]})
                self.event({"choices": [], "usage": {"prompt_tokens": 120, "completion_tokens": len(pieces),
                                                     "prompt_tokens_details": {"cached_tokens": 96},
                                                     "completion_tokens_details": {"accepted_prediction_tokens": 7}}})
            self.chunk(b"data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.mock.disconnects += 1
            self.close_connection = True
        finally:
            self.mock.running -= 1

    def calls(self):
        deltas = [{"index": 0, "id": "call-1", "type": "function", "function": {"name": "weather", "arguments": ""}}]
        deltas += [{"index": 0, "function": {"arguments": part}} for part in ('{"city":', '"Rome"}')]
        deltas += [{"index": 1, "id": "call-2", "type": "function", "function": {"name": "time", "arguments": "{}"}}]
        for delta in deltas:
            self.event({"choices": [{"index": 0, "delta": {"tool_calls": [delta]}, "finish_reason": None}]})

    def event(self, data):
        # Characters are cut in the middle of their bytes now and then: the page must put them together again.
        raw = ("data: " + json.dumps(data, ensure_ascii=False) + "\n\n").encode()
        middle = len(raw) // 2
        self.chunk(raw[:middle])
        self.chunk(raw[middle:])

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


def start(folder):
    """A mock on a free port of this machine, with the page that the build left in `folder`: (mock, server, url)."""
    mock = Mock(folder)
    handler = type("MockHandler", (Handler,), {"mock": mock})
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return mock, server, f"http://127.0.0.1:{server.server_address[1]}/"
