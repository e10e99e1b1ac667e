"""What one client can send to stall, starve, read or fill a server. Each case is a list of requests sent at once."""

import dataclasses
import json

CHAT, TEXT, TOKENIZE, DETOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"
REFUSED = {400, 403, 404, 405, 408, 413, 415, 431}
BUSY = {503}
SERVED = {200}
ANY = REFUSED | BUSY | SERVED


@dataclasses.dataclass
class Case:
    name: str
    path: str
    body: object  # JSON, or bytes
    allowed: set = dataclasses.field(default_factory=lambda: REFUSED)
    copies: int = 1
    leave_after: float = 0  # seconds; 0: waits for the answer
    method: str = "POST"
    headers: dict = dataclasses.field(default_factory=dict)
    read_rate: int = 0  # bytes a second; 0: as fast as it comes
    says: str = ""  # in the answer

    def data(self):
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    def head(self, length):
        """Request line and headers, before so many bytes of a body."""
        headers = {"Host": "localhost", "Content-Type": "application/json", "Connection": "close", **self.headers}
        if self.method != "GET":
            headers["Content-Length"] = length
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items() if value is not None)]
        return "".join(line + "\r\n" for line in [*lines, ""]).encode()

    def streams(self):
        """How many well-behaved streams would be as many."""
        body = self.body if isinstance(self.body, dict) else {}
        prompts = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
        return min(self.copies * prompts * max(body.get("n", 1), body.get("best_of", 1)), 63)


def user(text):
    return [{"role": "user", "content": text}]


def completion(**fields):
    return {"prompt": "Once", "max_tokens": 4, "temperature": 0, **fields}


def seen():
    """Those that did harm once."""
    kwargs = {f"key{i}": i for i in range(80_000)}
    yield Case("template variables, many", CHAT, {"messages": user("a"), "max_tokens": 2, "chat_template_kwargs": kwargs}, ANY)
    yield Case("template variables, abandoned", CHAT, {"messages": user("a"), "max_tokens": 2, "chat_template_kwargs": kwargs}, ANY,
               copies=4, leave_after=0.05)
    stops = ["a" * 1000 + str(i) for i in range(64)]
    yield Case("stops that all but match", TEXT, completion(prompt="a" * 100, stop=stops, n=8, max_tokens=200, ignore_eos=True), ANY)
    yield Case("stops of 39 KB", TEXT, completion(stop=["a" * 39_000] * 64, n=8), says="--limit stop-bytes")
    yield Case("a stop of 8 MB for each of 128 prompts", TEXT, completion(prompt=["a"] * 128, stop="x" * 8_000_000), copies=4)
    yield Case("prompt logprobs of many choices", TEXT,
               completion(prompt="a" * 1900, prompt_logprobs=20, logprobs=20, n=64, max_tokens=100), ANY)
    yield Case("letters of 16 MB", TEXT, completion(prompt="a" * 15_900_000), copies=4, says="bytes")
    yield Case("letters of 16 MB in a chat", CHAT, {"messages": user("a" * 15_900_000)}, copies=4, says="bytes")
    yield Case("no content type", TEXT, completion(), {415}, headers={"Content-Type": None})
    yield Case("a form's content type", TEXT, completion(), {415}, headers={"Content-Type": "text/plain"})
    yield Case("a foreign origin", TEXT, completion(), {403}, headers={"Origin": "https://evil.example"})
    yield Case("an origin that hides", TEXT, completion(), {403}, headers={"Origin": "null"})
    yield Case("a foreign page without origin", TEXT, completion(), {403}, headers={"Sec-Fetch-Site": "cross-site"})
    yield Case("a rebound name", "/v1/models", b"", {403}, method="GET", headers={"Host": "evil.example"})
    yield Case("a rebound name that posts", TEXT, completion(), {403}, headers={"Host": "evil.example", "Origin": "http://evil.example"})
    yield Case("priority", TEXT, completion(priority=-2_000_000_000), says="--priority-scheduling")
    yield Case("every seat", TEXT, completion(n=64, max_tokens=1500, ignore_eos=True), ANY, leave_after=1)
    yield Case("nothing allowed", TEXT, completion(allowed_token_ids=[70], bad_words=["C"], n=4, return_token_ids=True), SERVED)
    yield Case("digits of 16 MB to tokenize", TOKENIZE, {"prompt": "7" * 15_900_000}, copies=4, says="bytes")


