#!/usr/bin/env python3
"""Ranks that die or stand still, at random times, under clients that stream: every request ends in the answer of one process, in an
error or with a closed connection within 5 s, and no process is left. INGOT_SOAK=1: 50 runs each way, in turns of ranks that share
layers (--tp) and of stages (--pp); of the suite's runs, one a way, half have stages."""

import http.client
import json
import os
import pathlib
import random
import re
import signal
import tempfile
import threading
import time
import unittest

import ranks
import server as fixture
import tiny_model

RUNS = 50 if fixture.SOAK else 1
MOST_S = 5.0 if fixture.SOAK else 30.0  # in the suite: that it ends; a busy machine takes 6 and more
KINDS = [{"prompt": f"Tale {i}: once", "max_tokens": tokens, "ignore_eos": True, **sampling}
         for i, sampling in enumerate(({"temperature": 0}, {"temperature": 0.9, "seed": 5})) for tokens in (30, 2500)]


def ask(port, body, stream, timeout=30):
    """(text, error, is_complete) of one request; a closed connection has no error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    text = ""
    try:
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": stream}), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if not stream or reply.status != 200:
            answer = json.loads(reply.read())
            return (answer["choices"][0]["text"], None, True) if reply.status == 200 else ("", answer["error"], False)
        while line := reply.readline():
            if line.startswith(b"data: [DONE]"):
                return text, None, True
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    return text, event["error"], False
                text += event["choices"][0]["text"]
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        pass
    finally:
        connection.close()
    return text, None, False


class Client(threading.Thread):
    """Asks one thing after another until something ends otherwise than by an answer."""

    def __init__(self, port, seed):
        super().__init__(daemon=True)
        self.port, self.random = port, random.Random(seed)
        self.answers, self.ended, self.error = [], None, None

    def run(self):
        while True:
            kind = self.random.randrange(len(KINDS))
            text, self.error, complete = ask(self.port, KINDS[kind], stream=self.random.random() < 0.75)
            self.answers.append((kind, text, complete))
            if not complete:
                self.ended = time.monotonic()
                return


class Prober(threading.Thread):
    """Asks after the server's health until nobody answers."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.ill = server, []

    def run(self):
        while True:
            try:
                status, body = self.server.get("/health", timeout=10)
            except OSError:
                return
            if status != 200:
                self.ill.append((status, body.decode()))
            time.sleep(0.02)


@unittest.skipIf(ranks.missing(), ranks.missing())
class FaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model.make(pathlib.Path(cls.folder.name) / "tiny", max_len=8192)
        with fixture.Server("--threads", 1, model=cls.model) as alone:
            alone_s = 600  # a busy machine takes more than half a minute
            cls.expected = [text for text, _, complete in (ask(alone.port, kind, False, alone_s) for kind in KINDS) if complete]
        assert len(cls.expected) == len(KINDS)
        cls.runs, cls.slowest, cls.told, cls.cut = {}, {}, 0, 0

    @classmethod
    def tearDownClass(cls):
        print(f"runs: {cls.runs}; slowest end, s: {cls.slowest}; {cls.told} clients were told, {cls.cut} cut off")
        cls.folder.cleanup()

    def strike(self, rank, number, seed, link, cut):
        chance = random.Random(seed)
        server = ranks.RankServer(model=self.model, env={"INGOT_LINK": link}, cut=cut)
        try:
            server.start()
            victim = server.ranks()[rank]
            everyone = [server.process.pid, *server.ranks().values()]
            clients = [Client(server.port, chance.random()) for _ in range(4)]
            prober = Prober(server)
            for thread in [*clients, prober]:
                thread.start()
            time.sleep(chance.uniform(0.05, 1.0))
            struck = time.monotonic()
            os.kill(victim, number)
            for client in clients:
                client.join(max(0.01, struck + MOST_S - time.monotonic()))
                self.assertIsNotNone(client.ended, f"a request goes on {MOST_S} s after the fault\n{server.log()[-2000:]}")
            prober.join(60)
            self.assertNotEqual(server.wait(2 * MOST_S), 0)
            self.assertEqual(ranks.left_of(everyone, MOST_S), [], server.log()[-2000:])
        finally:
            server.end_all()
        for client in clients:
            for kind, text, complete in client.answers:
                want = self.expected[kind]
                self.assertEqual(text, want if complete else want[:len(text)], f"kind {kind}")
        self.assertIn(f"rank {rank}", server.log())
        way = f"rank {rank} {signal.Signals(number).name} {link} {cut}"
        type(self).runs[way] = self.runs.get(way, 0) + 1
        slowest = max(client.ended for client in clients) - struck
        type(self).slowest[way] = max(self.slowest.get(way, 0), round(slowest, 2))
        told = sum(client.error is not None for client in clients)
        type(self).told += told
        type(self).cut += len(clients) - told
        return clients, prober, server

    def strikes(self, rank, number, seed, link="mpi", first="--tp"):
        cuts = [first, "--tp" if first == "--pp" else "--pp"]
        for run in range(RUNS):
            with self.subTest(run=run):
                yield self.strike(rank, number, f"{seed} {run}", link, cuts[run % 2])

    def test_a_rank_that_stands_still(self):
        for clients, prober, server in self.strikes(1, signal.SIGSTOP, "stop 1"):
            for client in clients:
                self.assertEqual((client.error or {}).get("code"), "rank_lost", server.log()[-2000:])
                self.assertIn("rank 1 on ", client.error["message"])
            self.assertEqual({status for status, _ in prober.ill}, {503})
            self.assertIn("rank 1 on ", prober.ill[0][1])
            self.assertRegex(server.log(), r"ingot: rank 1 on \S+ has not answered for 3 s; all ranks end")

    def test_a_rank_that_dies(self):
        for clients, prober, server in self.strikes(1, signal.SIGKILL, "kill 1"):
            if not any(client.error for client in clients):
                continue  # mpirun kills 2 s after the death: a busy machine may take as long
            self.assertTrue(all(client.error["code"] in ("rank_lost", "draining") for client in clients if client.error))
            self.assertRegex(server.log(), r"ingot: rank 1 on \S+ is gone; all ranks end")

    def test_a_rank_that_dies_on_another_machine(self):
        """Its connections are closed by that, which rank 0 notices at once."""
        for clients, prober, server in self.strikes(1, signal.SIGKILL, "kill 1 of tcp", "tcp", "--pp"):
            for client in clients:
                self.assertEqual((client.error or {}).get("code"), "rank_lost", server.log()[-2000:])
            self.assertEqual({status for status, _ in prober.ill}, {503})
            self.assertRegex(server.log(), r"ingot: rank 1 on \S+ is gone \(its connection is closed\); all ranks end")

    def test_a_rank_that_stands_still_on_another_machine(self):
        for clients, _, server in self.strikes(1, signal.SIGSTOP, "stop 1 of tcp", "tcp"):
            self.assertEqual({(client.error or {}).get("code") for client in clients}, {"rank_lost"}, server.log()[-2000:])
            self.assertEqual(len(re.findall(r"ingot: rank \d on \S+ .*; all ranks end", server.log())), 1, server.log()[-2000:])

    def test_rank_0_stands_still(self):
        """Another rank of its machine ends it: mpirun would wake it first."""
        for _, _, server in self.strikes(0, signal.SIGSTOP, "stop 0", first="--pp"):
            self.assertNotIn("ingot: draining", server.log())

    def test_rank_0_dies(self):
        for _ in self.strikes(0, signal.SIGKILL, "kill 0"):
            pass

    def test_rank_0_stands_still_on_another_machine(self):
        for _ in self.strikes(0, signal.SIGSTOP, "stop 0 of tcp", "tcp"):
            pass

    def test_rank_0_dies_on_another_machine(self):
        for _ in self.strikes(0, signal.SIGKILL, "kill 0 of tcp", "tcp", "--pp"):
            pass


