"""Requests that are wrong in every way that could be thought of, always the same ones: what malformed_test.py sends.

A case says which statuses are right: by default any 4xx. `may_close` marks the few where the connection's end is an answer,
because the sender never finished what it began.
"""

import dataclasses
import json
import random

ANY_4XX = range(400, 500)
CHAT = {"model": "test", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "temperature": 0}
COMPLETION = {"model": "test", "prompt": "Hello", "max_tokens": 2, "temperature": 0}
TOKENIZE = {"model": "test", "prompt": "Hello"}
DETOKENIZE = {"model": "test", "tokens": [72, 101]}
VALID = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION, "/tokenize": TOKENIZE, "/detokenize": DETOKENIZE}


@dataclasses.dataclass
class Case:
    name: str
    data: bytes
    allowed: object = ANY_4XX
    half_close: bool = False  # the sender's side is closed after the data
    may_close: bool = False
    wait_s: float = 60.0  # for an answer


def post(path, body, headers=""):
    """A well-formed request around `body`, which is sent as it is when it is bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
            .encode() + data)


# ---- the request line, the headers, the framing ----


def request_lines():
    versions = {400, 505}
    for name, line, allowed in [
        ("no words", b"", ANY_4XX), ("one word", b"GET", ANY_4XX), ("HTTP/0.9", b"GET /health", ANY_4XX),
        ("no target", b"GET HTTP/1.1", ANY_4XX), ("a fourth word", b"GET /health HTTP/1.1 x", ANY_4XX),
        ("two spaces", b"GET  /health HTTP/1.1", ANY_4XX), ("tab for a space", b"GET\t/health\tHTTP/1.1", ANY_4XX),
        ("space in front", b" GET /health HTTP/1.1", ANY_4XX), ("space at the end", b"GET /health HTTP/1.1 ", ANY_4XX),
        ("method with @", b"G@T /health HTTP/1.1", ANY_4XX), ("method with NUL", b"G\0T /health HTTP/1.1", ANY_4XX),
        ("method of UTF-8", "GÉT /health HTTP/1.1".encode(), ANY_4XX), ("long method", b"A" * 5000 + b" / HTTP/1.1", ANY_4XX),
        ("target without /", b"GET health HTTP/1.1", ANY_4XX), ("target *", b"GET * HTTP/1.1", ANY_4XX),
        ("target with a broken escape", b"GET /%zz HTTP/1.1", ANY_4XX), ("target with half an escape", b"GET /% HTTP/1.1", ANY_4XX),
        ("target with NUL", b"GET /he\0alth HTTP/1.1", ANY_4XX), ("target with %00", b"GET /health%00 HTTP/1.1", ANY_4XX),
        ("target with a space", b"GET /he alth HTTP/1.1", ANY_4XX), ("target with a control", b"GET /he\x01alth HTTP/1.1", ANY_4XX),
        ("target with a high byte", b"GET /he\xffalth HTTP/1.1", ANY_4XX), ("target with DEL", b"GET /he\x7falth HTTP/1.1", ANY_4XX),
        ("long target", b"GET /" + b"a" * 100_000 + b" HTTP/1.1", ANY_4XX),
        ("long query", b"GET /health?" + b"a=b&" * 20_000 + b" HTTP/1.1", ANY_4XX),
        ("dots to the root", b"GET /../../etc/passwd HTTP/1.1", ANY_4XX), ("escaped dots", b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1", ANY_4XX),
        ("unknown path", b"GET /v1/unknown HTTP/1.1", {404}), ("unknown method", b"BREW /health HTTP/1.1", ANY_4XX),
        ("TRACE", b"TRACE /health HTTP/1.1", ANY_4XX), ("CONNECT", b"CONNECT example.com:443 HTTP/1.1", ANY_4XX),
        ("PUT", b"PUT /v1/completions HTTP/1.1", ANY_4XX), ("GET where POST is meant", b"GET /v1/chat/completions HTTP/1.1", {405}),
        ("POST where GET is meant", b"POST /metrics HTTP/1.1\r\nContent-Length: 0", {405}),
        ("version 2.0", b"GET /health HTTP/2.0", versions), ("version 0.9", b"GET /health HTTP/0.9", versions),
        ("version 3", b"GET /health HTTP/3", versions), ("version 1", b"GET /health HTTP/1", versions),
        ("version 11", b"GET /health HTTP/11", versions), ("version 1.1.1", b"GET /health HTTP/1.1.1", versions),
        ("version in lower case", b"GET /health http/1.1", versions), ("version of letters", b"GET /health HTTP/a.b", versions),
        ("version of another protocol", b"GET /health RTSP/1.0", versions), ("version with NUL", b"GET /health HTTP/1.1\0", versions),
    ]:
        yield Case("request line: " + name, line + b"\r\nHost: t\r\n\r\n", allowed)
    yield Case("request line: HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", versions)
    yield Case("request line: TLS to a plain port", bytes.fromhex("16030100a5010000a10303") + bytes(range(154)), half_close=True)
    yield Case("request line: without end", b"GET /" + b"x" * 200_000)
    yield Case("request line: LF only", b"GET /health HTTP/1.1\nHost: t\n\n", half_close=True)
    yield Case("request line: CR only", b"GET /health HTTP/1.1\rHost: t\r\r", half_close=True)


def headers():
    for name, lines, allowed in [
        ("no Host", b"", ANY_4XX), ("two Hosts", b"Host: a\r\nHost: b\r\n", ANY_4XX), ("two equal Hosts", b"Host: a\r\nHost: a\r\n", ANY_4XX),
        ("Host with a space", b"Host: a b\r\n", ANY_4XX), ("Host with a path", b"Host: a/b\r\n", ANY_4XX),
        ("no colon", b"Host: t\r\nnonsense\r\n", ANY_4XX), ("empty name", b"Host: t\r\n: x\r\n", ANY_4XX),
        ("space before the colon", b"Host: t\r\nAccept : x\r\n", ANY_4XX), ("space in a name", b"Host: t\r\nMy Name: x\r\n", ANY_4XX),
        ("space in front", b" Host: t\r\n", ANY_4XX), ("folded line", b"Host: t\r\nAccept: x\r\n y\r\n", ANY_4XX),
        ("NUL in a name", b"Host: t\r\nA\0b: x\r\n", ANY_4XX), ("NUL in a value", b"Host: t\r\nA: x\0y\r\n", ANY_4XX),
        ("bare CR in a value", b"Host: t\r\nA: x\ry\r\n", ANY_4XX), ("bare LF in a value", b"Host: t\r\nA: x\ny\r\n", ANY_4XX),
        ("control in a value", b"Host: t\r\nA: x\x02y\r\n", ANY_4XX), ("DEL in a value", b"Host: t\r\nA: x\x7fy\r\n", ANY_4XX),
        ("high byte in a name", b"Host: t\r\nA\xe9: x\r\n", ANY_4XX), ("brackets in a name", b"Host: t\r\n(A): x\r\n", ANY_4XX),
        ("long value", b"Host: t\r\nA: " + b"x" * 100_000 + b"\r\n", ANY_4XX),
        ("long name", b"Host: t\r\n" + b"A" * 100_000 + b": x\r\n", ANY_4XX),
        ("very many", b"Host: t\r\n" + b"".join(b"A%d: x\r\n" % n for n in range(10_000)), ANY_4XX),
        ("many small", b"Host: t\r\n" + b"A:b\r\n" * 1000, ANY_4XX),
        ("one without end", b"Host: t\r\nA: " + b"x" * 1_000_000, ANY_4XX),
    ]:
        yield Case("header: " + name, b"GET /health HTTP/1.1\r\n" + lines + b"\r\n", allowed)
    for expectation in (b"nothing", b"200-ok", b""):
        yield Case(f"header: Expect {expectation.decode()!r}",
                   post("/v1/completions", b"{", "Expect: " + expectation.decode() + "\r\n"))
    for coding in ("gzip", "br", "nonsense"):
        yield Case(f"header: Content-Encoding {coding}", post("/v1/completions", b"\x1f\x8b\x08\0\0\0", f"Content-Encoding: {coding}\r\n"))


def framing():
    head = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
    body = json.dumps(COMPLETION).encode()
    coding = {400, 501}
    for name, lines in [
        ("two lengths", b"Content-Length: 5\r\nContent-Length: %d\r\n" % len(body)), ("two lengths in one", b"Content-Length: 5, 6\r\n"),
        ("length of letters", b"Content-Length: abc\r\n"), ("negative length", b"Content-Length: -1\r\n"),
        ("length with plus", b"Content-Length: +5\r\n"), ("length with a space", b"Content-Length: 5 5\r\n"),
        ("length in hex", b"Content-Length: 0x10\r\n"), ("length with an exponent", b"Content-Length: 1e3\r\n"),
        ("length with a point", b"Content-Length: 5.0\r\n"), ("empty length", b"Content-Length:\r\n"),
        ("length over 64 bits", b"Content-Length: 99999999999999999999999\r\n"),
        ("length of 2^63", b"Content-Length: 9223372036854775808\r\n"), ("length of 2^64-1", b"Content-Length: 18446744073709551615\r\n"),
        ("length of 1 GB", b"Content-Length: 1000000000\r\n"), ("length of many digits", b"Content-Length: " + b"9" * 5000 + b"\r\n"),
        ("length of other digits", "Content-Length: ５\r\n".encode()),
        ("length and chunks", b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(body)),
        ("chunks and length", b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"),
    ]:
        yield Case("framing: " + name, head + lines + b"\r\n" + body)
    for value in ("gzip", "identity", "xchunked", "chunked, chunked", "chunked, gzip", "gzip, chunked", "chunked;q=1", "chun ked", "",
                  ",", "\x0bchunked", "chunked\0"):
        yield Case(f"framing: Transfer-Encoding {value!r}", head + f"Transfer-Encoding: {value}\r\n\r\n".encode() + b"0\r\n\r\n", coding)
    yield Case("framing: two Transfer-Encodings", head + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", coding)
    yield Case("framing: chunks in HTTP/1.0", b"POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", coding)
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    for name, chunks in [
        ("size of letters", b"zz\r\n{}\r\n0\r\n\r\n"), ("negative size", b"-1\r\n{}\r\n"), ("size with plus", b"+2\r\n{}\r\n0\r\n\r\n"),
        ("size with 0x", b"0x2\r\n{}\r\n0\r\n\r\n"), ("empty size", b"\r\n{}\r\n0\r\n\r\n"), ("space before the size", b" 2\r\n{}\r\n0\r\n\r\n"),
        ("size over 64 bits", b"fffffffffffffffff\r\n{}\r\n"), ("size of 2^64-1", b"ffffffffffffffff\r\n{}\r\n"),
        ("size of 2^63", b"8000000000000000\r\n{}\r\n"), ("size of 1 TB", b"10000000000\r\n{}\r\n"),
        ("size with LF only", b"2\n{}\r\n0\r\n\r\n"), ("data longer than its size", b"2\r\n{}{}\r\n0\r\n\r\n"),
        ("no line end after the data", b"2\r\n{}0\r\n\r\n"), ("LF after the data", b"2\r\n{}\n0\r\n\r\n"),
        ("very long extension", b"2;" + b"x" * 100_000 + b"\r\n{}\r\n0\r\n\r\n"), ("NUL in an extension", b"2;a\0b\r\n{}\r\n0\r\n\r\n"),
        ("bad trailer", b"2\r\n{}\r\n0\r\nno colon\r\n\r\n"), ("trailer with a space", b"2\r\n{}\r\n0\r\nA : b\r\n\r\n"),
        ("very long trailer", b"2\r\n{}\r\n0\r\nA: " + b"x" * 100_000 + b"\r\n\r\n"), ("many zeros", b"0" * 100_000 + b"2\r\n{}\r\n0\r\n\r\n"),
        ("no body at all", b"0\r\n\r\n"), ("a body of spaces", b"4\r\n    \r\n0\r\n\r\n"),
    ]:
        yield Case("chunks: " + name, chunked + chunks)
    yield Case("chunks: more than the limit", chunked + (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 17)
    yield Case("framing: no length", head + b"\r\n")
    yield Case("framing: length 0", head + b"Content-Length: 0\r\n\r\n")
    yield Case("framing: length shorter than the body", head + b"Content-Length: 10\r\n\r\n" + body)


def unfinished():
    whole = post("/v1/completions", COMPLETION)
    start = whole.index(b"\r\n\r\n")
    for name, cut in [("in the method", 2), ("in the target", 12), ("before the first line's end", 30), ("in a header", start - 5),
                      ("before the blank line", start), ("within the blank line", start + 3), ("before the body", start + 4),
                      ("in the body", len(whole) - 10), ("before the last byte", len(whole) - 1)]:
        yield Case("half-closed: " + name, whole[:cut], half_close=True, may_close=True)
    chunked = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    for name, data in [("before the first chunk", b""), ("in a chunk's size", b"1"), ("in a chunk", b"10\r\n{"),
                       ("before the last chunk", b"2\r\n{}\r\n"), ("in the trailer", b"2\r\n{}\r\n0\r\nA: b\r\n")]:
        yield Case("half-closed: " + name, chunked + data, half_close=True, may_close=True)


# ---- bodies ----


def is_json(data):
    """Whether it is JSON as the standard has it."""

    def refuse(word):
        raise ValueError(word)

    try:
        json.loads(data.decode(), parse_constant=refuse)
    except ValueError:
        return False
    return True


def broken_json(chance, count):
    """Valid bodies with random damage, as long as the result is no JSON any more."""
    for path, body in VALID.items():
        text = json.dumps(body).encode()
        made = 0
        while made < count:
            data = bytearray(text)
            kind = chance.choice(["cut", "drop", "insert", "replace", "repeat"])
            at = chance.randrange(len(data))
            if kind == "cut":
                del data[at:]
            elif kind == "drop":
                del data[at:at + chance.randint(1, 4)]
            elif kind == "insert":
                data[at:at] = bytes(chance.choice(b'{}[]",:\\\0\x01\xff0-+.eEtfn/*\'') for _ in range(chance.randint(1, 4)))
            elif kind == "replace":
                data[at] = chance.randrange(256)
            else:
                end = min(len(data), at + chance.randint(1, 20))
                data[at:at] = data[at:end]
            if not is_json(bytes(data)):
                made += 1
                yield Case(f"broken JSON {made} for {path} ({kind} at {at})", post(path, bytes(data)))


def not_objects():
    for path in VALID:
        for data in (b"", b" ", b"null", b"true", b"1", b'"x"', b"[]", b"[{}]", b"{}", b"{} {}", b"{},", b"nul", b"\xff\xfe{}",
                     b"{'model': 'test'}", b"{model: 1}", b"{/* */}", b"NaN", b"\0", b'{"a":1,}', b"{" * 1000, b'{"a":' * 1000):
            yield Case(f"body {data[:12]!r} for {path}", post(path, data))


def numbers_and_depth():
    for path, body in list(VALID.items())[:2]:
        field = "messages" if "messages" in body else "prompt"
        rest = json.dumps({key: value for key, value in body.items() if key != field})[:-1].encode()
        for depth in (200, 5_000, 1_000_000):
            for name, opening, closing in [("lists", b"[", b"]"), ("objects", b'{"a":', b"}")]:
                inner = opening * depth + (b"1" if name == "objects" else b"") + closing * depth
                yield Case(f"{depth} nested {name} as {field} for {path}", post(path, rest + f',"{field}":'.encode() + inner + b"}"))
                yield Case(f"{depth} nested {name} as the body for {path}", post(path, inner))
                yield Case(f"{depth} nested {name} not closed for {path}", post(path, opening * depth))
        text = json.dumps(body)[:-1]
        for number in ("1e999", "-1e999", "1" * 400, "-" + "1" * 400, "99999999999999999999", "-99999999999999999999", "1e308",
                       "0." + "0" * 5000 + "1e9999", "01", "+1", ".5", "1.", "1e", "0x10", "--1", "1_000", "Infinity", "-Infinity", "NaN"):
            for name in ("n", "top_k", "seed", "priority"):
                yield Case(f"{name}: {number[:24]} for {path}", post(path, f'{text},"{name}":{number}}}'.encode()))
        for name, number in [("max_tokens", "-1"), ("max_tokens", "1e308"), ("max_tokens", "99999999999999999999"), ("n", "1000000"),
                             ("n", "2147483648"), ("n", "4294967297"), ("best_of", "1000000000"), ("temperature", "1e308"),
                             ("temperature", "-0.0001"), ("temperature", "1e999"), ("top_p", "1e308"), ("min_p", "-1e308"),
                             ("presence_penalty", "1e308"), ("frequency_penalty", "-1e308"), ("repetition_penalty", "1e308"),
                             ("repetition_penalty", "0"), ("repetition_penalty", "-1"), ("min_tokens", "2147483648"), ("top_k", "-2"),
                             ("stop_token_ids", "[2147483648]"), ("stop_token_ids", "[-1]"), ("allowed_token_ids", "[4294967296]"),
                             ("logit_bias", '{"4294967296": 1}'), ("logit_bias", '{"1": 1e308}'), ("logit_bias", '{"-1": 1}'),
                             ("seed", "18446744073709551616"), ("seed", "1.5")]:
            yield Case(f"{name}: {number} for {path}", post(path, f'{text},"{name}":{number}}}'.encode()))


def bad_text():
    """Bytes that are no UTF-8, in every place where text may stand."""
    bad = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xe2\x82", b"\xf5\x80\x80\x80", b"\x80", b"\xf0\x9f\x98", b"\xfe\xff"]
    for bytes_ in bad:
        for path, text in [("/v1/completions", b'{"model":"test","prompt":"a%sb","max_tokens":1}'),
                           ("/v1/completions", b'{"model":"t%st","prompt":"a","max_tokens":1}'),
                           ("/v1/completions", b'{"model":"test","prompt":"a","max_tokens":1,"us%ser":"x"}'),
                           ("/v1/completions", b'{"model":"test","prompt":"a","max_tokens":1,"stop":"%s"}'),
                           ("/v1/chat/completions", b'{"model":"test","messages":[{"role":"user","content":"%s"}],"max_tokens":1}'),
                           ("/v1/chat/completions", b'{"model":"test","messages":[{"role":"us%ser","content":"x"}],"max_tokens":1}'),
                           ("/tokenize", b'{"model":"test","prompt":"%s"}')]:
            yield Case(f"bytes {bytes_.hex()} in {text[:50].decode()} of {path}", post(path, text.replace(b"%s", bytes_)))
    for escape in (r"\ud800", r"\udc00x", r"\ud800\u0041", r"\x41", r"\u12", r"\u{41}", r"\U00000041", "\\"):
        yield Case(f"escape {escape} in a prompt", post("/v1/completions", f'{{"model":"test","prompt":"{escape}","max_tokens":1}}'.encode()))
    for control in (0, 1, 10, 31):
        yield Case(f"control {control} in a string", post("/v1/completions", b'{"model":"test","prompt":"' + bytes([control]) + b'","max_tokens":1}'))


# ---- parameters ----

INTEGER, NUMBER, FLAG = ["1", 1.5, True, [1], {"a": 1}], ["1", True, [1], {"a": 1}], ["true", 1, [True], {"a": 1}]
SAMPLING = {
    "max_tokens": [*INTEGER, 0, -5], "n": [*INTEGER, 0, -1], "seed": ["x", 1.5, True, [1], {}], "temperature": [*NUMBER, -1],
    "top_p": [*NUMBER, -0.5, 1.5, 0], "top_k": [*INTEGER, -7], "min_p": [*NUMBER, -1, 2], "presence_penalty": [*NUMBER, 3, -3],
    "frequency_penalty": [*NUMBER, 3, -3], "repetition_penalty": [*NUMBER, 0, -1], "min_tokens": [*INTEGER, -1, 1000],
    "stop": [1, True, {"a": 1}, [1], [None], ["a", 1], [["a"]]], "stop_token_ids": [1, "1", [1.5], ["1"], [True], [-1], [10**9], {"a": 1}],
    "bad_words": [1, [1], [["a"]], {"a": 1}], "allowed_token_ids": [1, "1", [], [-1], [10**9], ["1"], [1.5], {"a": 1}],
    "logit_bias": [1, "1", [1], {"x": 1}, {"1": "1"}, {"1": [1]}, {"-1": 1}, {"1": 101}, {"1": -101}, {"1.5": 1}, {"": 1}, {"1": None}],
    "ignore_eos": FLAG, "include_stop_str_in_output": FLAG, "skip_special_tokens": FLAG, "stream": FLAG,
    "stream_options": ["x", 1, [1], {"include_usage": True}], "priority": ["x", 1.5, True, [1], {}], "user": [1, [1], {"a": 1}],
    "metadata": [1, "x", [1]], "store": ["x", 1, [1]], "model": [1, True, ["test"], {"a": 1}], "suffix": ["x", 1],
    "unknown_parameter": [1, "x", {}], "Temperature": [1], "max_token": [1], "": [1],
}
CHAT_ONLY = {
    "messages": [None, 1, "x", {}, [], [1], ["x"], [None], [[]], [{}], [{"role": "user"}], [{"content": "x"}], [{"role": 1, "content": "x"}],
                 [{"role": "user", "content": 1}], [{"role": "user", "content": True}], [{"role": "user", "content": {}}],
                 [{"role": "user", "content": [1]}], [{"role": "user", "content": [{}]}], [{"role": "user", "content": [{"type": "text"}]}],
                 [{"role": "user", "content": [{"type": "text", "text": 1}]}], [{"role": "user", "content": None}],
                 [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}],
                 [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}],
                 [{"role": "user", "content": [{"type": "nonsense"}]}], [{"role": "", "content": "x"}]],
    "max_completion_tokens": [*INTEGER, 0, -5], "logprobs": FLAG, "top_logprobs": [*INTEGER, -1, 10**6, 3],
    "tools": [1, "x", {"a": 1}, [1], [{"type": "function"}], [{"type": "function", "function": {"name": "a b"}}]], "tool_choice": [1, "required", {"type": "function"}],
    "functions": [[{"name": "f"}], 1], "function_call": [{"name": "f"}, "f"],
    "response_format": [1, "text", [], {"type": "json_object", "x": 1}, {"type": "json_schema", "json_schema": {}}, {"type": "xml"},
                        {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}, {"type": "json_schema", "json_schema": {"schema": False}}],
    "structured_outputs": [1, [], {"regex": "("}, {"json": "{"}, {"grammar": "root ::="}, {"choice": ["a"], "regex": "a"}, {"structural_tag": "{}"}],
    "guided_json": [1, [], "x", {"$ref": "#/nowhere"}], "guided_regex": [1, "[", "a{2,1}"], "guided_choice": ["a", [1]], "grammar": [1, "x"],
    "modalities": [["audio"], "text", 1], "audio": [{"voice": "x"}],
}
COMPLETION_ONLY = {
    "prompt": [None, 1, True, {}, [], [[]], [None], [True], [1.5], [-1], [10**9], ["a", 1], [1, "a"], [[1], "a", 2], [["a"]], [[1.5]], [[[1]]]],
    "logprobs": ["1", 1.5, [1], {"a": 1}, -1, 10**6], "echo": FLAG, "best_of": [*INTEGER, 0, -1], "use_beam_search": FLAG,
    "prompt_logprobs": ["1", 1.5, [1], {"a": 1}, -5, 10**6], "length_penalty": ["1", True, [1], 2.0],
}


def parameters():
    for path, table in [("/v1/chat/completions", {**SAMPLING, **CHAT_ONLY}), ("/v1/completions", {**SAMPLING, **COMPLETION_ONLY})]:
        for name, values in table.items():
            for value in values:
                yield Case(f"{name} = {json.dumps(value)[:60]} for {path}", post(path, {**VALID[path], name: value}))
    for options in ({"n": 2, "best_of": 1}, {"min_tokens": 5, "max_tokens": 2}, {"prompt": "x " * 50_000}, {"prompt": [5] * 60_000},
                    {"prompt": ["x"] * 100_000}, {"stop": ["x"] * 100_000}, {"prompt": [[5] * 60_000, "x"]}, {"use_beam_search": True, "temperature": 1}):
        yield Case(f"{json.dumps(options)[:60]} together", post("/v1/completions", {**COMPLETION, **options}))
    yield Case("unknown model, chat", post("/v1/chat/completions", {**CHAT, "model": "nothing"}), {404})
    yield Case("unknown model, completions", post("/v1/completions", {**COMPLETION, "model": "nothing"}), {404})
    yield Case("unknown model by name", b"GET /v1/models/nothing HTTP/1.1\r\nHost: t\r\n\r\n", {404})
    for body in ({"model": "test"}, {"model": "test", "prompt": 1}, {"model": "test", "prompt": ["a"]}, {"model": "test", "messages": 1}):
        yield Case(f"{body} for /tokenize", post("/tokenize", body))
    for tokens in (None, 1, "x", [-1], [10**9], [1.5], ["1"], [True], [[1]], {}):
        yield Case(f"tokens = {tokens!r} for /detokenize", post("/detokenize", {"model": "test", "tokens": tokens}))
    yield Case("a body of 20 MB", post("/v1/completions", b'{"prompt":"' + b"x" * 20_000_000 + b'"}'), {413})
    yield Case("a body of 15 MB for a short context", post("/v1/completions", {**COMPLETION, "prompt": "x" * 15_000_000}))


def cases():
    """All of them, in the order they are sent."""
    chance = random.Random(20240229)
    for group in (request_lines(), headers(), framing(), unfinished(), broken_json(chance, 40), not_objects(), numbers_and_depth(),
                  bad_text(), parameters()):
        yield from group


def mutants(count):
    """A valid request with random damage to its head. Some stay valid, so an answer of any sort is right, but one must come."""
    chance = random.Random(77)
    whole = post("/v1/completions", COMPLETION)
    end = whole.index(b"\r\n\r\n") + 4
    for number in range(count):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(end)
            kind = chance.randrange(4)
            if kind == 0:
                data[at] = chance.randrange(256)
            elif kind == 1:
                del data[at:at + chance.randint(1, 8)]
            elif kind == 2:
                data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 8)))
            else:
                other = chance.randrange(end)
                data[at:at] = data[other:other + chance.randint(1, 40)]
        yield Case(f"mutant {number}", bytes(data), range(200, 600), half_close=True, may_close=True)
