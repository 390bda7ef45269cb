"""A page opened in headless Chromium with the network off."""

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


class View:
    """An opened page and all that went wrong in it."""

    def __init__(self, browser, path, width=1400, scheme="light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        self.context.set_offline(True)
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
        self.page.goto(path.as_uri(), timeout=120_000)
        self.ready()

    def ready(self):
        self.page.wait_for_selector("html[data-ready=true]", timeout=120_000)

    def download(self, selector):
        """The text that a click on a button hands out, and its file name."""
        with self.page.expect_download() as info:
            self.page.click(selector)
        return info.value.path().read_text(encoding="utf-8"), info.value.suggested_filename

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()