@unittest.skipIf(ranks.missing(), ranks.missing())
class RestartTest(unittest.TestCase):
    """ingot serve --restart, which starts the ranks itself."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model.make(pathlib.Path(cls.folder.name) / "tiny", max_len=8192)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, times=3, **options):
        return ranks.Supervised("--restart", times, "--mpirun", " ".join(ranks.MPIRUN), "--threads", 1, "--tp", 2, "--drain-timeout", 120,
                                **options)

    def test_starts_again_and_passes_signals_on(self):
        server = self.serve(model=self.model, port=fixture.free_port())
        try:
            server.start()
            answer = ask(server.port, KINDS[0], False)
            os.kill(server.ranks()[1], signal.SIGKILL)
            self.assertTrue(server.logged("is started again in 1 s (1 of 3 times an hour)", MOST_S), server.log())
            end = time.monotonic() + server.start_s
            while server.log().count("ingot: serving ") < 2 and time.monotonic() < end:
                time.sleep(0.02)
            self.assertEqual(ask(server.port, KINDS[0], False), answer)
            everyone = ranks.descendants(server.process.pid)
            drained = []
            client = threading.Thread(target=lambda: drained.append(ask(server.port, {**KINDS[0], "max_tokens": 300}, True)))
            client.start()
            while server.metrics()["vllm:num_requests_running"] == 0 and client.is_alive():
                pass
            server.signal()
            self.assertEqual(server.wait(150), 0, server.log())
            client.join(60)
            self.assertEqual([complete for _, _, complete in drained], [True], server.log())
            self.assertEqual(ranks.left_of(everyone, MOST_S), [])
        finally:
            server.end_all()

    def test_gives_up(self):
        server = self.serve(times=1, model=pathlib.Path(self.folder.name) / "none")
        with self.assertRaises(AssertionError) as caught:
            server.start()
        self.assertIn("exit 1", str(caught.exception))
        self.assertIn("was started again 1 times within an hour", str(caught.exception))

    def test_leaves_nobody_when_it_is_killed(self):
        server = self.serve(model=self.model)
        try:
            server.start()
            everyone = ranks.descendants(server.process.pid)
            self.assertEqual(len(everyone), 3)
            server.signal(signal.SIGKILL)
            self.assertEqual(ranks.left_of(everyone, MOST_S), [])
        finally:
            server.end_all()


if __name__ == "__main__":
    fixture.main()
