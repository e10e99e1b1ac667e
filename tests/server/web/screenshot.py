"""Pictures of the chat page for the documentation: light and dark side by side."""

import base64
import io
import os
import time

QUESTION = "What is a KV cache? Answer with a short definition, a list, and a few lines of Python."


def take(arguments):
    """Writes arguments.screenshot: the page of a server (or of the mock) after a short conversation."""
    import mock_server
    from browser import Page
    stop = lambda: None
    if arguments.server:
        url = arguments.server
    elif arguments.ingot:
        from server import Server
        process = Server()
        process.start()
        url, stop = process.url, process.stop
    else:
        with open(os.path.join(arguments.page, "chat.html"), encoding="utf-8") as page, \
                open(os.path.join(arguments.page, "chat.csp"), encoding="utf-8") as csp:
            _, server, url = mock_server.start(page.read(), csp.read())
        stop = server.shutdown
    shots = []
    try:
        page = Page(url.rstrip("/") + "/", 1180, 800)
        try:
            page.open(settings={"max_tokens": 150, "temperature": 0})
            converse(page, arguments)
            for scheme in ("light", "dark"):
                page.color_scheme(scheme)
                time.sleep(0.5)
                shots.append(base64.b64decode(page.driver.get_screenshot_as_base64()))
        finally:
            page.close()
    finally:
        stop()
    os.makedirs(os.path.dirname(os.path.abspath(arguments.screenshot)), exist_ok=True)
    side_by_side(url, shots, arguments.screenshot)


def converse(page, arguments):
    page.ask("Name three metals that are cast into ingots.", 120)
    page.click("#new-chat")
    page.ask("Write a haiku about graphite.", 120)
    page.click("#new-chat")
    page.ask(QUESTION if arguments.server or arguments.ingot else "Please show markdown", 240)
    time.sleep(4.5)  # two more points of the throughput


def side_by_side(url, shots, path):
    """Joins the pictures in the browser, which is at hand anyway."""
    from browser import Page
    page = Page("data:text/html,<body></body>", 600, 400)
    try:
        page.driver.get(page.url)
        data = page.driver.execute_async_script("""
            const done = arguments[arguments.length - 1];
            Promise.all(arguments[0].map((text) => new Promise((ready) => {
              const image = new Image(); image.onload = () => ready(image); image.src = 'data:image/png;base64,' + text;
            }))).then((images) => {
              const gap = 16, canvas = document.createElement('canvas');
              canvas.width = images.reduce((sum, i) => sum + i.width + gap, -gap); canvas.height = images[0].height;
              let x = 0;
              for (const image of images) { canvas.getContext('2d').drawImage(image, x, 0); x += image.width + gap; }
              done(canvas.toDataURL('image/png').split(',')[1]);
            });""", [base64.b64encode(shot).decode() for shot in shots])
    finally:
        page.close()
    with open(path, "wb") as file:
        file.write(io.BytesIO(base64.b64decode(data)).getvalue())
    print(f"{path}: {os.path.getsize(path) // 1024} KB")
