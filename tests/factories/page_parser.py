"""A page taken apart, for the tests of pages."""

from html.parser import HTMLParser


class Parsed(HTMLParser):
    """Elements with their attributes, text, and the content of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._within = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._within = ""

    def handle_data(self, data):
        if self._within == "script":
            self.scripts[-1] += data
        elif self._within != "style":
            self.words.append(data)
