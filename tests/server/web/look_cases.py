"""The chat page: themes, a phone, the keyboard alone, axe."""

from selenium.webdriver.common.keys import Keys

from page_case import MockCase


class LookTest(MockCase):
    def tearDown(self):
        super().tearDown()
        self.page.viewport(1280, 860)
        self.page.color_scheme("light")

    def test_dark_and_light(self):
        p = self.page
        self.assertEqual(p.violations(), [], "as it opens")
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
            p.viewport(390, 740, 1, mobile=True)
            p.open(clean=False)
            p.ask("show markdown" if self.mock else "hello there")
            self.assertLessEqual(p.js("return document.documentElement.scrollWidth"), 390)
            self.assertLessEqual(p.js("return document.getElementById('scroller').scrollWidth"), 390)
            p.js("toast('something that takes room')")
            p.until(lambda: p.js("const s = document.getElementById('scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight < 2"), "the end to stay in sight", 3)
            wide = p.js("""return [...document.querySelectorAll('#main *')].filter((n) => n.checkVisibility() && !n.closest('pre, .table, .hidden-label') &&
                             n.getBoundingClientRect().right > innerWidth + 1).map((n) => n.tagName + '.' + n.className)""")
            self.assertEqual(wide, [])
            self.assertFalse(p.one("#new-chat").is_displayed())
            p.click("#menu")
            p.until(lambda: p.js("return document.getElementById('rail').getBoundingClientRect().left") == 0, "the rail")
            self.assertTrue(p.js("return document.getElementById('main').inert"))
            self.assertEqual(p.violations(), [])
            p.click("#new-chat")
            p.until(lambda: not p.one("#new-chat").is_displayed(), "the rail to close")
            p.click("#open-settings")
            self.assertLessEqual(p.js("return document.getElementById('settings').getBoundingClientRect().width"), 390)
        finally:
            p.viewport(1280, 860)

    def test_keyboard_alone(self):
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
        p.ask("show latex")
        p.choose("#attach-file", notes_txt="some notes\n")
        p.until(lambda: p.all("#attached .file"), "the attachment")
        p.js("document.querySelector('#attached details').open = true")
        if self.has_katex():
            p.until(lambda: p.all(".tex.set"), "the formulas")
        p.ask("please think")
        p.until(lambda: p.text("#announcer") == "Answer complete", "the announcement")
        self.assertEqual(p.js("return document.querySelector('#log').getAttribute('aria-live')"), "polite")
        for scheme in ("light", "dark"):
            p.color_scheme(scheme)
            p.until(lambda: p.js("return document.documentElement.dataset.theme") == scheme, scheme)
            self.assertEqual(p.violations(), [], scheme)
        p.click("#open-settings")
        self.assertEqual(p.violations(), [], "settings in the dark")
        p.click("#close-settings")
        p.color_scheme("light")
        self.mock.gone = True
        p.ask("anybody there")
        p.until(lambda: p.one("#server-note").is_displayed(), "the notice")
        self.assertEqual(p.violations(), [], "the server gone")
        p.js("window.faults.length = 0")


    def test_thumbs(self):
        p = self.page
        p.viewport(390, 844, 2, mobile=True)
        p.open(clean=False)
        p.choose("#attach-file", a_txt="text")
        p.until(lambda: p.all("#attached .file"), "the attachment")
        p.ask("please think")
        p.button(".assistant", "Try again")
        p.until(lambda: len(p.sent()) == 2 and not p.streaming(), "another answer")
        small = """return [...document.querySelectorAll('button, summary, input:not([hidden])')].filter((n) => n.checkVisibility({visibilityProperty: true}) && n.type !== 'checkbox')
                     .map((n) => [n.id || n.textContent || n.getAttribute('aria-label'), n.getBoundingClientRect()])
                     .filter(([, r]) => r.width > 0 && (r.width < 40 || r.height < 40)).map(([name, r]) => `${name} ${Math.round(r.width)} x ${Math.round(r.height)}`)"""
        self.assertEqual(p.js(small), [])
        self.assertLessEqual(p.js("return document.documentElement.scrollWidth"), 390)
        self.assertEqual(p.violations(), [])
        p.click("#menu")
        p.until(lambda: p.js("return document.getElementById('rail').getBoundingClientRect().left") == 0, "the rail")
        self.assertEqual(p.js(small), [])

    def test_a_toast_covers_nothing(self):
        p = self.page
        p.ask("hello there")
        p.click("#new-chat")
        p.ask("hello again")
        self.assertEqual(p.js("return getComputedStyle(document.querySelector('.user .words')).fontWeight"), "400", "what we say is not bold")
        p.click("#delete")
        p.until(lambda: p.one("#toast").is_displayed(), "the toast")
        box = lambda css: p.js("const r = document.querySelector(arguments[0]).getBoundingClientRect(); return [r.top, r.bottom]", css)
        self.assertLessEqual(box("#scroller")[1], box("#toast")[0])
        self.assertLessEqual(box("#toast")[1], box("#composer")[0])
