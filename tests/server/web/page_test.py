"""The chat page in a real browser.

  scripts/python_test.sh tests/server/web/page_test.py --page build/src/server/web      against a mock with scripted answers
  ... page_test.py --server http://127.0.0.1:8000                                       against a running server
  ... page_test.py --ingot build/bin/ingot                                              starts that server itself
  ... page_test.py --ingot build/bin/ingot --screenshot docs/images/chat.png            a picture instead of tests
"""

import argparse
import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import mock_server  # noqa: E402
import server  # noqa: E402

ARGUMENTS = None
SKIPPED = 77  # ctest shows it as skipped

with open(os.path.join(HERE, "audit.js"), encoding="utf-8") as file:
    AUDIT = file.read()


def mock_only(test):
    test.mock_only = True
    return test


class PageTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        from browser import Page
        cls.mock, cls.process, cls.server = None, None, None
        if ARGUMENTS.server:
            url = ARGUMENTS.server
        elif ARGUMENTS.ingot:
            cls.process = server.Server("--max-model-len", "4096")
            cls.process.start()
            url = cls.process.url
        else:
            with open(os.path.join(ARGUMENTS.page, "chat.html"), encoding="utf-8") as page, \
                    open(os.path.join(ARGUMENTS.page, "chat.csp"), encoding="utf-8") as csp:
                cls.mock, cls.server, url = mock_server.start(page.read(), csp.read())
        cls.page = Page(url.rstrip("/") + "/")

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        if cls.server:
            cls.server.shutdown()
        if cls.process:
            cls.process.stop()

    def setUp(self):
        if getattr(getattr(self, self._testMethodName), "mock_only", False) and not self.mock:
            self.skipTest("needs scripted answers")
        if self.mock:
            self.mock.reset()
        # A real model's answers are kept short, so that the test takes no longer than it must.
        self.page.open(settings=None if self.mock else {"max_tokens": 16, "temperature": 0})

    def tearDown(self):
        self.assertEqual(self.page.faults(), [], "errors or blocked resources on the page")

    def long_question(self):
        if self.mock:
            return "slow"
        self.page.set_field("#set-max_tokens", "3000")
        return "Count from 1 to 500, one number a line, all of them."

    def last_request(self):
        return self.page.sent()[-1]

    # Sending and the answer

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
        self.assertEqual(p.answered(5)[:len(first)], first)

    def test_answer_and_its_figures(self):
        p = self.page
        text = p.ask("hello there")
        self.assertTrue(text)
        if self.mock:
            self.assertEqual(text, "Answer 1 to: hello there")
            self.assertEqual(p.text("[data-stat=cached]"), "96 of 120 prompt tokens cached")
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
        from selenium.webdriver.common.keys import Keys
        p.keys(Keys.ESCAPE)
        part = p.answered(5)
        self.assertTrue(part)
        self.assertIn("stopped", p.text(".assistant .stats"))
        if self.mock:
            p.until(lambda: self.mock.disconnects == 1, "the server to notice")
            self.assertLess(len(part.split()), 300)
        time.sleep(0.3)
        self.assertEqual(p.last_answer(), part, "nothing comes after the stop")
        if not self.mock:
            p.set_field("#set-max_tokens", "16")  # a short answer will do
        p.ask("go on then")
        sent = self.last_request()["messages"][1]
        self.assertEqual((sent["role"], sent["content"].strip()[:20]), ("assistant", part.strip()[:20]))

    def test_regenerate_keeps_both_answers(self):
        p = self.page
        p.ask("hello there")
        p.button(".assistant", "Regenerate")
        p.until(lambda: len(p.sent()) == 2, "a second request")
        p.answered()
        self.assertEqual(p.sent()[0]["messages"], p.sent()[1]["messages"])
        self.assertEqual(p.text(".assistant .versions span"), "2/2")
        p.button(".assistant", "Earlier version")
        self.assertEqual(p.text(".assistant .versions span"), "1/2")

    def test_edit_runs_again_from_there(self):
        p = self.page
        p.ask("first question")
        p.ask("second question")
        p.button(".user", "Edit")
        p.one(".editor").clear()
        from selenium.webdriver.common.keys import Keys
        p.one(".editor").send_keys("changed question", Keys.ENTER)
        p.until(lambda: len(p.sent()) == 3, "the new request")
        p.answered()
        self.assertEqual([m["content"] for m in self.last_request()["messages"] if m["role"] == "user"], ["first question", "changed question"])
        self.assertEqual(len(p.all(".turn")), 4)
        p.button(".user", "Earlier version")
        self.assertEqual(p.js("return [...document.querySelectorAll('.user .text')].map((n) => n.textContent)"),
                         ["first question", "second question"], "the question before is not lost")

    def test_settings_reach_the_request(self):
        p = self.page
        p.click("#open-settings")
        p.set_field("#set-system", "You are terse.")
        wanted = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "max_tokens": 24, "seed": 11,
                  "presence_penalty": 0.5, "frequency_penalty": -0.5, "repetition_penalty": 1.1}
        for name, value in wanted.items():
            p.set_field("#set-" + name, str(value))
        p.click("#close-settings")
        p.ask("hello there")
        request = self.last_request()
        self.assertEqual({name: request.get(name) for name in wanted}, wanted)
        self.assertEqual(request["messages"][0], {"role": "system", "content": "You are terse."})
        p.click("#open-settings")
        p.set_field("#set-temperature", "99")
        self.assertEqual(p.one("#set-temperature").get_attribute("aria-invalid"), "true")
        p.set_field("#set-top_p", "")
        p.click("#close-settings")
        p.ask("hello again")
        self.assertNotIn("temperature", self.last_request(), "a value out of range is not sent")
        self.assertNotIn("top_p", self.last_request(), "an empty field is not sent where the server advises nothing")

    @mock_only
    def test_the_models_advice_is_shown_and_sent(self):
        p = self.page
        p.ask("hello there")
        request = self.last_request()
        self.assertEqual((request.get("top_k"), request.get("min_p")), (33, 0.02))
        self.assertNotIn("temperature", request)
        p.click("#open-settings")
        self.assertEqual(p.one("#set-top_k").get_attribute("placeholder"), "33")
        self.assertEqual(p.one("#set-temperature").get_attribute("placeholder"), "default")
        p.set_field("#set-top_k", "7")
        p.click("#close-settings")
        p.ask("hello again")
        self.assertEqual(self.last_request()["top_k"], 7)

    # Conversations

    def test_conversations_survive_a_reload(self):
        p = self.page
        p.ask("first conversation")
        answer = p.last_answer()
        p.click("#new-chat")
        p.ask("second conversation")
        p.type("a draft that was not sent")
        p.open(clean=False)
        self.assertEqual([e.text for e in p.all(".entry")], ["second conversation", "first conversation"])
        self.assertEqual(p.text("#title"), "second conversation")
        self.assertEqual(p.one("#input").get_attribute("value"), "a draft that was not sent")
        p.all(".entry")[1].click()
        self.assertEqual(p.last_answer(), answer)
        self.assertEqual(p.one("#input").get_attribute("value"), "", "the draft belongs to the other conversation")
        self.assertTrue(p.text("[data-stat=tokens]"))
        p.ask("go on")
        self.assertEqual(len(self.last_request()["messages"]), 3)

    def test_rename_delete_undo(self):
        p = self.page
        from selenium.webdriver.common.keys import Keys
        p.ask("to be renamed")
        p.click("#rename")
        p.keys(Keys.CONTROL, "a")
        p.keys("A better name", Keys.ENTER)
        self.assertEqual(p.text("#title"), "A better name")
        self.assertEqual([e.text for e in p.all(".entry")], ["A better name"])
        p.click("#delete")
        self.assertEqual(p.all(".entry"), [])
        p.button("#toast", "Undo")
        self.assertEqual([e.text for e in p.all(".entry")], ["A better name"])
        self.assertIn("to be renamed", p.text(".user .text"))

    def test_export_and_import(self):
        p = self.page
        p.ask("to be exported")
        p.js("""window.saved = null; const make = URL.createObjectURL;
                URL.createObjectURL = (blob) => { blob.text().then((t) => (window.saved = t)); return make(blob); };
                HTMLAnchorElement.prototype.click = () => {};""")
        p.click("#export-all")
        text = p.until(lambda: p.js("return window.saved"), "the exported text")
        p.open(settings=None if self.mock else {"max_tokens": 16})
        self.assertEqual(p.all(".entry"), [])
        choose = """const data = new DataTransfer(); data.items.add(new File([arguments[0]], 'chats.json'));
                    const field = document.getElementById('import-file'); field.files = data.files;
                    field.dispatchEvent(new Event('change'));"""
        for bad in ("not json", "{}", '{"format":"ingot-conversations","conversations":[{"id":1},null,{"id":"x","nodes":{"root":{"children":["a"]},"a":{"role":"root"}}}]}'):
            p.js(choose, bad)
            p.until(lambda: p.text("#toast"), "a word about the file")
        p.js(choose, text)
        p.until(lambda: p.all(".user"), "the conversation")
        self.assertEqual(p.text(".user .text"), "to be exported")
        self.assertIn("to be exported", [e.text for e in p.all(".entry")])

    def test_full_storage_is_told_and_nothing_lost(self):
        p = self.page
        p.js("""Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }""")
        text = p.ask("no room for this")
        self.assertTrue(text)
        self.assertTrue(p.one("#storage-note").is_displayed())
        p.ask("still going")
        self.assertEqual(len(p.all(".turn")), 4)

    # Text

    @mock_only
    def test_markdown(self):
        p = self.page
        p.ask("show markdown")
        html = p.js("return [...document.querySelectorAll('.assistant .markdown')].pop().innerHTML")
        for part in ('<h3 class="md-h1">Title</h3>', "<strong>bold</strong>", "<em>italic</em>", "<del>gone</del>", "<code>code &lt;b&gt;</code>",
                     "snake_case_name, 2 * 3 * 4", "<li>two<ul><li>nested <em>deep</em><ol><li>deeper</li></ol></li></ul></li>",
                     '<ol start="3">', "<blockquote><p>quoted</p><blockquote><p>twice</p></blockquote></blockquote>", "<hr>",
                     '<th scope="col" class="right">right</th>', '<td class="left">a | b</td><td class="right"><strong>1</strong></td>',
                     "*stars* and &lt;tag&gt;", "<em><strong>both</strong></em>"):
            self.assertIn(part, html)
        self.assertEqual(p.js("return [...document.querySelectorAll('.markdown a')].map((a) => [a.href, a.rel, a.target])"),
                         [[url, "noopener noreferrer nofollow", "_blank"] for url in
                          ("https://example.org/a_(b)?q=1&r=2", "https://example.org/bare", "mailto:me@example.org")])
        self.assertEqual(p.js("return [...document.querySelectorAll('.markdown input')].map((b) => b.checked)"), [True, False])
        self.assertEqual(p.js("return [...document.querySelectorAll('.code')].map((c) => [c.querySelector('figcaption span').textContent, c.querySelector('code').textContent])"),
                         [["python", '# inside a list\nprint("hi")'], ["cpp", "int main() { return 0; }  // <script>alert(1)</script>"]])
        self.assertTrue(p.all(".code .t-c"), "code is coloured")
        p.js("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        p.js("[...document.querySelectorAll('.code button')].pop().click()")
        p.until(lambda: p.js("return window.copied"), "the copied code")
        self.assertEqual(p.js("return window.copied"), "int main() { return 0; }  // <script>alert(1)</script>")

    @mock_only
    def test_streamed_equals_whole(self):
        p = self.page
        for question in ("show markdown", "show injection", "quite long"):
            p.ask(question)
            streamed = p.js("return [...document.querySelectorAll('.assistant .markdown')].pop().innerHTML")
            # Piece by piece, without the final drawing of everything at once.
            grown = p.js("""const source = arguments[0], box = document.createElement('div'), view = new Markdown.View(box);
                for (let i = 0; i < source.length; i += 3) view.update(source.slice(0, i), false);
                view.update(source, true); return box.innerHTML;""",
                         {"markdown": mock_server.MARKDOWN, "injection": mock_server.INJECTION, "long": mock_server.LONG}[question.split()[1]])
            self.assertEqual(grown, streamed)

    @mock_only
    def test_injection_stays_text(self):
        p = self.page
        p.ask("show injection")
        time.sleep(0.3)
        self.assertIsNone(p.js("return window.pwned ?? null"))
        body = ".assistant .markdown "
        for kind in ("script", "img", "iframe", "svg", "b", "div[onclick]", "[onerror]", "[onload]", "[srcdoc]"):
            self.assertEqual(p.all(body + kind), [], kind)
        for link in p.js("return [...document.querySelectorAll('.assistant .markdown a')].map((a) => a.getAttribute('href'))"):
            self.assertTrue(link.startswith("https://example.org/"), link)
        text = p.last_answer()
        for part in ('<img src=x onerror="window.pwned=1">', "<script>window.pwned=2</script>", "javascript:window.pwned=4", "<b>head</b>"):
            self.assertIn(part, text, "it is shown as it was written")
        self.assertEqual(p.js("return performance.getEntriesByType('resource').filter((r) => !r.name.startsWith(location.origin) && !r.name.startsWith('data:')).length"), 0)
        p.send('<img src=x onerror="window.pwned=20"> hello')
        p.answered()
        self.assertEqual(p.all("#log img, #chat-list img, #title img"), [])
        self.assertIsNone(p.js("return window.pwned ?? null"))

    @mock_only
    def test_hostile_markdown_is_quick(self):
        p = self.page
        slow = p.js("""
            const n = 20000, texts = {stars: '*a '.repeat(n), brackets: '['.repeat(n), closed: '[a]('.repeat(n), ticks: Array.from({length: 300}, (_, i) => '`'.repeat(i + 1)).join(' '),
              quotes: '>'.repeat(n), lists: Array.from({length: 300}, (_, i) => ' '.repeat(i * 2) + '- x').join('\\n'), dots: 'http://a' + '.'.repeat(n) + 'b'.repeat(9) + ')'.repeat(n),
              under: '_a__b_'.repeat(n), tables: '|'.repeat(n) + '\\n' + '|-'.repeat(n), slashes: '\\\\'.repeat(n) + '|\\n|-|', comments: '```js\\n' + '/*'.repeat(9000) + '\\n```', entity: '&'.repeat(n), tilde: '~~a~~'.repeat(n)};
            const slow = [];
            for (const [name, text] of Object.entries(texts)) {
              let took = Infinity;  // the best of three: other work on the machine slows one of them, not all
              for (let i = 0; i < 3 && took > 1500; ++i) {
                const begin = performance.now();
                new Markdown.View(document.createElement('div')).update(text, true);
                took = Math.min(took, performance.now() - begin);
              }
              if (took > 1500) slow.push(name + ' ' + Math.round(took) + ' ms');
            }
            return slow;""")
        self.assertEqual(slow, [])

    @mock_only
    def test_long_answer_stays_smooth(self):
        p = self.page
        p.js("""window.worst = 0; let last = performance.now();
                const tick = () => { const now = performance.now(); window.worst = Math.max(window.worst, now - last); last = now; requestAnimationFrame(tick); };
                requestAnimationFrame(tick);""")
        text = p.ask("quite long", 30)
        self.assertTrue(text.endswith("The end."))
        self.assertLess(p.js("return window.worst"), 3000, "the longest frame in ms")

    @mock_only
    def test_thought_is_folded(self):
        p = self.page
        self.assertEqual(p.ask("please think"), "Visible answer.")
        self.assertEqual(p.text(".thought-text"), "hidden plan")
        self.assertFalse(p.js("return document.querySelector('.thought').open"))
        p.ask("next")
        self.assertEqual(self.last_request()["messages"][1]["content"], "Visible **answer**.")

    # Looks and access

    def test_dark_and_light(self):
        p = self.page
        background = "return getComputedStyle(document.body).backgroundColor"
        light = p.js(background)
        p.color_scheme("dark")
        p.until(lambda: p.js(background) != light, "the system's dark")
        dark = p.js(background)
        p.click("#theme")
        self.assertEqual(p.js(background), light)
        p.open(clean=False)
        self.assertEqual(p.js(background), light, "the choice is remembered")
        p.click("#theme")
        self.assertEqual(p.js(background), dark)
        p.color_scheme("light")
        p.until(lambda: p.js(background) == light, "following the system again")

    def test_phone(self):
        p = self.page
        try:
            p.viewport(360, 740, 1, mobile=True)
            p.open(clean=False)
            p.ask("show markdown" if self.mock else "hello there")
            self.assertLessEqual(p.js("return document.documentElement.scrollWidth"), 360)
            self.assertLessEqual(p.js("return document.getElementById('scroller').scrollWidth"), 360)
            wide = p.js("""return [...document.querySelectorAll('#main *')].filter((n) => n.checkVisibility() && !n.closest('pre, .table, .hidden-label') &&
                             n.getBoundingClientRect().right > innerWidth + 1).map((n) => n.tagName + '.' + n.className)""")
            self.assertEqual(wide, [])
            self.assertFalse(p.one("#new-chat").is_displayed())
            p.click("#menu")
            p.until(lambda: p.js("return document.getElementById('rail').getBoundingClientRect().left") == 0, "the rail")
            self.assertTrue(p.js("return document.getElementById('main').inert"))
            self.assertEqual(p.js(AUDIT), [])
            p.click("#new-chat")
            p.until(lambda: not p.one("#new-chat").is_displayed(), "the rail to close")
            p.click("#open-settings")
            self.assertLessEqual(p.js("return document.getElementById('settings').getBoundingClientRect().width"), 360)
        finally:
            p.viewport(1280, 860)

    def test_keyboard_alone(self):
        from selenium.webdriver.common.keys import Keys
        p = self.page
        focused = lambda: p.js("return document.activeElement.id || document.activeElement.textContent.slice(0, 40)")
        self.assertEqual(focused(), "input", "the field has the focus from the start")
        p.keys("one", Keys.SHIFT, Keys.ENTER, Keys.NULL, "two")
        self.assertEqual(p.one("#input").get_attribute("value"), "one\ntwo")
        p.keys(Keys.ENTER)
        p.answered()
        self.assertEqual(self.last_request()["messages"][-1]["content"], "one\ntwo")
        p.keys(Keys.ARROW_UP)
        self.assertTrue(p.one(".editor").is_displayed())
        p.keys(Keys.ESCAPE)
        self.assertEqual(p.all(".editor"), [])
        self.assertEqual(focused(), "input")
        p.js("document.activeElement.blur()")
        p.keys("/")
        self.assertEqual(focused(), "input")
        self.assertEqual(p.one("#input").get_attribute("value"), "")
        p.keys(Keys.CONTROL, "k")
        p.until(lambda: p.one("#welcome").is_displayed(), "a new conversation")
        self.assertEqual(focused(), "input")
        # Everything can be reached by Tab, in an order that follows the page, and shows where the focus is.
        p.js("document.activeElement.blur(); document.body.focus()")
        order = []
        for _ in range(30):
            p.keys(Keys.TAB)
            if p.js("return document.activeElement === document.body"):
                continue  # the browser's own controls come after the last one
            name = focused()
            if name in order:
                break
            order.append(name)
            self.assertNotEqual(p.js("const s = getComputedStyle(document.activeElement); const c = getComputedStyle(document.getElementById('composer'));"
                                     "return s.outlineStyle !== 'none' ? 'outline' : document.activeElement.id === 'input' && c.boxShadow !== 'none' ? 'ring' : 'none'"), "none", name)
        for name in ("new-chat", "open-settings", "theme", "input"):
            self.assertIn(name, order)
        self.assertLess(order.index("new-chat"), order.index("open-settings"))
        self.assertLess(order.index("open-settings"), order.index("input"))

    def test_accessibility(self):
        p = self.page
        self.assertEqual(p.js(AUDIT), [])
        p.ask("show markdown" if self.mock else "hello there")
        self.assertEqual(p.js("return document.querySelector('#log').getAttribute('aria-live')"), "polite")
        p.until(lambda: p.text("#announcer") == "Answer complete", "the announcement")
        for scheme in ("light", "dark"):
            p.color_scheme(scheme)
            time.sleep(0.2)
            self.assertEqual(p.js(AUDIT), [], scheme)
        p.color_scheme("light")
        p.click("#open-settings")
        self.assertEqual(p.js(AUDIT), [])

    # The server

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
            time.sleep(0.3)
            calls = self.mock.metrics_calls
            time.sleep(2.5)
            self.assertEqual(self.mock.metrics_calls, calls, "no questions while nobody looks")
            p.js("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
            p.until(lambda: self.mock.metrics_calls > calls, "questions again")

    @mock_only
    def test_key(self):
        p = self.page
        self.mock.key = "secret"
        p.ask("hello there")
        self.assertIn("API key", p.text(".assistant .error"))
        p.button(".assistant", "Enter a key")
        p.set_field("#set-key", "secret")
        p.click("#close-settings")
        p.button(".assistant", "Try again")
        p.until(lambda: "Answer 1" in p.last_answer() and not p.streaming(), "the answer")
        self.assertEqual(self.mock.keys[-1], "Bearer secret")
        self.assertEqual(len(p.all(".turn")), 2)
        self.assertNotIn("secret", p.js("return Store.exported([Store.loadChat(Store.list()[0].id)])"))

    @mock_only
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
        self.assertIn("once more", p.text(".user:nth-last-child(2) .text"))

    @mock_only
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

    @mock_only
    def test_server_gone(self):
        p = self.page
        self.mock.gone = True
        p.ask("precious words")
        self.assertIn("cannot be reached", p.text(".assistant .error"))
        self.assertEqual(p.text(".user .text"), "precious words")
        p.until(lambda: p.one("#state").get_attribute("data-state") == "gone", "the state")
        p.js("window.faults.length = 0")
        self.mock.gone = False
        p.button(".assistant", "Try again")
        p.until(lambda: "precious words" in p.last_answer() and not p.streaming(), "the answer")

    def test_switching_while_it_answers(self):
        p = self.page
        p.send(self.long_question())
        p.until(p.last_answer, "some words")
        p.click("#new-chat")
        self.assertEqual(p.text("#send"), "Send")
        p.ask("meanwhile")
        p.all(".entry")[-1 if self.mock else 1].click()
        p.until(lambda: p.text("#send") == "Stop" or p.last_answer(), "the first conversation")
        part = p.last_answer()
        self.assertTrue(part)
        if self.mock:
            p.until(lambda: len(p.last_answer()) > len(part), "it went on meanwhile")
            p.click("#send")
        p.answered()


def screenshot():
    import screenshot as pictures
    pictures.take(ARGUMENTS)


def main():
    global ARGUMENTS
    parser = argparse.ArgumentParser(description="tests of the chat page")
    parser.add_argument("--server", help="address of a running server")
    parser.add_argument("--ingot", help="the ingot binary: starts a server")
    parser.add_argument("--page", default="build/src/server/web", help="folder with chat.html and chat.csp, for the mock")
    parser.add_argument("--screenshot", help="write a picture here instead of testing")
    parser.add_argument("-k", action="append", help="only tests whose name contains this")
    ARGUMENTS = parser.parse_args()
    if ARGUMENTS.ingot:
        os.environ["INGOT_BINARY"] = ARGUMENTS.ingot

    from browser import binaries
    if not all(binaries()):
        missing = "chromium and chromedriver are needed (Debian: apt-get install chromium chromium-driver)"
        if os.environ.get("INGOT_ALLOW_SKIP") == "1":
            print("skipped: " + missing)
            return SKIPPED
        print("error: " + missing + "; INGOT_ALLOW_SKIP=1 skips this test", file=sys.stderr)
        return 1
    if ARGUMENTS.screenshot:
        screenshot()
        return 0
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{word}*" for word in ARGUMENTS.k] if ARGUMENTS.k else None
    runner = unittest.TextTestRunner(verbosity=2, resultclass=server.CountingResult)
    result = runner.run(loader.loadTestsFromTestCase(PageTest))
    server.write_cases(result.cases)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
