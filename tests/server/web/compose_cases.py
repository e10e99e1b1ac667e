"""The chat page: writing, settings, conversations that are kept."""

from selenium.webdriver.common.keys import Keys

from page_case import MockCase


class ComposeTest(MockCase):
    def test_edit_runs_again_from_there(self):
        p = self.page
        p.ask("first question")
        p.ask("second question")
        p.button(".user", "Edit")
        p.one(".editor").clear()
        p.one(".editor").send_keys("changed question", Keys.ENTER)
        p.until(lambda: len(p.sent()) == 3, "the new request")
        p.answered()
        self.assertEqual([m["content"] for m in self.last_request()["messages"] if m["role"] == "user"], ["first question", "changed question"])
        self.assertEqual(len(p.all(".turn")), 4)
        p.button(".user", "Earlier version")
        self.assertEqual(p.js("return [...document.querySelectorAll('.user .words')].map((n) => n.textContent)"),
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
        self.assertIn("to be renamed", p.text(".user .words"))
        p.send("slow")
        p.until(lambda: "word1" in p.last_answer(), "some words")
        p.click("#delete")
        p.until(lambda: self.mock.disconnects >= 1, "the server to notice")
        self.assertEqual(p.js("return Store.list().length"), 0, "what was deleted while it answered does not come back")

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
        self.assertEqual(p.text(".user .words"), "to be exported")
        self.assertIn("to be exported", [e.text for e in p.all(".entry")])

    def test_full_storage_is_told_and_nothing_lost(self):
        p = self.page
        p.js("""Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }""")
        text = p.ask("no room for this")
        self.assertTrue(text)
        self.assertTrue(p.one("#storage-note").is_displayed())
        p.ask("still going")
        self.assertEqual(len(p.all(".turn")), 4)

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


    def test_text_files_go_with_the_message(self):
        p = self.page
        p.choose("#attach-file", notes_md="# Notes\n\n```\ncode\n```\n", data_bin=b"\x00\xff\x01", empty_txt="  ")
        p.until(lambda: "empty.txt is empty" in p.text("#toast"), "a word about the others")
        self.assertEqual(p.js("return [...document.querySelectorAll('#attached b')].map((b) => b.textContent)"), ["notes.md"])
        p.open(clean=False)
        self.assertEqual(p.text("#attached b"), "notes.md", "a reload loses nothing")
        self.assertTrue(p.one("#send").is_enabled(), "a file alone can be sent")
        p.ask("what is this")
        self.assertEqual(self.last_request()["messages"],
                         [{"role": "user", "content": "notes.md:\n````\n# Notes\n\n```\ncode\n```\n````\n\nwhat is this"}])
        self.assertEqual((p.text(".user .words"), p.text(".user .file b"), p.text("#title")), ("what is this", "notes.md", "what is this"))
        self.assertFalse(p.js("return document.querySelector('.user .file').open"), "folded")
        p.click(".user .file summary")
        p.until(lambda: p.text(".user .file pre").startswith("# Notes"), "its text")
        self.assertEqual(p.all("#attached .file"), [])
        p.button(".user", "Edit")
        p.one(".editor").clear()
        p.one(".editor").send_keys("changed", Keys.ENTER)
        p.until(lambda: len(p.sent()) == 2, "the new request")
        p.answered()
        self.assertTrue(self.last_request()["messages"][0]["content"].startswith("notes.md:\n````"), "it stays with the edited question")
        self.assertTrue(self.last_request()["messages"][0]["content"].endswith("changed"))

    def test_a_long_paste_becomes_an_attachment(self):
        p = self.page
        p.paste("short")
        self.assertEqual(p.all("#attached .file"), [])
        page = "line of a page\n" * 200
        p.paste(page)
        self.assertEqual(p.text("#attached b"), "Pasted text")
        self.assertIn("3,000 characters, 200 lines", p.text("#attached summary"))
        p.button("#attached", "As text")
        self.assertEqual((p.one("#input").get_attribute("value"), p.all("#attached .file")), (page, []))
        p.set_field("#input", "")
        p.paste(page)
        p.button("#attached", "Remove Pasted text")
        self.assertEqual(p.all("#attached .file"), [])

    def test_search_finds_words_in_any_message(self):
        p = self.page
        p.ask("about copper")
        p.click("#new-chat")
        p.ask("about iron")
        p.ask("and its melting point")
        p.set_field("#search", "MELTING")
        self.assertEqual([e.text.split("\n")[0] for e in p.all(".entry")], ["about iron"])
        self.assertEqual(p.text(".find mark"), "melting")
        p.set_field("#search", "copper")
        p.click(".entry")
        self.assertEqual(p.text("#title"), "about copper")
        p.set_field("#search", "nowhere to be found")
        self.assertEqual((p.all(".entry"), p.one("#none-found").is_displayed()), ([], True))
        p.one("#search").send_keys(Keys.ESCAPE)
        self.assertEqual(len(p.all(".entry")), 2)

    def test_continue_after_stop(self):
        p = self.page
        p.send("slow")
        p.until(lambda: len(p.last_answer()) > 20, "some words")
        p.click("#send")
        part = p.answered(20)
        p.button(".assistant", "Continue")
        p.until(lambda: len(p.sent()) == 2, "the request")
        p.until(lambda: p.last_answer().endswith("so on.") and not p.streaming(), "the rest")
        self.assertEqual(p.last_answer().split(), (part + " and so on.").split())
        request = self.last_request()
        self.assertEqual((request["continue_final_message"], request["add_generation_prompt"]), (True, False))
        self.assertEqual(request["messages"][-1]["role"], "assistant")
        self.assertEqual(request["messages"][-1]["content"].strip(), part.strip())
        self.assertNotIn("Continue", p.text(".assistant .actions"))
        self.assertEqual(len(p.all(".turn")), 2)

    def test_enter_while_it_answers_queues(self):
        p = self.page
        p.send("slow")
        p.until(p.last_answer, "some words")
        p.send("and then")
        self.assertEqual(p.one("#input").get_attribute("value"), "")
        self.assertIn("and then", p.text("#queue"))
        self.assertEqual(len(p.sent()), 1)
        p.click("#send")
        p.answered(20)
        self.assertEqual(p.one("#input").get_attribute("value"), "and then", "after a stop it waits for a word from us")
        self.assertFalse(p.one("#queue").is_displayed())
        p.set_field("#input", "")
        p.send("calmly")
        p.until(p.last_answer, "the answer")
        p.type("second")
        p.click("#send-next")
        self.assertEqual(len(p.sent()), 2)
        self.mock.may_end.set()
        p.until(lambda: len(p.sent()) == 3 and not p.streaming(), "the next question by itself")
        self.assertEqual(self.last_request()["messages"][-1]["content"], "second")
        self.assertEqual(p.last_answer(), "Answer 3 to: second")

    def test_a_schema_and_tools(self):
        p = self.page
        p.click("#open-settings")
        p.set_field("#set-schema", "{not json")
        self.assertEqual(p.one("#set-schema").get_attribute("aria-invalid"), "true")
        self.assertIn("not used", p.text("#hint-schema"))
        p.set_field("#set-tools", '{"type": "function"}')
        self.assertIn("wanted: [", p.text("#hint-tools"))
        p.click("#close-settings")
        p.ask("nothing of this")
        self.assertFalse({"response_format", "tools"} & set(self.last_request()))
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        p.set_field("#set-schema", str(schema).replace("'", '"'))
        p.set_field("#set-tools", "")
        p.ask("as JSON")
        self.assertEqual(self.last_request()["response_format"], {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}})
        self.assertEqual(p.text(".assistant:last-child .code code"), '{"name": "*Ada*", "age": 36}')
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
        p.set_field("#set-schema", "")
        p.set_field("#set-tools", str(tools).replace("'", '"'))
        p.ask("the weather")
        self.assertEqual(self.last_request()["tools"], tools)
        folds = p.js("return [...document.querySelectorAll('.assistant:last-child .call')].map((d) => [d.open, d.querySelector('summary').textContent, d.querySelector('pre').textContent])")
        self.assertEqual(folds, [[False, "Calls weather", '{\n  "city": "Rome"\n}'], [False, "Calls time", "{}"]])
        p.set_field("#set-tools", "")
        p.open(clean=False)
        self.assertEqual(len(p.all(".call")), 2, "calls are kept")
        p.ask("and now")
        said = [m for m in self.last_request()["messages"] if m.get("tool_calls")]
        self.assertEqual([(m["content"], [c["function"]["name"] for c in m["tool_calls"]]) for m in said], [(None, ["weather", "time"])])
