"""A page opened in headless Chromium with the network off.

A busy machine may take its time: what a page is to become is waited for, up to `PATIENCE`, never how long it takes.
"""

from collections.abc import Callable

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE = 120_000  # milliseconds


class View:
    """An opened page and all that went wrong in it."""

    def __init__(self, browser, path, width=1400, scheme="light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        self.context.set_offline(True)
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.troubles: list[str] = []
        self.page.on("console", lambda m: self.troubles.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.troubles.append(f"error: {e}"))
        self.page.on("dialog", lambda d: (self.troubles.append(f"dialog: {d.message}"), d.dismiss()))
        self.page.on(
            "request",
            lambda r: (
                None if r.url.startswith(("file:", "data:", "blob:")) else self.troubles.append(f"request: {r.url}")
            ),
        )
        self.page.goto(path.as_uri())
        self.ready()

    def ready(self):
        self.page.wait_for_selector("html[data-ready=true]")

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the page does later; `wait_for_function` would evaluate a string, which the page's
        policy forbids."""
        for _ in range(PATIENCE // 50):
            if condition():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError("what was waited for did not happen")

    def frames(self) -> None:
        """Wait for two animation frames: what was asked of the next one is drawn."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def download(self, selector):
        """The text that a click on a button hands out, and its file name."""
        with self.page.expect_download() as info:
            self.page.click(selector)
        return info.value.path().read_text(encoding="utf-8"), info.value.suggested_filename

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()
