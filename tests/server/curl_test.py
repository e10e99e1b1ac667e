#!/usr/bin/env python3
"""The server through curl: what HTTP itself allows, TLS, and what /metrics says to a real Prometheus parser."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from prometheus_client.parser import text_string_to_metric_families

import server as fixture
import tiny_model

COMPLETION = {"model": "test", "prompt": "One, two, three,", "max_tokens": 8, "temperature": 0}


def curl(*args, data=None):
    """(status, headers, body) that curl saw."""
    command = ["curl", "--silent", "--show-error", "--max-time", "30", "--dump-header", "-", *args]
    if data is not None:
        command += ["-H", "Content-Type: application/json", "--data-binary", "@-"]
    done = subprocess.run(command, input=data and (data if isinstance(data, bytes) else json.dumps(data).encode()),
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"curl: exit {done.returncode}: {done.stderr.decode()}")
    rest = done.stdout
    while True:  # an interim reply (100 Continue) comes before the real one
        head, _, rest = rest.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        if " 100 " not in lines[0] + " ":
            break
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(lines[0].split()[1]), {**headers, "version": lines[0].split()[0]}, rest


@unittest.skipUnless(shutil.which("curl"), "curl is not installed")
class CurlTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = tiny_model.make(pathlib.Path(cls.folder.name) / "tiny")
        cls.server = fixture.Server("--served-model-name", "test", "--threads", 1, model=model)
        cls.server.start()
        cls.url = cls.server.url
        cls.expected = json.loads(curl(cls.url + "/v1/completions", data=COMPLETION)[2])["choices"][0]["text"]

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def test_plain(self):
        status, headers, body = curl(self.url + "/v1/completions", data=COMPLETION)
        self.assertEqual(status, 200)
        self.assertTrue(headers["content-type"].startswith("application/json"))
        self.assertEqual(int(headers["content-length"]), len(body))
        self.assertEqual(json.loads(body)["choices"][0]["text"], self.expected)

    def test_stream(self):
        status, headers, body = curl("-N", self.url + "/v1/completions", data={**COMPLETION, "stream": True})
        self.assertEqual(status, 200)
        self.assertTrue(headers["content-type"].startswith("text/event-stream"))
        self.assertIn("no-cache", headers.get("cache-control", ""))
        events = [event for event in body.decode().split("\n\n") if event]
        self.assertTrue(all(event.startswith("data: ") for event in events))
        self.assertEqual(events[-1], "data: [DONE]")
        text = "".join(choice["text"] for event in events[:-1] for choice in json.loads(event[6:])["choices"])
        self.assertEqual(text, self.expected)

    def test_http_1_0(self):
        status, headers, body = curl("--http1.0", self.url + "/v1/completions", data=COMPLETION)
        self.assertEqual((status, json.loads(body)["choices"][0]["text"]), (200, self.expected))
        status, headers, body = curl("-N", "--http1.0", self.url + "/v1/completions", data={**COMPLETION, "stream": True})
        self.assertEqual(status, 200)
        self.assertNotIn("transfer-encoding", headers)  # HTTP/1.0 has no chunks: the end is the end of the connection
        self.assertTrue(body.rstrip().endswith(b"data: [DONE]"))

    def test_chunked_upload(self):
        status, _, body = curl("-H", "Transfer-Encoding: chunked", self.url + "/v1/completions", data=COMPLETION)
        self.assertEqual((status, json.loads(body)["choices"][0]["text"]), (200, self.expected))

    def test_expect_continue(self):
        status, _, body = curl("-H", "Expect: 100-continue", self.url + "/v1/completions", data=COMPLETION)
        self.assertEqual((status, json.loads(body)["choices"][0]["text"]), (200, self.expected))

    def test_head(self):
        status, headers, body = curl("--head", "-o", "/dev/null", self.url + "/health")
        self.assertEqual((status, body), (200, b""))
        length = len(curl(self.url + "/version")[2])
        status, headers, body = curl("--head", "-o", "/dev/null", self.url + "/version")
        self.assertEqual((status, int(headers["content-length"]), body), (200, length, b""))

    def test_keep_alive(self):
        done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{num_connects} ", self.url + "/health", "-o", "/dev/null",
                               self.url + "/version"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.split(), ["1", "0"])

    def test_wrong_method_and_path(self):
        status, headers, body = curl("-X", "DELETE", self.url + "/v1/completions")
        self.assertEqual(status, 405)
        self.assertIn("POST", headers["allow"])
        self.assertIn("message", json.loads(body)["error"])
        status, _, body = curl(self.url + "/v1/nothing")
        self.assertEqual(status, 404)
        self.assertIn("/v1/nothing", json.loads(body)["error"]["message"])

    def test_small_endpoints(self):
        self.assertEqual(curl(self.url + "/health")[0], 200)
        self.assertEqual(curl(self.url + "/ready")[0], 200)
        self.assertTrue(json.loads(curl(self.url + "/version")[2])["version"])
        status, headers, body = curl(self.url + "/")
        self.assertEqual(status, 200)
        self.assertTrue(headers["content-type"].startswith("text/html"))
        self.assertIn(b"<html", body.lower())

    def samples(self):
        """{(name, labels): value} of /metrics, through Prometheus' own parser."""
        status, headers, body = curl(self.url + "/metrics")
        self.assertEqual(status, 200)
        self.assertTrue(headers["content-type"].startswith("text/plain"))
        families = list(text_string_to_metric_families(body.decode()))
        names = [family.name for family in families]
        self.assertEqual(len(names), len(set(names)), "a family is listed twice")
        for family in families:
            self.assertTrue(family.documentation, family.name)
            self.assertNotEqual(family.type, "unknown", family.name)
        return families, {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
                          for family in families for sample in family.samples}

    def value(self, name):
        return sum(value for (found, _), value in self.samples()[1].items() if found == name)

    def test_metrics_agree_with_what_was_sent(self):
        names = ["vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total",
                 "vllm:time_to_first_token_seconds_count", "vllm:e2e_request_latency_seconds_count", "vllm:prefix_cache_queries_total"]
        before = {name: self.value(name) for name in names}
        prompt = generated = 0
        for index in range(5):
            body = json.loads(curl(self.url + "/v1/completions", data={**COMPLETION, "prompt": f"Number {index}", "ignore_eos": True})[2])
            prompt, generated = prompt + body["usage"]["prompt_tokens"], generated + body["usage"]["completion_tokens"]
        gained = {name: self.value(name) - before[name] for name in names}
        self.assertEqual(gained, {"vllm:prompt_tokens_total": prompt, "vllm:generation_tokens_total": generated,
                                  "vllm:request_success_total": 5, "vllm:time_to_first_token_seconds_count": 5,
                                  "vllm:e2e_request_latency_seconds_count": 5, "vllm:prefix_cache_queries_total": prompt})
        self.assertEqual(generated, 40)

    def test_metrics_prefix_cache(self):
        prompt = " ".join(f"word{index}" for index in range(100))
        curl(self.url + "/v1/completions", data={**COMPLETION, "prompt": prompt})
        before = self.value("vllm:prefix_cache_hits_total")
        usage = json.loads(curl(self.url + "/v1/completions", data={**COMPLETION, "prompt": prompt})[2])["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(self.value("vllm:prefix_cache_hits_total") - before, cached)
        self.assertGreaterEqual(cached, usage["prompt_tokens"] - 32)

    def test_metrics_names_and_buckets(self):
        families, _ = self.samples()
        names = {family.name: family.type for family in families}
        for name, kind in {"num_requests_running": "gauge", "num_requests_waiting": "gauge", "kv_cache_usage_perc": "gauge",
                           "prefix_cache_queries": "counter", "prefix_cache_hits": "counter", "num_preemptions": "counter",
                           "prompt_tokens": "counter", "generation_tokens": "counter", "iteration_tokens_total": "histogram",
                           "request_success": "counter", "time_to_first_token_seconds": "histogram",
                           "inter_token_latency_seconds": "histogram", "e2e_request_latency_seconds": "histogram",
                           "request_queue_time_seconds": "histogram", "request_prefill_time_seconds": "histogram",
                           "request_decode_time_seconds": "histogram", "cache_config_info": "gauge"}.items():
            self.assertEqual(names.get("vllm:" + name), kind, name)
        for family in families:
            if family.type == "histogram":
                series = {}
                for sample in family.samples:
                    labels = tuple(sorted((key, value) for key, value in sample.labels.items() if key != "le"))
                    series.setdefault((sample.name, labels), []).append(sample)
                for (name, labels), samples in series.items():
                    if name.endswith("_bucket"):
                        values = [sample.value for sample in samples]
                        self.assertEqual(values, sorted(values), name)
                        self.assertEqual(samples[-1].labels["le"], "+Inf")
                        self.assertEqual(values[-1], series[(family.name + "_count", labels)][0].value)


@unittest.skipUnless(shutil.which("curl") and shutil.which("openssl"), "curl or openssl is not installed")
class TlsTest(unittest.TestCase):
    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            key, cert = pathlib.Path(folder) / "key.pem", pathlib.Path(folder) / "cert.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                            "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
            model = tiny_model.make(pathlib.Path(folder) / "tiny")
            with fixture.Server("--served-model-name", "test", "--threads", 1, "--tls-cert", cert, "--tls-key", key, model=model,
                                tls=True) as server:
                for trust in (["-k"], ["--cacert", str(cert)]):
                    status, _, body = curl(*trust, server.url + "/v1/completions", data=COMPLETION)
                    self.assertEqual(status, 200)
                status, _, body = curl("-N", "-k", server.url + "/v1/completions", data={**COMPLETION, "stream": True})
                self.assertTrue(body.rstrip().endswith(b"data: [DONE]"))
                done = subprocess.run(["curl", "-s", f"http://127.0.0.1:{server.port}/health"], capture_output=True, check=False)
                self.assertNotEqual(done.stdout[:2], b"ok")  # plain HTTP to a TLS port gets no answer
                self.assertEqual(curl("-k", server.url + "/health")[0], 200)


if __name__ == "__main__":
    fixture.main()
