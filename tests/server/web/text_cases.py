"""The chat page: Markdown, formulas, reasoning; text that no page should obey."""

import time

import mock_server
from page_case import MockCase


class TextTest(MockCase):
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

    def test_streamed_equals_whole(self):
        p = self.page
        for question in ("show markdown", "show injection", "show latex", "quite long"):
            p.ask(question)
            if question == "show latex" and self.has_katex():
                p.until(lambda: p.all(".tex.set"), "the formulas")
            streamed = p.js("return [...document.querySelectorAll('.assistant .markdown')].pop().innerHTML")
            # Piece by piece, without the final drawing of everything at once.
            grown = p.js("""const source = arguments[0], box = document.createElement('div'), view = new Markdown.View(box);
                for (let i = 0; i < source.length; i += 3) view.update(source.slice(0, i), false);
                view.update(source, true); return box.innerHTML;""",
                         {"markdown": mock_server.MARKDOWN, "injection": mock_server.INJECTION, "latex": mock_server.LATEX, "long": mock_server.LONG}[question.split()[1]])
            self.assertEqual(grown, streamed)

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

    def test_hostile_markdown_is_quick(self):
        p = self.page
        for name in p.js("""
            const n = 20000;
            window.hostile = {stars: '*a '.repeat(n), brackets: '['.repeat(n), closed: '[a]('.repeat(n), ticks: Array.from({length: 300}, (_, i) => '`'.repeat(i + 1)).join(' '),
              quotes: '>'.repeat(n), lists: Array.from({length: 300}, (_, i) => ' '.repeat(i * 2) + '- x').join('\\n'), dots: 'http://a' + '.'.repeat(n) + 'b'.repeat(9) + ')'.repeat(n),
              under: '_a__b_'.repeat(n), tables: '|'.repeat(n) + '\\n' + '|-'.repeat(n), slashes: '\\\\'.repeat(n) + '|\\n|-|', comments: '```js\\n' + '/*'.repeat(9000) + '\\n```', entity: '&'.repeat(n), dollars: '$a '.repeat(n), pairs: '$$ b $$\\n'.repeat(n), open: '\\\\('.repeat(n), brackets2: '\\\\[a\\n'.repeat(n) + '\\n', run: '$'.repeat(n), tilde: '~~a~~'.repeat(n)};
            return Object.keys(window.hostile);"""):
            before = p.worked_s()
            p.js("new Markdown.View(document.createElement('div')).update(window.hostile[arguments[0]], true)", name)
            self.assertLess(p.worked_s() - before, 1.5, name)  # a fifth of a second for the longest

    def test_long_answer_stays_smooth(self):
        p = self.page
        before = p.worked_s()
        text = p.ask("quite long", 30)
        self.assertTrue(text.endswith("The end."))
        self.assertLess(p.worked_s() - before, 1.5, "seconds of work; a fifth is usual")

    def test_thought_is_folded(self):
        p = self.page
        self.assertEqual(p.ask("please think"), "Visible answer.")
        self.assertEqual(p.text(".thought-text"), "hidden plan")
        self.assertFalse(p.js("return document.querySelector('.thought').open"))
        p.ask("next")
        self.assertEqual(self.last_request()["messages"][1]["content"], "Visible **answer**.")


    def test_formulas(self):
        self.needs_katex()
        p = self.page
        self.assertEqual(self.mock.fetched, [], "nothing waits for what only formulas need")
        # A formula that stands there is never shown as its source again while the rest comes.
        p.js("""window.drops = 0; let before = 0;
                const look = () => { const set = document.querySelectorAll('.tex.set').length; if (set < before) window.drops++; before = set; requestAnimationFrame(look); };
                requestAnimationFrame(look);""")
        p.ask("show latex")
        p.until(lambda: len(p.all(".tex.set")) == 7, "seven formulas")
        self.assertEqual(p.js("return window.drops"), 0)
        undone = p.js("""const source = arguments[0], box = document.createElement('div'), view = new Markdown.View(box), undone = [];
            for (let i = 1, before = 0; i <= source.length; i++) {
              view.update(source.slice(0, i), false);
              const set = box.querySelectorAll('.tex.set').length;
              if (set < before) undone.push(source.slice(Math.max(0, i - 20), i));
              before = set;
            }
            return undone;""", mock_server.LATEX)
        self.assertEqual(undone, [], "a formula that was set became text again behind these")
        self.assertEqual(sorted(self.mock.fetched), ["/katex.css", "/katex.js"])
        self.assertEqual(p.js("return [...document.querySelectorAll('.tex.set annotation')].map((n) => n.textContent.replace(/\\s+/g, ' '))"),
                         ["ax^2 + bx + c = 0", r"x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}", "a=1", "b=0",
                          r"\begin{aligned} x_1 &= \sqrt{-c} \\ x_2 &= -\sqrt{-c} \end{aligned}",
                          r"\sum_{i=1}^n i = \frac{n(n+1)}{2}", r"\int_0^1 x\,dx"])
        self.assertEqual(len(p.all(".tex.display.set")), 3)
        text = p.last_answer()
        for part in ("It costs $5 and $6, or US$7 to $8, at most 9$ or 10$; $x$ is code; a $ is a dollar. $HOME/bin and $PATH stay.",
                     r"Broken: $\frac{1}{$ and $\nosuchcommand{x}$.", r"$\def\a{\a\a}\a$", "(x + y."):
            self.assertIn(part, text)
        self.assertEqual(p.all(".tex a"), [])
        self.assertTrue(p.js("return document.fonts.check('16px KaTeX_Math')"))
        self.assertEqual(p.js("return performance.getEntriesByType('resource').filter((r) => !r.name.startsWith(location.origin) && !r.name.startsWith('data:')).length"), 0)

    def test_speed_is_told_only_after_some_tokens(self):
        p = self.page
        p.ask("just a few")
        self.assertEqual(p.text("[data-stat=tokens]"), "3 tokens")
        self.assertEqual(p.all("[data-stat=rate]"), [])
