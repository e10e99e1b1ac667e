"""Pictures of the chat page for the documentation: light, dark, on a phone. What is said in them is scripted."""

import base64
import pathlib

import browser
import mock_server
import page_case

ROOTS = r"""A quadratic equation $ax^2 + bx + c = 0$ with $a \neq 0$ has the roots

$$x_{1,2} = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}$$

They are real when the discriminant $\Delta = b^2 - 4ac$ is not negative. For $x^2 - 5x + 6 = 0$ it is $\Delta = 1$, so that

\[ x_1 = \frac{5 + 1}{2} = 3, \qquad x_2 = \frac{5 - 1}{2} = 2. \]

| $\Delta$ | roots |
|---|---|
| $> 0$ | two |
| $= 0$ | one, $x = -\frac{b}{2a}$ |
| $< 0$ | none that are real |
"""
THOUGHT = "The log has one line a request. The slow ones wait for a prefill of 6,001 tokens, so a budget a step would help."
SLOW = """The slow requests all came in while one prompt of 6,001 tokens was read. A **budget of tokens a step** keeps their streams going:

```python
def rows(budget, decodes, prompt):
    # streams first, then as much of the prompt as fits
    return decodes + min(prompt, budget - decodes)
```

1. Lower `--target-step-ms`, or leave it out: 1.6 times a step without prefill.
2. Look at `vllm:inter_token_latency_seconds` again.
"""
LOG = "".join(f"time=2026-11-16T09:{i % 60:02}:12Z method=POST path=/v1/chat/completions status=200 duration_ms={97 * i % 900}\n" for i in range(260))
REPORT = "".join(f"{i}. In the year {1800 + i} the foundry cast {37 * i % 900} ingots of brass and {91 * i % 700} of bronze.\n" for i in range(420))


def scripted(question, turns):
    if "roots" in question:
        return mock_server.split(ROOTS, 6), 0.002, "stop"
    if "slow" in question:
        return ["<think>", THOUGHT, "</think>\n\n", *mock_server.split(SLOW, 6)], 0.002, "stop"
    return mock_server.split("Brass, bronze and steel.", 3), 0.01, "stop"


def shoot(page, path):
    page.js("document.activeElement.blur()")
    page.until(lambda: page.js("return document.fonts.status === 'loaded'"), "the fonts")
    path.write_bytes(base64.b64decode(page.driver.get_screenshot_as_base64()))
    print(f"{path}: {path.stat().st_size // 1000} kB")


def take(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    mock_server.answer = scripted
    _, _, url = page_case.mock_of_all()
    page = browser.shared()
    page.url = url
    page.viewport(1080, 760)
    page.open()
    page.ask("Name three alloys that are cast into ingots.")
    page.click("#new-chat")
    page.ask("What are the roots of a quadratic equation?")
    page.until(lambda: page.all(".tex.set") and not page.all(".tex:not(.set)"), "the formulas")
    page.js("document.getElementById('scroller').scrollTop = 0")
    shoot(page, folder / "chat.png")

    page.click("#new-chat")
    page.choose("#attach-file", server_log=LOG)
    page.until(lambda: page.all("#attached .file"), "the attachment")
    page.ask("Why are some of these requests slow?")
    page.color_scheme("dark")
    page.until(lambda: page.js("return document.documentElement.dataset.theme") == "dark", "the dark")
    shoot(page, folder / "chat-dark.png")

    page.color_scheme("light")
    page.viewport(390, 780, 1, mobile=True)
    page.open()
    page.paste(REPORT)
    page.send("Which year cast the most bronze, of all that you read")
    page.until(lambda: page.text(".reading").startswith("Read 2,048"), "how far it is")
    page.type("And the most brass?")
    shoot(page, folder / "chat-phone.png")
