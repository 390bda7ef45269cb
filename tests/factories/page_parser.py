"""A page taken apart, for the tests of pages."""

import base64
import json
import zlib
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

    def tags(self, name: str) -> list[tuple[str, dict[str, str | None]]]:
        """The elements of that tag, in their order."""
        return [(tag, attributes) for tag, attributes in self.elements if tag == name]

    def script(self, name: str) -> str:
        """The content of the script element of that id, inflated where it is packed."""
        every = [attributes for _, attributes in self.tags("script")]
        (place,) = [i for i, attributes in enumerate(every) if attributes.get("id") == name]
        is_packed = every[place].get("type") == "application/octet-stream"
        text = self.scripts[place]
        return zlib.decompress(base64.b64decode(text)).decode() if is_packed else text

    def data(self) -> dict:
        """Figures and tables as the page draws them and hands them out."""
        return json.loads(self.script("data"))

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