def invented():
    yield Case("deep lists", TEXT, b'{"prompt":' + b"[" * 5_000_000, says="deeper")
    yield Case("deep objects", CHAT, b'{"messages":' + b'{"a":' * 2_000_000)
    yield Case("two million numbers and one", TEXT, b'{"prompt":[' + b"1," * 2_000_000 + b"1]}")
    yield Case("millions of keys", TEXT, b"{" + b",".join(b'"%d":1' % i for i in range(800_000)) + b"}", copies=4, says="keys")
    yield Case("a number of a million digits", TEXT, b'{"prompt":"a","max_tokens":' + b"9" * 1_000_000 + b"}")
    yield Case("escapes", TEXT, b'{"prompt":"' + b"\\u0061" * 2_600_000 + b'"}', says="bytes")
    yield Case("broken surrogates", TEXT, b'{"prompt":"' + b"\\ud800" * 1_000_000 + b'"}')
    yield Case("many prompts", TEXT, completion(prompt=["a"] * 257), says="--limit prompts")
    yield Case("many prompts that fit", TEXT, completion(prompt=["a" * 1500] * 128, max_tokens=1), ANY)
    yield Case("many prompts that do not fit", TEXT, completion(prompt=["a" * 60_000] * 256))
    yield Case("more choices than there may be", TEXT, completion(prompt=["a"] * 100, n=64), says="choices")
    yield Case("beams of many", TEXT, completion(use_beam_search=True, best_of=16, n=16, max_tokens=60), ANY)
    yield Case("best of many", TEXT, completion(best_of=64, n=1, max_tokens=200, logprobs=20), ANY, leave_after=1)
    yield Case("echo of every choice", TEXT, completion(prompt="a" * 1900, echo=True, logprobs=20, n=64, max_tokens=1), ANY)
    yield Case("ids of every choice", TEXT, completion(prompt="a" * 1900, return_token_ids=True, n=64, max_tokens=100), ANY)
    yield Case("bad words of every kind", TEXT, completion(bad_words=["y" * 1000] * 64, prompt=["a"] * 64), ANY)
    yield Case("biases of every token", TEXT, completion(logit_bias={str(i): 1 for i in range(200)}, n=64), ANY)
    yield Case("a token named many times", TEXT, b'{"prompt":"a","logit_bias":{' + b",".join(b'"%s1":1' % (b"0" * i) for i in range(1, 1500)) + b"}}")
    yield Case("allowed ids, many times each", TEXT, completion(allowed_token_ids=[5] * 100_000), ANY)
    yield Case("stop ids", TEXT, completion(stop_token_ids=[5] * 1025), ANY)
    yield Case("messages, many", CHAT, {"messages": user("a") * 90_000, "max_tokens": 2}, ANY)
    yield Case("parts, many", CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 30_000}], "max_tokens": 2}, ANY)
    yield Case("arguments that are JSON", CHAT, {"messages": [
        {"role": "assistant", "content": "a", "tool_calls": [{"function": {"arguments": "[" * 500_000}}] * 8}], "max_tokens": 2}, ANY)
    yield Case("a message to go on with", CHAT, {"messages": user("a ") + [{"role": "assistant", "content": " " * 8_000_000 + "b"}],
                                                 "continue_final_message": True, "add_generation_prompt": False}, ANY)
    yield Case("names of roles", CHAT, {"messages": [{"role": "r" * 4_000_000, "content": "a"}] * 3})
    yield Case("the end of a long text", TEXT, completion(prompt="ab" * 4_000_000, truncate_prompt_tokens=5), ANY, copies=2, leave_after=0.2)
    yield Case("spaces", TEXT, completion(prompt=" " * 10_000_000), ANY)
    yield Case("line ends", TEXT, completion(prompt="\n" * 10_000_000), ANY)
    yield Case("combining characters", TEXT, completion(prompt="a" + "\u0301" * 2_000_000), ANY)
    yield Case("special tokens", TEXT, completion(prompt="</s>" * 2_000_000), ANY)
    yield Case("tokens to a text", DETOKENIZE, {"tokens": [70] * 1_900_000}, ANY, copies=2)
    yield Case("tokens that are none", DETOKENIZE, {"tokens": [-1] * 100_000})
    yield Case("an answer nobody reads", TEXT, completion(prompt="a" * 1000, prompt_logprobs=20, max_tokens=1), ANY, copies=8, read_rate=500, leave_after=2)
    yield Case("a stream nobody reads", TEXT, completion(max_tokens=1900, stream=True, logprobs=20, ignore_eos=True), ANY, copies=8,
               read_rate=500, leave_after=2)
    yield Case("streams that are left", TEXT, completion(max_tokens=1900, stream=True, ignore_eos=True), ANY, copies=40, leave_after=0.1)
    yield Case("everything at once", TEXT, completion(max_tokens=1900, n=4, ignore_eos=True), ANY, copies=60, leave_after=1)
    yield Case("a body that is none", TEXT, b"\x00" * 1_000_000)
    yield Case("a body over the limit", TEXT, b" " * 17_000_000, {413})
    yield Case("paths", "/" + "a" * 8000, b"", {404}, method="GET", copies=50)
    yield Case("metrics, again and again", "/metrics", b"", SERVED, method="GET", copies=100)
    yield Case("the page, again and again", "/", b"", SERVED, method="GET", copies=100)
    yield Case("salts", TEXT, completion(cache_salt="s" * 100_000), says="--limit stop-bytes")


