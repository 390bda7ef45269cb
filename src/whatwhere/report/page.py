"""A page of the report: one HTML file that needs nothing else, made from figures, tables and words.

Nothing from outside becomes markup: the template escapes everything, data travels as JSON without `<`, `>` and `&`,
characters that hide or turn text are replaced, and a content security policy lets only the page's own scripts run (by
their hashes) and fetches nothing at all.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from ..run.files import new_folder, write_text
from . import ledger
from .explorer import Explorer
from .figure import MOST_ROWS, Figure, Table, csv_text
from .loaded_run import visible
from .pick import Pick
from .style import FONT, MAPS, PALETTES

_TEMPLATES = Path(__file__).parent / "templates"
GENERATOR = '<meta name="generator" content="whatwhere">'  # a page of ours may be written over


@dataclass(frozen=True)
class Section:
    """A part of the page that answers one question.

    short: its name in the bar, where the title is too long for it. more: figures behind a fold. folded: all of it is.
    """

    id: str
    title: str
    intro: str
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    short: str = ""
    more: list[Figure] = field(default_factory=list)
    folded: bool = False

    @property
    def choices(self) -> list[list[Figure]]:
        """The figures, those that a reader chooses between together."""
        return [list(group) for _, group in groupby(self.figures, key=lambda f: f.choice != "" or f.id)]


@dataclass(frozen=True)
class How:
    """The last section. Each part may be empty.

    words: paragraphs. facts: heading and rows of name and value. configs: heading and text of a fold.
    cite: the cited work, and its BibTeX. In `words` and `cite`, `Markup` stands unescaped: for our own words only.
    """

    words: Sequence[str] = ()
    facts: Sequence[tuple[str, Sequence[tuple[str, str]]]] = ()
    versions: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    configs: Sequence[tuple[str, str]] = ()
    cite: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Page:
    """Contents of a page from top to bottom; only the title is needed. `Backticks` in any words are set as code.

    summary: pieces of the line below the title; glossary: pieces of a second line. caveats: shown under the title;
    notes: in the last section. Beside the large figure `hero` stands either `pick`, a row a model, or `lead`, what
    came out in plain sentences under headings. models: heading and entries of each family (`schemes.listed`);
    gated: those whose panels are drawn grey; aside: those that figures show when a reader asks for them. Sections
    without figures and tables are left out. explorer: maps of every head, below the first screen. claims: as in
    claims.json, with the `reference` of each where a reference study stands beside the run, above the first section
    that is folded. beside: tokens, text and seeds of that study.
    """

    title: str
    summary: Sequence[str] = ()
    glossary: Sequence[str] = ()
    caveats: Sequence[str] = ()
    notes: Sequence[str] = ()
    lead: Sequence[tuple[str, Sequence[str]]] = ()
    pick: Pick | None = None
    hero: Figure | None = None
    models: Sequence[Any] = ()
    gated: Sequence[str] = ()
    aside: Sequence[str] = ()
    sections: Sequence[Section] = ()
    explorer: Explorer | None = None
    claims: Sequence[Mapping[str, Any]] = ()
    beside: str = ""
    how: How = How()


def write_page(path: Path, page: Page) -> Path:
    """Write a page to `path`; returns the path.

    Raises ValueError: a file is there that is no page of ours.
    """
    path = Path(path)
    if path.is_file() and GENERATOR not in path.read_bytes()[:20_000].decode("utf-8", "replace"):
        raise ValueError(f"{path} is a file that whatwhere did not write: it is left unchanged. Give another name.")
    write_text(path, render_page(page))
    return path


def write_tables(page: Page, folder: str | Path) -> list[Path]:
    """Write every table of a page as `ID.csv` into `folder`, all or none; returns the paths.

    The folder is made, or replaced if it holds nothing but CSV files.

    Raises ValueError: there is something else at `folder`.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file. Give a folder for the tables.")
    if others := sorted(p.name for p in folder.glob("*") if p.suffix != ".csv"):
        raise ValueError(f"{folder} holds {others[0]}, which is no CSV file. Give a new folder for the tables.")
    with new_folder(folder) as new:
        for table in page_tables(page, page.sections):
            name = re.sub(r"[^\w.-]", "_", table.id).lstrip(".") or "table"
            with (new / f"{name}.csv").open("x", encoding="utf-8", newline="") as file:
                file.write(csv_text(table))
    return sorted(folder.glob("*.csv"))


