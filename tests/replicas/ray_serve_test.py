#!/usr/bin/env python3
"""packaging/ray_serve on a Ray cluster of this machine: replicas of `ingot serve` with a tiny model, through the OpenAI client."""

import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging" / "ray_serve"
sys.path[:0] = [str(PACKAGING), str(ROOT / "tests" / "server")]
# Replicas find the application by PYTHONPATH; Ray keeps its token in HOME, and sends nothing anywhere.
HOME = tempfile.mkdtemp(prefix="ingot-ray-", dir="/tmp")  # short: sockets lie in it
os.environ.update(HOME=HOME, PYTHONPATH=str(PACKAGING), RAY_USAGE_STATS_ENABLED="0", RAY_TMPDIR=HOME, RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
                  RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S="1",
                  RAY_raylet_start_wait_time_s="300", RAY_worker_register_timeout_seconds="300", RAY_agent_register_timeout_ms="300000")  # a machine may be busy

import openai  # noqa: E402
import ray  # noqa: E402
import yaml  # noqa: E402
from ray import serve  # noqa: E402
from ray.serve.schema import ServeDeploySchema  # noqa: E402

import ingot_app  # noqa: E402
import server as fixture  # noqa: E402
import tiny_model  # noqa: E402

WAIT_S = 120
LONG = 8000  # tokens: seconds


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stat(pid):
    """The fields of /proc/PID/stat behind the name: state, parent, ..., at 19 when it started."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def processes(marker):
    """Of the programs (no shells) whose command line has the marker."""
    found = set()
    for folder in pathlib.Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if marker.encode() in words and words[0].endswith(b"/ingot"):
                found.add(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


class RayServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(shutil.rmtree, HOME, ignore_errors=True)
        cls.model = tiny_model.make(pathlib.Path(HOME) / "tiny", max_len=16384)
        ray.init(address="local", num_cpus=4, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False, _node_ip_address="127.0.0.1")
        cls.addClassCleanup(ray.shutdown)
        cls.port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": cls.port})
        cls.addClassCleanup(serve.shutdown)
        settings = cls.sample()["applications"][0]["args"]
        settings |= {"binary": str(fixture.binary().resolve()), "model": str(cls.model), "cpus": 0.5, "min_replicas": 1, "max_replicas": 2, "target_requests": 1,
                     "drain_s": 5, "check_s": 1, "upscale_s": 1, "options": [*settings["options"], "--max-model-len", "16384", "--speculate", "off"]}
        serve.run(ingot_app.build(ingot_app.Settings(**settings)))
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.port}/v1", api_key="none", max_retries=0, timeout=WAIT_S)

    @staticmethod
    def sample():
        return yaml.safe_load((PACKAGING / "serve.yaml").read_text())

    def servers(self):
        return processes(str(self.model))

    def wait_for(self, what, condition):
        end = time.monotonic() + WAIT_S
        while not (found := condition()):
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.1)
        return found

    def ask(self, prompt="Why?", tokens=16, session=None, **more):
        """(text, replica, usage)"""
        headers = {"X-Session-ID": session} if session else {}
        raw = self.client.completions.with_raw_response.create(model="ingot", prompt=prompt, max_tokens=tokens, temperature=0, extra_headers=headers,
                                                               extra_body={"ignore_eos": True}, **more)
        answer = raw.parse()
        return answer.choices[0].text, raw.headers["X-Replica"], answer.usage

    def stream(self, session, tokens, begun=None):
        """The whole text of a stream, or the error it ended with."""
        text = ""
        try:
            chunks = self.client.completions.create(model="ingot", prompt="Once", max_tokens=tokens, temperature=0, stream=True,
                                                    extra_headers={"X-Session-ID": session}, extra_body={"ignore_eos": True})
            for chunk in chunks:
                text += chunk.choices[0].text
                if begun:
                    begun.set()
                if chunk.choices[0].finish_reason:
                    return text, None
            return text, "the stream ended early"
        except Exception as error:  # the client's, or its transport's
            return text, error

    def sessions(self):
        """A session of each replica."""
        found = {}
        for number in range(WAIT_S * 10):
            session = f"session {number}"
            try:
                found.setdefault(self.ask(tokens=1, session=session)[1], session)
            except openai.APIError:
                time.sleep(0.1)
            if len(found) == 2:
                return found
        self.fail(f"one replica has all sessions: {found}")

    def test_0_the_sample_is_what_ray_serve_takes(self):
        config = ServeDeploySchema.model_validate(self.sample())
        self.assertEqual(config.applications[0].import_path, "ingot_app:build")
        settings = ingot_app.Settings(**config.applications[0].args)
        self.assertEqual((settings.min_replicas, settings.max_replicas), (2, 4))
        with self.assertRaises(ValueError):
            ingot_app.Settings(modell="x")

    def test_1_load_starts_a_second_replica(self):
        self.assertEqual(len(self.servers()), 1)
        over = threading.Event()

        def load(number):
            while not over.is_set():
                self.stream(f"load {number}", 2000)

        clients = [threading.Thread(target=load, args=(number,)) for number in range(6)]
        for client in clients:
            client.start()
        try:
            self.wait_for("a second replica", lambda: len(self.servers()) == 2)
        finally:
            over.set()
            for client in clients:
                client.join()
        self.assertEqual(len(self.sessions()), 2)

    def test_2_answers_whole_and_streamed(self):
        self.assertEqual(self.client.models.list().data[0].id, "ingot")
        with self.assertRaises(openai.BadRequestError) as error:
            self.client.completions.create(model="ingot", prompt="x", temperature=-1)
        self.assertEqual(error.exception.body["param"], "temperature")
        for session in self.sessions().values():
            text, _, usage = self.ask("Once", 300, session)
            self.assertEqual(usage.completion_tokens, 300)
            self.assertEqual(self.stream(session, 300), (text, None))

    def test_3_a_session_stays_where_its_prefix_is(self):
        for session in self.sessions().values():
            prompt, replicas = f"{session}: " + "a rule of this conversation. " * 10, set()
            for turn in range(4):
                text, replica, usage = self.ask(prompt, 32, session)
                replicas.add(replica)
                if turn > 0:
                    self.assertGreater(usage.prompt_tokens_details.cached_tokens, before - 16, "all whole blocks of the turn before")
                before, prompt = usage.prompt_tokens, prompt + f" Turn {turn}. " * 5
            self.assertEqual(len(replicas), 1)

    def test_4_a_stream_passes_as_it_is_written_and_a_client_may_leave(self):
        session = "leaver"
        chunks = self.client.completions.create(model="ingot", prompt="Long", max_tokens=LONG, temperature=0, stream=True,
                                                extra_headers={"X-Session-ID": session}, extra_body={"ignore_eos": True})
        for _ in range(3):
            next(chunks)
        chunks.close()
        self.wait_for("the request is cancelled", lambda: 'finished_reason="abort"} 1' in self.metrics(session))

    def test_5_a_killed_server_is_replaced_and_only_its_requests_fail(self):
        self.kill_one(lambda server: server)

    def test_6_a_killed_replica_takes_its_server_with_it(self):
        self.kill_one(lambda server: int(stat(int(stat(server)[1]))[1]))  # server, shell, replica

    def metrics(self, session):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/metrics", headers={"X-Session-ID": session})
        with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
            return reply.read().decode()

    def start_time(self, session):
        return float(re.search(r"^process_start_time_seconds (\S+)$", self.metrics(session), re.M).group(1))

    def answers_elsewhere(self, session, dead):
        try:
            return self.ask("Next", 1, session)[1] != dead
        except openai.APIError:  # its death was not known yet
            self.failures += 1
            return False

    def kill_one(self, victim):
        """Streams on two replicas; the server of one is killed, or what victim() makes of it."""
        expected, sessions = self.ask("Once", LONG)[0], self.sessions()
        results, begun, before = {}, {replica: threading.Event() for replica in sessions}, self.servers()

        def read(replica):
            results[replica] = self.stream(sessions[replica], LONG, begun[replica])

        streams = {replica: threading.Thread(target=read, args=(replica,)) for replica in sessions}
        dying, other = sorted(sessions)
        # Servers and sessions, both in the order in which the servers started.
        started = sorted(sessions, key=lambda replica: self.start_time(sessions[replica]))
        server = sorted(before, key=lambda pid: int(stat(pid)[19]))[started.index(dying)]
        target = victim(server)
        for replica in (other, dying):
            streams[replica].start()
            self.assertTrue(begun[replica].wait(WAIT_S))
        os.kill(target, signal.SIGKILL)
        self.failures = 0
        self.wait_for("requests for the dead replica go to another", lambda: self.answers_elsewhere(sessions[dying], dying))
        self.assertLess(self.failures, 10, "a replica without a server goes at once, and not when checks have failed")
        for thread in streams.values():
            thread.join(WAIT_S)
        self.assertIsNotNone(results[dying][1], "its stream cannot have gone on")
        self.assertTrue(expected.startswith(results[dying][0]))
        self.assertEqual(results[other], (expected, None))
        self.wait_for("a replica in place of the one that died", lambda: len(self.servers() - before) == 1 and len(self.servers()) == 2)
        self.assertNotIn(server, self.servers())
        again = self.sessions()
        self.assertIn(other, again)
        self.assertNotIn(dying, again)
        for session in again.values():
            self.assertTrue(expected.startswith(self.ask("Once", 300, session)[0].rstrip("\ufffd")))


if __name__ == "__main__":
    fixture.main()