def formats():
    """Grammars that are short and large."""
    optional = {"type": "object", "properties": {f"{chr(97 + i % 26)}{i}": {"type": "string"} for i in range(300)}}
    patterns = {"allOf": [{"type": "string", "pattern": f"a.{{{i}}}b"} for i in range(5, 30)]}
    nested = {"type": "string"}
    for i in range(28):
        nested = {"anyOf": [{"type": "array", "items": nested}, {"type": "object", "properties": {"a": nested}}]} if i < 12 else {"not": nested}
    for name, body in {
        "a regex of many states": {"guided_regex": "(?:[ab]*a[ab]{60}c?)*"},
        "a regex of many counters": {"guided_regex": "(?:(?:a{1,999}){1,999}){1,999}"},
        "a regex of a megabyte": {"guided_regex": "a?" * 500_000},
        "keys in any order": {"guided_json": optional},
        "patterns that meet": {"guided_json": patterns},
        "a schema that doubles": {"guided_json": nested},
        "a long enum": {"guided_json": {"enum": [f"word{i}" for i in range(40_000)]}},
        "a grammar with many readings": {"grammar": 'root ::= root root root | root root | "a" | "b" | ""'},
        "a grammar without an end": {"grammar": 'root ::= "a" root'},
        "rules that call each other": {"grammar": "root ::= r0\n" + "\n".join(f'r{i} ::= r{(i * 7 + 1) % 3000} "x" | "y"' for i in range(3000))},
        "many tools": {"structural_tag": {"structures": [{"begin": f"<t{i}>", "schema": optional, "end": "</t>"} for i in range(100)], "triggers": ["<t"]}},
    }.items():
        yield Case(name, TEXT, completion(n=4, max_tokens=60, temperature=1, **body), ANY, copies=3, leave_after=4)
