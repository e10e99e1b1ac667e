"""A headless Chromium that drives the chat page, with the words the tests use."""

import atexit
import os
import shutil
import time

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

# Records what the page asks the server, whatever server that is.
RECORD_REQUESTS = """
window.sent = [];
const original = window.fetch;
window.fetch = (path, options = {}) => {
  if (String(path).includes('chat/completions')) window.sent.push(JSON.parse(options.body));
  return original(path, options);
};
window.faults = [];
window.addEventListener('error', (event) => window.faults.push(String(event.message)));
window.addEventListener('unhandledrejection', (event) => window.faults.push(String(event.reason)));
document.addEventListener('securitypolicyviolation', (event) => window.faults.push('csp ' + event.violatedDirective + ' ' + event.blockedURI));
"""


def find(*names):
    return next((path for path in map(shutil.which, names) if path), None)


def binaries():
    """(browser, driver), None where one is missing."""
    return find("chromium", "chromium-browser", "google-chrome", "chrome"), find("chromedriver")


_shared = None


def shared():
    """The browser of all tests of a process: starting one takes longer than most of them."""
    global _shared
    if _shared is None:
        _shared = Page()
        atexit.register(_shared.close)
    return _shared


class Page:
    def __init__(self, url="about:blank", width=1280, height=860, scale=1):
        browser, driver = binaries()
        options = Options()
        options.binary_location = browser
        for flag in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--no-first-run",
                     "--disable-background-networking", "--hide-scrollbars", f"--window-size={width},{height}",
                     f"--force-device-scale-factor={scale}", "--lang=en", "--host-resolver-rules=MAP *.example 127.0.0.1"):
            options.add_argument(flag)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")  # Chromium's own sandbox does not run as root
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.url = url
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source=RECORD_REQUESTS)
        self.color_scheme("light")
        self.viewport(width, height, scale)

    def close(self):
        self.driver.quit()

    def cdp(self, command, **parameters):
        return self.driver.execute_cdp_cmd(command, parameters)

    def color_scheme(self, value):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def viewport(self, width, height, scale=1, mobile=False):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)
        self.cdp("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def open(self, clean=True, settings=None):
        """Loads the page; `clean` forgets what it kept, `settings` are those of new conversations."""
        self.driver.get(self.url)
        if clean:
            self.js("localStorage.clear(); if (arguments[0]) localStorage.setItem('ingot.settings', JSON.stringify(arguments[0]))", settings)
            self.driver.get(self.url)
        self.until(lambda: self.js("return document.getElementById('model-name').textContent") not in ("…", ""), "the models")

    def violations(self):
        """What axe has to say about the page as it is, but for the inside of formulas: [rule, where, why]."""
        import axe_core_python
        if not self.js("return Boolean(window.axe)"):
            with open(os.path.join(os.path.dirname(axe_core_python.__file__), "axe.min.js"), encoding="utf-8") as file:
                self.js(file.read())
        found = self.driver.execute_async_script("""
            const done = arguments[arguments.length - 1];
            axe.run({exclude: [['.katex']]}, {resultTypes: ['violations']}).then((result) => done(result.violations.flatMap((rule) =>
              rule.nodes.map((node) => [rule.id, node.target.join(' '), node.any.concat(node.all, node.none).map((check) => check.message).join('; ')]))),
              (error) => done([['axe', String(error), '']]));""")
        return found

    def choose(self, field, **files):
        """Chooses files in a file field: name=text or bytes, '_' for the dot."""
        self.js("""const data = new DataTransfer();
                   for (const [name, bytes] of arguments[1]) data.items.add(new File([new Uint8Array(bytes)], name));
                   const field = document.querySelector(arguments[0]); field.files = data.files;
                   field.dispatchEvent(new Event('change'));""", field,
                [[name.replace("_", "."), list(text.encode() if isinstance(text, str) else text)] for name, text in files.items()])

    def paste(self, text):
        self.js("""const data = new DataTransfer(); data.setData('text/plain', arguments[0]);
                   document.getElementById('input').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}))""", text)

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def worked_s(self):
        """Seconds that the page's thread has had of a core, whatever else the machine does."""
        self.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        metrics = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "ThreadTime")

    def one(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def until(self, condition, what, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                value = condition()
            except WebDriverException:  # the element was replaced meanwhile
                value = None
            if value:
                return value
            time.sleep(0.03)
        raise AssertionError(f"waited {seconds} s in vain for {what}")

    def click(self, css):
        self.one(css).click()

    def text(self, css):
        return self.js("const e = document.querySelector(arguments[0]); return e ? e.textContent : ''", css)

    def keys(self, *keys):
        self.driver.switch_to.active_element.send_keys(*keys)

    def type(self, text):
        self.one("#input").send_keys(text)

    def send(self, text):
        self.type(text)
        self.keys(Keys.ENTER)

    def ask(self, text, seconds=40):
        """Sends and waits for the whole answer; its text."""
        before = len(self.sent())
        self.send(text)
        self.until(lambda: len(self.sent()) > before, "the request")
        return self.answered(seconds)

    def answered(self, seconds=40):
        self.until(lambda: not self.streaming() and self.all(".assistant"), "the answer", seconds)
        return self.last_answer()

    def streaming(self):
        return self.js("return document.querySelectorAll('.streaming').length") > 0

    def last_answer(self):
        return self.js("return [...document.querySelectorAll('.assistant .markdown')].pop()?.textContent ?? ''")

    def sent(self):
        return self.js("return window.sent")

    def button(self, turn_css, label):
        """Clicks the button with this label in the last turn that matches."""
        self.js("""const turn = [...document.querySelectorAll(arguments[0])].pop();
                   [...turn.querySelectorAll('button')].find((b) => b.textContent === arguments[1] ||
                     b.getAttribute('aria-label') === arguments[1]).click()""", turn_css, label)

    def set_field(self, css, value):
        """As typing does, without the time it takes."""
        self.js("""const field = document.querySelector(arguments[0]); field.value = arguments[1];
                   field.dispatchEvent(new Event('input', {bubbles: true})); field.dispatchEvent(new Event('change', {bubbles: true}))""",
                css, value)

    def faults(self):
        return self.js("return window.faults")
