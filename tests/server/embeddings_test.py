#!/usr/bin/env python3
"""Embeddings and reranking through the real OpenAI client and over plain HTTP; the vectors of a text alone and in a crowd."""

import concurrent.futures
import math
import tempfile
import unittest

import httpx
import openai

import server as fixture
import tiny_model

TEXTS = ["a", "a longer text, with several words in it", "a longer text, with other words in it" * 5, "é" * 60]


class EmbeddingsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = fixture.Server("--served-model-name", "test", "--threads", 1, "--embeddings", "--pooling", "mean",
                                    "--max-step-tokens", 64, model=tiny_model.make(cls.folder.name))
        cls.server.start()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def vectors(self, texts, **options):
        answer = self.client.embeddings.create(model="test", input=texts, **options)
        self.assertEqual([entry.index for entry in answer.data], list(range(len(answer.data))))
        return [list(entry.embedding) for entry in answer.data]

    def test_both_encodings(self):
        plain = self.vectors(TEXTS, encoding_format="float")
        packed = self.vectors(TEXTS)  # the client asks for base64 by itself
        self.assertEqual(len(plain), len(TEXTS))
        for a, b in zip(plain, packed):
            self.assertAlmostEqual(math.hypot(*a), 1, places=5)
            self.assertTrue(all(math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-9) for x, y in zip(a, b)))

    def test_dimensions(self):
        whole, front = self.vectors("a text")[0], self.vectors("a text", dimensions=8)[0]
        length = math.hypot(*whole[:8])
        self.assertEqual(len(front), 8)
        for a, b in zip(whole, front):
            self.assertAlmostEqual(a / length, b, places=5)

    def test_alone_and_in_a_crowd(self):
        texts = [text + str(i) for i in range(8) for text in TEXTS]
        alone = [self.vectors(text)[0] for text in texts]
        def chat(_):
            return self.client.chat.completions.create(model="test", messages=[{"role": "user", "content": "hi"}], max_tokens=24)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            beside = [pool.submit(chat, i) for i in range(4)]
            crowd = list(pool.map(lambda text: self.vectors(text)[0], texts))
            for answer in beside:
                answer.result()
        self.assertEqual(crowd, alone)
        self.assertEqual(self.vectors(texts), alone)

    def test_usage_and_errors(self):
        answer = self.client.embeddings.create(model="test", input=[[5, 6, 7], [8]])
        self.assertEqual(answer.usage.total_tokens, 4)
        for options, param in (({"input": []}, "input"), ({"input": "a", "dimensions": 10**6}, "dimensions"),
                               ({"input": "x" * 5000}, "input")):
            with self.assertRaises(openai.BadRequestError) as refused:
                self.client.embeddings.create(model="test", **options)
            self.assertEqual(refused.exception.param, param)

    def test_rerank(self):
        body = {"query": TEXTS[1], "documents": TEXTS, "top_n": 2}
        results = httpx.post(self.server.url + "/rerank", json=body).raise_for_status().json()["results"]
        self.assertEqual([result["index"] for result in results][0], 1)
        self.assertAlmostEqual(results[0]["relevance_score"], 1, places=5)
        self.assertEqual(results[0]["document"]["text"], TEXTS[1])
        self.assertEqual(len(results), 2)


if __name__ == "__main__":
    fixture.main()
