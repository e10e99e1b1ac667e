"""A page of another origin, and one whose name was pointed at the server: neither can use it."""

import http.server
import pathlib
import tempfile
import threading
import unittest

import browser
import server as fixture
import tiny_model

POSTS = """
const [url, done] = arguments;
const body = JSON.stringify({prompt: 'a', max_tokens: 1});
const ways = {
  text: () => fetch(url, {method: 'POST', mode: 'no-cors', body}),
  blob: () => fetch(url, {method: 'POST', mode: 'no-cors', body: new Blob([body])}),
  bytes: () => fetch(url, {method: 'POST', mode: 'no-cors', body: new TextEncoder().encode(body)}),
  json: () => fetch(url, {method: 'POST', headers: {'Content-Type': 'application/json'}, body}),
  beacon: async () => navigator.sendBeacon(url, new Blob([body], {type: 'text/plain'})),
  beaconOfBytes: async () => navigator.sendBeacon(url, new TextEncoder().encode(body)),
};
const outcomes = {};
(async () => {
  for (const [name, way] of Object.entries(ways)) {
    try {
      const reply = await way();
      outcomes[name] = reply.status === undefined ? 'sent' : reply.status;
    } catch (error) {
      outcomes[name] = 'refused';
    }
  }
  setTimeout(() => done(outcomes), 300);
})();
"""
READ = """
const [url, done] = arguments;
fetch(url).then((reply) => reply.text().then((text) => done([reply.status, text])), (error) => done([0, String(error)]));
"""


class Blank(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>evil</title>")

    def log_message(self, *_):
        pass


class WallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = fixture.Server("--threads", 1, model=tiny_model.make(pathlib.Path(cls.folder.name) / "tiny"))
        cls.server.start()
        cls.evil = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
        threading.Thread(target=cls.evil.serve_forever, daemon=True).start()
        cls.page = browser.shared()

    @classmethod
    def tearDownClass(cls):
        cls.evil.shutdown()
        cls.server.stop()
        cls.folder.cleanup()

    def served(self):
        """Generations that were begun."""
        return self.server.wait_idle()["vllm:generation_tokens_total"]

    def ask(self, script, url):
        return self.page.driver.execute_async_script(script, url)

    def test_a_foreign_page_cannot_post(self):
        before = self.served()
        for origin in (f"http://evil.example:{self.evil.server_port}/", f"http://localhost:{self.evil.server_port}/"):
            self.page.driver.get(origin)
            outcomes = self.ask(POSTS, f"{self.server.url}/v1/completions")
            self.assertEqual(outcomes["json"], "refused", outcomes)
            self.assertEqual(self.served(), before, outcomes)

    def test_a_rebound_name_cannot_read_or_post(self):
        before = self.served()
        url = f"http://evil.example:{self.server.port}"
        self.page.driver.get(url + "/")
        self.assertEqual(self.ask(READ, url + "/v1/models")[0], 403)
        outcomes = self.ask(POSTS, url + "/v1/completions")
        self.assertEqual(outcomes["json"], 403)
        self.assertEqual(self.served(), before)

    def test_its_own_page_can(self):
        before = self.served()
        for name in ("127.0.0.1", "localhost"):
            self.page.driver.get(f"http://{name}:{self.server.port}/")
            self.assertEqual(self.ask(READ, "/v1/models")[0], 200)
            self.assertEqual(self.ask(POSTS, "/v1/completions")["json"], 200)
        self.assertGreater(self.served(), before)
