#!/usr/bin/env python3
"""The server on the Metal device (the software one, in its fast mode): answers, and a kernel that faults under a request."""

import concurrent.futures
import pathlib
import tempfile
import unittest

import openai

import server as fixture
import tiny_model

QUESTION = "The capital of France is"  # a short one: every token is a second of computing
FAULT_AT = 5  # tokens into the life of the server


def serve(max_seqs, model, **env):
    # Sizes for which the engine's tests of the default model have the kernels compiled.
    return fixture.Server("--device", "metal", "--served-model-name", "test", "--max-model-len", 256, "--max-seqs", max_seqs,
                          "--max-step-tokens", 2, model=model, env={"SOFTMETAL_MODE": "fast", **env}, start_s=240)


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


def ask(client, tokens, **options):
    return client.completions.create(model="test", prompt=QUESTION, temperature=0, max_tokens=tokens, **options)


class MetalTest(unittest.TestCase):
    def test_answers_the_client(self):
        with serve(2, fixture.default_model()) as server:
            client = client_of(server)
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                plain = [pool.submit(ask, client, 2) for _ in range(2)]
                text = "".join(c.choices[0].text for c in ask(client, 2, stream=True) if c.choices)
                answers = [p.result().choices[0].text for p in plain]
            self.assertIn("Paris", text)
            self.assertEqual(answers, [text] * 2, "in a batch or not")
            drawn = client.completions.create(model="test", prompt="One, two, three,", max_tokens=2, logprobs=2, seed=1,
                                              temperature=0.7, top_p=0.9, extra_body={"top_k": 20, "min_p": 0.01, "ignore_eos": True})
            self.assertEqual(len(drawn.choices[0].logprobs.tokens), 2)

            def held(tokens=8):
                return ask(client, tokens, extra_body={"guided_choice": ["London", "Paris"]}).choices[0].text
            alone = held()
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                free, together = pool.submit(ask, client, 2), pool.submit(held)
                self.assertEqual(free.result().choices[0].text, text, "beside a row with a mask")
                self.assertEqual(together.result(), alone)
            self.assertIn(alone, ("London", "Paris"))

    def test_a_fault_fails_its_request_alone(self):
        # One request runs at a time: the fault hits the first, the others wait for their turn and get it.
        with tempfile.TemporaryDirectory() as folder, \
                serve(1, tiny_model.make(pathlib.Path(folder) / "tiny"), SOFTMETAL_FAULT=f"sample_commit:{FAULT_AT}") as server:
            client = client_of(server)
            stream = ask(client, 20, stream=True, extra_body={"ignore_eos": True})
            first = next(iter(stream))
            self.assertTrue(first.choices)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                others = [pool.submit(ask, client, 3) for _ in range(2)]
                pieces = 0
                with self.assertRaisesRegex(openai.APIError, "fault, as SOFTMETAL_FAULT asked for"):
                    for chunk in stream:
                        pieces += bool(chunk.choices)
                self.assertLess(pieces, FAULT_AT + 2)
                answers = [other.result().choices[0].text for other in others]
            self.assertEqual(server.get("/health")[0], 200)
            self.assertEqual(answers, [ask(client, 3).choices[0].text] * 2)


if __name__ == "__main__":
    fixture.main()