def render_page(page: Page) -> str:
    """Render a page as HTML.

    Raises ValueError: a number in a figure is not finite.
    """
    sections = _keys_once(page.hero, [s for s in page.sections if s.figures or s.tables or s.more])
    figures = page_figures(page.hero, sections)
    claims = ledger.shown(page.claims)
    tables = [t for t in page_tables(page, sections) if len(t.rows) > MOST_ROWS or t.id == "claims"]
    palettes = {theme: colours | MAPS[theme] for theme, colours in PALETTES.items()}
    data = {
        "tables": {t.id: csv_text(t) for t in tables},
        "figures": {f.id: [{"data": p.data, "layout": p.layout} for p in f.panels] for f in figures},
    }
    parts = ["report", "explorer"] if page.explorer else ["report"]
    scripts = [(_TEMPLATES / f"{part}.js").read_text(encoding="utf-8") for part in parts]
    styles = [(_TEMPLATES / f"{part}.css").read_text(encoding="utf-8") for part in parts]
    shown = {
        "sections": [s for s in sections if not s.folded],
        "folded": [s for s in sections if s.folded],
        "claims": claims,
        "judged": [claim for claim in claims if claim.judged],
        "counted": ledger.counts(claims),
        "unjudged": ledger.folds(claims),
        "explorer_data": script_json(page.explorer.data) if page.explorer else "",
        "palettes": PALETTES,
        "font": FONT,
        "style": Markup("".join(styles)),
        "colour_data": script_json({"palettes": palettes}),
        "data": _packed(script_json(data)),
        "plotly": _packed_plotly() if figures else "",  # a page of an explorer alone stays small
        "scripts": [Markup(script) for script in scripts],
        "policy": policy([get_plotlyjs(), *scripts] if figures else scripts),
    }
    return _environment().get_template("report.html.j2").render(vars(page) | shown)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # Markup is our own
    )
    environment.filters |= {
        "code": code_spans,
        "plain": lambda words: str(words).replace("`", ""),
        "shown": ledger.shown_verdict,
    }
    environment.globals |= {"sources": sources, "most_rows": MOST_ROWS}
    return environment


@cache
def _packed_plotly() -> str:
    """The library that draws, as `_packed`. The page's policy knows the text's hash."""
    return _packed(get_plotlyjs())


def _packed(text: str) -> str:
    """Deflate a text, as base64: a third of the size of a library, a seventh of the size of numbers."""
    return base64.b64encode(zlib.compress(text.encode("utf-8"), 9)).decode()


def sources(records: Sequence[str]) -> str:
    """Return a sentence on where the numbers of a figure are kept: its records, then its array files."""
    files = ", ".join(f"`{name}`" for name in records if name.startswith("arrays/"))
    metrics = ", ".join(f"`{name}`" for name in records if not name.startswith("arrays/"))
    sentences = (metrics and f"Records: {metrics}, in `records.parquet`.", files and f"Arrays: {files}.")
    return " ".join(filter(None, sentences))


def page_figures(hero: Figure | None, sections: Sequence[Section]) -> list[Figure]:
    """Return every figure that the page shows, in its order."""
    below = [f for s in sections for f in (*s.figures, *s.more)]
    return [hero, *below] if hero else below


def page_tables(page: Page, sections: Sequence[Section]) -> list[Table]:
    """Return every table that the page shows."""
    picked = [page.pick.table, *(comparison.table for comparison in page.pick.beside)] if page.pick else []
    first = [*picked, ledger.table(ledger.shown(page.claims))]
    behind = [f.table for f in page_figures(page.hero, sections)]
    return [*(t for t in first if t), *behind, *(t for s in sections for t in s.tables), *page.how.tables]


def _keys_once(hero: Figure | None, sections: list[Section]) -> list[Section]:
    """Return the sections with a mark explained where it appears first, a reference study's marks in every figure."""
    keys = set(hero.key) if hero else set()

    def once(figures: list[Figure]) -> list[Figure]:
        shown = []
        for figure in figures:
            # A mark of the reference study is explained wherever it stands: it is too small to be remembered.
            key = [entry for entry in figure.key if entry[0] == "reference" or entry not in keys]
            shown.append(replace(figure, key=key))
            keys.update(figure.key)
        return shown

    return [replace(s, figures=once(s.figures), more=once(s.more)) for s in sections]


def policy(scripts: Sequence[str]) -> str:
    """Return the content security policy: these scripts by hash, inline styles, images that the page makes; no
    requests."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    rest = "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; {rest}"


def script_json(data: Any) -> Markup:
    """Return data as JSON that can stand inside a script element, its strings made visible.

    Raises ValueError: a number is not finite.
    """
    return htmlsafe_json_dumps(visible(data), allow_nan=False, separators=(",", ":"))


def code_spans(words: str) -> Markup:
    """Escape text and turn its `backticks` into code elements; `Markup` stays unescaped."""
    if isinstance(words, Markup):
        return words
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(visible(words)))))
