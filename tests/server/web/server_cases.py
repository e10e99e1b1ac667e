"""The chat page and its server: one that wants a key, is busy, reads a long prompt, loads, dies and comes back."""

import pathlib
import tempfile
import time

import browser
import server
import tiny_model
from page_case import MockCase, PageCase


class ServerTest(MockCase):
    def test_key(self):
        p = self.page
        self.mock.key = "secret"
        p.ask("hello there")
        self.assertIn("API key", p.text(".assistant .error"))
        p.button(".assistant", "Enter a key")
        p.set_field("#set-key", "secret")
        p.click("#close-settings")
        self.assertEqual(p.js("return [...document.querySelectorAll('.assistant button')].map((b) => b.textContent)"), ["Enter a key", "Try again"])
        p.button(".assistant", "Try again")
        p.until(lambda: "Answer 1" in p.last_answer() and not p.streaming(), "the answer")
        self.assertEqual(self.mock.keys[-1], "Bearer secret")
        self.assertEqual(len(p.all(".turn")), 2)
        self.assertNotIn("secret", p.js("return Store.exported([Store.loadChat(Store.list()[0].id)])"))

    def test_busy_server_is_asked_again(self):
        p = self.page
        self.mock.busy, self.mock.retry_after = 2, "1"
        p.send("hello there")
        p.until(lambda: "Trying again in 1 s" in p.text(".assistant .foot"), "the countdown")
        p.until(lambda: "Answer 1" in p.last_answer() and not p.streaming(), "the answer")
        self.assertEqual(len(self.mock.requests), 3)
        self.mock.busy, self.mock.retry_after = 9, "30"
        p.send("once more")
        p.until(lambda: "Trying again in 30 s" in p.text(".assistant:last-child .foot"), "the countdown")
        p.button(".assistant", "Cancel")
        p.until(lambda: not p.streaming(), "the end")
        self.assertIn("once more", p.text(".user:nth-last-child(2) .words"))

    def test_errors_are_clear(self):
        p = self.page
        p.ask("an overflow")
        self.assertIn("9000 tokens, the context is 8192", p.text(".assistant .error"))
        self.assertIn("start a new conversation", p.text(".assistant .error"))
        p.click("#new-chat")
        p.ask("now break")
        self.assertEqual(p.last_answer(), "half an answer")
        self.assertRegex(p.text(".assistant .error"), "broke|ended early")
        p.click("#new-chat")
        p.ask("now fail")
        self.assertIn("the step failed", p.text(".assistant .error"))
        p.click("#new-chat")
        p.ask("to the limit")
        self.assertIn("token limit reached", p.text(".assistant .stats"))

    def test_server_gone(self):
        p = self.page
        self.mock.gone = True
        p.ask("precious words")
        self.assertIn("cannot be reached", p.text(".assistant .error"))
        self.assertEqual(p.text(".user .words"), "precious words")
        p.until(lambda: p.one("#state").get_attribute("data-state") == "gone", "the state")
        p.js("window.faults.length = 0")
        self.mock.gone = False
        p.button(".assistant", "Try again")
        p.until(lambda: "precious words" in p.last_answer() and not p.streaming(), "the answer")


    def test_how_much_of_the_prompt_was_read(self):
        p = self.page
        p.send("please read")
        share = p.until(lambda: p.js("""const box = document.querySelector('.reading');
            return box && box.textContent === 'Read 2,048 of 6,001 tokens' ? box.querySelector('progress').value : null"""), "how far it is")
        self.assertAlmostEqual(share, 2048 / 6001)
        self.assertTrue(self.last_request()["return_progress"])
        self.assertNotIn("tok/s", p.text(".assistant .foot"))
        took = p.driver.execute_async_script("""
            const done = arguments[arguments.length - 1], begin = performance.now();
            document.getElementById('send').click();
            const look = () => (document.querySelector('.streaming') ? setTimeout(look, 5) : done(performance.now() - begin));
            look();""")
        self.assertLess(took, 25000, "a page that goes on reading would take a minute")
        p.until(lambda: self.mock.disconnects >= 1, "the server to notice")
        self.assertNotIn("Continue", p.text(".assistant .actions"), "there is nothing to go on with")

    def test_loading(self):
        p = self.page
        self.mock.loading = 0.42
        p.driver.get(p.url)
        p.until(lambda: p.text("#state-text") == "loading 42 %", "the state")
        self.assertEqual(p.one("#state").get_attribute("data-state"), "loading")
        self.assertTrue(p.one("#server-note").is_displayed())
        self.assertEqual(p.js("return document.getElementById('server-progress').value"), 0.42)
        self.assertEqual(p.violations(), [])
        p.send("hello there")
        p.until(lambda: "still loading" in p.text(".assistant .foot"), "a word about it")
        self.mock.loading = None
        p.until(lambda: p.last_answer() == "Answer 1 to: hello there" and not p.streaming(), "the answer")
        p.until(lambda: p.text("#model-name") == "mock-1b" and p.text("#state-text") == "idle", "the model")
        self.assertFalse(p.one("#server-note").is_displayed())


class DeathTest(PageCase):
    """A real server that is killed and started again."""

    settings = {"max_tokens": 8, "temperature": 0}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model.make(pathlib.Path(cls.folder.name) / "tiny")
        cls.process = server.Server("--threads", 1, model=cls.model)
        cls.process.start()
        cls.url = cls.process.url + "/"
        cls.page = browser.shared()

    @classmethod
    def tearDownClass(cls):
        cls.process.stop()
        cls.folder.cleanup()

    def test_it_says_so_and_recovers(self):
        p = self.page
        p.until(lambda: p.text("#state-text") == "idle", "the state")
        p.ask("a")
        self.process.kill()
        p.until(lambda: p.one("#state").get_attribute("data-state") == "gone", "the state")
        p.ask("b")
        self.assertIn("cannot be reached", p.text(".assistant:last-child .error"))
        self.assertTrue(p.one("#server-note").is_displayed())
        self.assertIn("cannot be reached", p.text("#server-note"))
        p.type("written meanwhile")
        type(self).process = server.Server("--threads", 1, model=self.model, port=self.process.port)
        self.process.start()
        p.until(lambda: p.text("#state-text") == "idle" and not p.one("#server-note").is_displayed(), "the server again")
        self.assertEqual(p.one("#input").get_attribute("value"), "written meanwhile")
        p.js("window.faults.length = 0")
        p.button(".assistant", "Try again")
        p.until(lambda: len(p.all("[data-stat=tokens]")) == 2 and not p.streaming(), "the answer")
        self.assertEqual(p.all(".assistant .error"), [])
