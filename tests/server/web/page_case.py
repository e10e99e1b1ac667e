"""A test of the chat page: the one browser that all share, before a mock with scripted answers or before a real server."""

import os
import unittest

import browser
import mock_server
import server

FOLDER = "build/src/server/web"  # with the page that the build made
_mock = None


def mock_of_all():
    global _mock
    if _mock is None:
        _mock = mock_server.start(FOLDER)
    return _mock


class PageCase(unittest.TestCase):
    maxDiff = None
    mock = None
    settings = None  # of new conversations

    def open(self, **options):
        self.page.open(**{"settings": self.settings, **options})

    def setUp(self):
        self.page.url = self.url
        self.open()

    def tearDown(self):
        self.assertEqual(self.page.faults(), [], "errors or blocked resources on the page")

    def has_katex(self):
        """False in a build that could not fetch it; then formulas stay as they were written."""
        return os.path.exists(os.path.join(FOLDER, "katex.js"))

    def needs_katex(self):
        if not self.has_katex():
            self.skipTest("this build has no KaTeX: run scripts/fetch_katex.sh and configure again")

    def last_request(self):
        return self.page.sent()[-1]


class MockCase(PageCase):
    @classmethod
    def setUpClass(cls):
        cls.mock, _, cls.url = mock_of_all()
        cls.page = browser.shared()

    def setUp(self):
        self.mock.reset()
        super().setUp()

    def long_question(self):
        return "slow"


class ServedCase(PageCase):
    """Before a server with a real model: INGOT_PAGE_SERVER names one that runs. Answers are kept short."""

    settings = {"max_tokens": 16, "temperature": 0}

    @classmethod
    def setUpClass(cls):
        cls.process, cls.url = None, os.environ.get("INGOT_PAGE_SERVER", "")
        if not cls.url:
            cls.process = server.Server("--max-model-len", "4096")
            cls.process.start()
            cls.url = cls.process.url
        cls.url = cls.url.rstrip("/") + "/"
        cls.page = browser.shared()

    @classmethod
    def tearDownClass(cls):
        if cls.process:
            cls.process.stop()

    def long_question(self):
        self.page.set_field("#set-max_tokens", "3000")
        return "Count from 1 to 500, one number a line, all of them."
