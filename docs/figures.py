"""Draws the figures of the pages from the committed results, by `ww.plot` and headless Chromium.

Run: python docs/figures.py (needs playwright and a Chromium). Numbers come from records alone.
"""

import re
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import whatwhere as ww
from whatwhere.records import read_records, write_records

DOCS = Path(__file__).parent
OUT = DOCS / "figures"
STUDY = ["results/2026-11-22-wikipedia/records.parquet"]
FIGURES = {  # file -> records, figure
    "position": (STUDY, "position"),
    "heads": (STUDY, "heads"),
    "corpus-stress": (STUDY, "corpus-stress"),
    "linguistic": (["results/2026-11-23-evaluation/linguistic.parquet"], "linguistic"),
}


def drawn(page, records: list[str], name: str) -> str:
    """A figure of the page of some records as SVG."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        run.mkdir()
        write_records(run / "records.parquet", [r for file in records for r in read_records(DOCS / file)])
        if (study := DOCS / Path(records[0]).parent / "claims.json").is_file():
            shutil.copy(study, run)
        figure = ww.plot(run, name, width=760)
    page.set_content(figure.to_html(include_plotlyjs=True))
    size = {"format": "svg", "width": figure.layout.width, "height": figure.layout.height}
    page.wait_for_function("document.querySelector('.plotly-graph-div')?._fullLayout")
    url = page.evaluate("size => Plotly.toImage(document.querySelector('.plotly-graph-div'), size)", size)
    svg = page.evaluate("url => decodeURIComponent(url.slice(url.indexOf(',') + 1))", url)
    svg = re.sub(r" trace[0-9a-f]{6}(?=\")", "", svg)
    names: dict[str, str] = {}  # plotly draws its ids by chance
    for found in re.findall(r'id="([\w-]+)"', svg):
        names.setdefault(found, f"{name}-{len(names)}")
    for found in sorted(names, key=len, reverse=True):
        svg = re.sub(rf'(id="|#){re.escape(found)}(?=["\')])', rf"\g<1>{names[found]}", svg)
    return svg


def main() -> None:
    OUT.mkdir(exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for file, (records, name) in FIGURES.items():
            (OUT / f"{file}.svg").write_text(drawn(browser.new_page(), records, name) + "\n", encoding="utf-8")
        browser.close()


if __name__ == "__main__":
    main()
