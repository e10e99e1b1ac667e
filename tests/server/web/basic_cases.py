"""The chat page: a question, its answer, the figures. Before the mock, and before the server itself."""

import signal
import time

from selenium.webdriver.common.keys import Keys

import server
from page_case import MockCase, ServedCase


class Basics:
    def test_send_and_stream(self):
        p = self.page
        self.assertFalse(p.one("#send").is_enabled(), "nothing to send yet")
        p.send(self.long_question())
        p.until(p.last_answer, "the first words")
        self.assertEqual(p.text("#send"), "Stop")
        first = p.last_answer()
        p.until(lambda: len(p.last_answer()) > len(first), "more words")
        self.assertTrue(p.all(".assistant[aria-busy=true]"))
        p.click("#send")
        self.assertEqual(p.answered(20)[:len(first)], first)

    def test_answer_and_its_figures(self):
        p = self.page
        text = p.ask("hello there")
        self.assertTrue(text)
        if self.mock:
            self.assertEqual(text, "Answer 1 to: hello there")
            self.assertEqual(p.text("[data-stat=cached]"), "96 of 120 prompt tokens cached")
            self.assertEqual(p.text("[data-stat=guessed]"), "7 guessed right")
        self.assertRegex(p.text("[data-stat=rate]"), r"^[\d.]+ tok/s$")
        self.assertRegex(p.text("[data-stat=first]"), r"^[\d.]+ m?s to first token$")
        self.assertRegex(p.text("[data-stat=tokens]"), r"^[\d,]+ tokens?$")
        request = self.last_request()
        self.assertTrue(request["stream"])
        self.assertTrue(request["stream_options"]["include_usage"])
        self.assertEqual(request["messages"], [{"role": "user", "content": "hello there"}])
        p.ask("and again")
        self.assertEqual([m["role"] for m in self.last_request()["messages"]], ["user", "assistant", "user"])
        self.assertIn("of context", p.text("#context"))
        self.assertEqual(p.text("#title"), "hello there")

    def test_stop_with_escape(self):
        p = self.page
        p.send(self.long_question())
        p.until(lambda: len(p.last_answer()) > 10, "some words")
        p.keys(Keys.ESCAPE)
        part = p.answered(20)
        self.assertTrue(part)
        self.assertIn("stopped", p.text(".assistant .stats"))
        if self.mock:
            p.until(lambda: self.mock.disconnects >= 1, "the server to notice")
            self.assertLess(len(part.split()), 300)
        time.sleep(0.3)
        self.assertEqual(p.last_answer(), part, "nothing comes after the stop")
        if not self.mock:
            p.set_field("#set-max_tokens", "16")  # a short answer will do
        p.ask("go on then")
        sent = self.last_request()["messages"][1]
        self.assertEqual((sent["role"], sent["content"].strip()[:20]), ("assistant", part.strip()[:20]))

    def test_another_try_keeps_both_answers(self):
        p = self.page
        p.ask("hello there")
        p.button(".assistant", "Try again")
        p.until(lambda: len(p.sent()) == 2, "a second request")
        p.answered()
        self.assertEqual(p.sent()[0]["messages"], p.sent()[1]["messages"])
        self.assertEqual(p.text(".assistant .versions span"), "2/2")
        p.button(".assistant", "Earlier version")
        self.assertEqual(p.text(".assistant .versions span"), "1/2")

    def test_live_panel(self):
        p = self.page
        p.send(self.long_question())
        p.until(lambda: p.text("#m-running") == "1", "a running request")
        p.until(lambda: float(p.text("#m-rate")) > 0, "a rate")
        self.assertEqual(p.one("#state").get_attribute("data-state"), "working")
        p.click("#send")
        p.until(lambda: p.text("#m-running") == "0", "an idle server")
        self.assertTrue(p.one("#spark-line").get_attribute("points"))
        self.assertRegex(p.text("#m-kv"), r"^<?\d+ %$")
        if self.mock:
            self.assertEqual((p.text("#m-waiting"), p.text("#m-kv"), p.text("#m-hits")), ("3", "42 %", "75 %"))
            p.js("Object.defineProperty(document, 'hidden', {value: true, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))")
            for _ in range(5):  # what was asked before may still come; twice in each round, if it goes on asking
                calls = self.mock.metrics_calls
                time.sleep(2.2)
                if self.mock.metrics_calls == calls:
                    break
            self.assertEqual(self.mock.metrics_calls, calls, "no questions while nobody looks")
            p.js("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
            p.until(lambda: self.mock.metrics_calls > calls, "questions again")



class BasicTest(Basics, MockCase):
    pass


class ServedTest(Basics, ServedCase):
    def test_the_prompt_is_read_before_our_eyes(self):
        p = self.page
        before = self.process.wait_idle()["vllm:prompt_tokens_total"] if self.process else 0
        p.paste("All work and no play makes Jack a dull boy, again and again. " * 200)
        p.until(lambda: p.all("#attached .file"), "the attachment")
        p.send("What is it about?")
        first = p.until(lambda: p.text(".reading"), "how far it is")
        self.assertRegex(first, r"^Read [\d,]+ of [23],\d\d\d tokens$")
        if self.process:
            self.process.signal(signal.SIGSTOP)  # the page needs no word from it, and it must not be done meanwhile
            self.addCleanup(self.process.signal, signal.SIGCONT)
        took = p.driver.execute_async_script("""
            const done = arguments[arguments.length - 1], begin = performance.now();
            document.getElementById('send').click();
            const look = () => (document.querySelector('.streaming') ? setTimeout(look, 5) : done(performance.now() - begin));
            look();""")
        self.assertLess(took, 200 if server.SOAK else 20000, "ms until it has stopped")
        self.assertIn("stopped", p.text(".assistant .stats"))
        if self.process:
            self.process.signal(signal.SIGCONT)
            self.assertEqual(self.process.wait_idle()["vllm:prompt_tokens_total"], before, "the server has not read it to its end")

    def test_continue_goes_on_where_it_was_stopped(self):
        p = self.page
        p.send(self.long_question())
        p.until(lambda: len(p.last_answer()) > 10, "some words")
        p.click("#send")
        part = p.answered(20)
        p.set_field("#set-max_tokens", "8")
        p.button(".assistant", "Continue")
        p.until(lambda: len(p.sent()) == 2 and not p.streaming(), "the rest")
        self.assertEqual(p.all(".assistant .error"), [])
        self.assertTrue(p.last_answer().startswith(part.strip()), (part, p.last_answer()))
        self.assertGreater(len(p.last_answer()), len(part))

    def test_a_formula_is_set(self):
        self.needs_katex()
        p = self.page
        p.js("""const view = new Markdown.View(document.querySelector('#log')); view.update('$x^2$', true);
                document.querySelector('#log').hidden = false""")
        p.until(lambda: p.all(".tex.set .katex"), "the formula")
        kept = p.js("return performance.getEntriesByType('resource').filter((r) => r.name.includes('katex')).map((r) => r.transferSize)")
        self.assertEqual(len(kept), 2)
