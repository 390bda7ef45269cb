"""Draws the figures of the pages: from the committed results and the presets, and from the tables of the pages
themselves. A figure of plotly's goes through headless Chromium.

Run: python docs/figures.py [NAME ...] (needs playwright and a Chromium but for reliability and method).
"""

import re
import runpy
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import torch

import whatwhere as ww
from whatwhere.records.record import read_records, select, write_records
from whatwhere.records.table import Point
from whatwhere.report.figure import Figure
from whatwhere.report.forms.axes import Axis
from whatwhere.report.forms.rows import PAPER, Row, Rows
from whatwhere.report.loaded_run import Run
from whatwhere.report.notebook import composed
from whatwhere.report.style import FONT, PALETTES

DOCS = Path(__file__).parent
OUT = DOCS / "figures"
STUDY = ["results/2026-11-25-equal-terms/records.parquet"]
LONG = [f"results/2026-11-25-length/{name}.parquet" for name in ("plain", "windows")]
EVALUATED = "results/2026-11-23-evaluation"
PLOTS = {  # file -> records, figure of the page of these records
    "position": (STUDY, "position", ["dstg", "ap"]),
    "two": (STUDY, "position", ["dstg", "rope"]),
    "heads": (STUDY, "heads", ["dstg", "one-rate-half-turn"]),
    "corpus-stress": (STUDY, "corpus-stress"),
    "linguistic": ([f"{EVALUATED}/linguistic.parquet"], "linguistic"),
    "glue": ([f"{EVALUATED}/glue.parquet"], "glue"),
    "squad": ([f"{EVALUATED}/squad.parquet", f"{EVALUATED}/restaurants.parquet"], "squad"),
    "mteb": ([f"{EVALUATED}/mteb.parquet"], "mteb-types"),
    "blimp": ([f"{EVALUATED}/blimp.parquet"], "blimp"),
    "separation": (["results/2026-11-20-separation/records.parquet"], "table-steps"),
    "length-loss": (LONG, "length-loss"),
    "length-gain": (LONG, "length-gain"),
}
WIDTH = 760  # pixels
ROW = 26
MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
INK = PALETTES["light"]
HOURS = {"1 hour": 1, "1 day": 24, "1 month": 730, "1 year": 8766, "100 years": 876600}
CORPORA = {  # what the pages call a corpus -> its records, its name there
    "SST-2": ("sst-2", "sst-2"),
    "IMDB": ("imdb", "imdb"),
    "WikiText-2": ("prose", "wikitext-2"),
    "tags of EWT": ("upos", "upos"),
    "Python lines": ("code", "python-lines"),
}


# ---- by plotly ----


def plotted(records: Sequence[str], name: str, models: Sequence[str] = ()) -> Any:
    """A figure of the page of some records, of a few of their models where these are named."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        run.mkdir()
        found = [r for file in records for r in read_records(DOCS / file) if not models or r.model in (*models, "")]
        write_records(run / "records.parquet", found)
        if (study := DOCS / Path(records[0]).parent / "claims.json").is_file():
            shutil.copy(study, run)
        return ww.plot(run, name, width=WIDTH)


def in_corpora(metric: str, **place: str) -> list[Row]:
    """A metric of each corpus of CORPORA, as counted and corrected."""
    rows = []
    for corpus, (file, model) in CORPORA.items():
        found = read_records(DOCS / f"results/2026-11-20-geometry/{file}.parquet")
        points = {}
        for kind, ending in (("as counted", ""), ("corrected", ".corrected")):
            (r,) = select(found, metric=metric + ending, model=model, **place)
            points[kind] = Point.between(r.value, r.low, r.high)
        rows.append(Row(corpus, points))
    return rows


def theory() -> Figure:
    """(A3) on five corpora: triples out of order, as counted and without the noise of small samples."""
    rows = []
    for row in in_corpora("violations", part="corpus"):
        file, model = CORPORA[row.name]
        found = read_records(DOCS / f"results/2026-11-20-geometry/{file}.parquet")
        (kept,) = select(found, metric="positions.kept", model=model)
        rows.append(replace(row, name=f"{row.name}, {kept.value:.0f}"))
    shares = [100 * row.points["corrected"].value for row in rows]
    title = f"(A3) allows no triple of positions out of order; in text {min(shares):.0f} to {max(shares):.0f} % are"
    x = Axis("triples in which the nearer position is the more distant one", "share", (0, 0.5))
    return rows_alone("theory", title, rows, x, "violations", {0.0: "(A3)", 0.5: "chance"})


def corpora() -> Figure:
    """How far apart the words of two positions are in five corpora, as counted and without the noise of samples."""
    rows = in_corpora("distance.mean")
    means = [[row.points[kind].value for row in rows] for kind in ("as counted", "corrected")]
    title = "Words of two positions look {:.2f} to {:.2f} apart; without noise it is {:.2f} to {:.2f}".format(
        *(end(values) for values in means for end in (min, max))
    )
    x = Axis("mean Hellinger distance of two positions, at most √2", include=(0,))
    return rows_alone("corpora", title, rows, x, "distance.mean", {})


def scale() -> Figure:
    """How long 9.2B and 1T tokens take at the rates of docs/scale.md; hollow: rates that are assumed."""
    page = (DOCS / "scale.md").read_text("utf-8")

    def rate(pattern: str, unit: float = 1.0) -> float:
        found = re.search(pattern, page)
        assert found is not None, pattern
        return float(found[1]) * unit

    letters = rate(r"([\d.]+) characters a token")
    rates = {  # tokens a second
        ("one core", "measured"): rate(r"float32: (\d+) tokens/s"),
        ("4 GPUs at 10 %", PAPER): rate(r"at 10 %: ([\d.]+)M tokens/s", 1e6),
        ("4 GPUs at 40 %", PAPER): rate(r"at 40 % [^|]*: ([\d.]+)M tokens/s", 1e6),
        ("text, one core", "measured"): rate(r"tokenising, ([\d.]+)M characters/s", 1e6) / letters,
    }
    rows = [
        Row(what, {kind: Point.between(hours)}, group=group, counts=False, never=_time(hours))
        for group, tokens in (("9.2B tokens", 9.2e9), ("1T tokens", 1e12))
        for (what, kind), speed in rates.items()
        for hours in [tokens / speed / 3600]
    ]
    title = "Four GPUs need hours for 9.2B tokens and days for 1T; one core years, centuries"
    figure = rows_alone("scale", title, rows, Axis("", "log", tuple(HOURS.values())), "seconds", {})
    figure.panels[0].layout["xaxis"] |= {"tickvals": list(HOURS.values()), "ticktext": list(HOURS), "tickangle": 0}
    return figure


def reach() -> Figure:
    """How far the layers of `reference` look, by the code of docs/how-to/analysis.md on its texts."""
    page = (DOCS / "how-to/analysis.md").read_text("utf-8")
    block = re.search(r'```python title="reach.py"\n(.*?)```', page, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1], names)  # of this repository
    values = names["reach"](ww.reference(), ww.reference())
    rows = [
        Row(f"layer {i}", {"": Point.between(of.mean().item(), of.min().item(), of.max().item())})
        for i, of in enumerate(values.T, start=1)
    ]
    ends = [min(rows, key=lambda row: row.points[""].value), max(rows, key=lambda row: row.points[""].value)]
    near, far = (f"{row.name} at {row.points[''].value:.2f}" for row in ends)
    title = f"In reference, {near} looks nearest and {far} farthest; bars: from the least to the most of 4 texts"
    return rows_alone(
        "reach", title, rows, Axis("mean distance ÷ that of even attention", include=(0, 1)), "own", {1.0: "even"}
    )


def rows_alone(name: str, title: str, rows: Sequence[Row], x: Axis, metric: str, levels: Mapping[float, str]) -> Figure:
    """A figure of rows that no page of a run has, without words under its title."""
    form = Rows(name, "", lambda run, drawn: title, x=x, columns=("", "", ""), records=(metric,), levels=levels)
    figure = replace(form, source=lambda run: rows).draw(Run(name))
    assert figure is not None
    return replace(figure, subtitle="")


def _time(hours: float) -> str:
    units = {"years": 8766, "days": 24, "hours": 1, "minutes": 1 / 60}
    unit, size = next((unit, size) for unit, size in units.items() if hours >= size)
    return f"{hours / size:.{0 if hours / size >= 10 else 1}f} {unit}"


def svg(page: Any, name: str, figure: Any) -> str:
    """A figure of plotly's as SVG, the same at every call."""
    page.set_content(figure.to_html(include_plotlyjs=True))
    size = {"format": "svg", "width": figure.layout.width, "height": figure.layout.height}
    page.wait_for_function("document.querySelector('.plotly-graph-div')?._fullLayout")
    url = page.evaluate("size => Plotly.toImage(document.querySelector('.plotly-graph-div'), size)", size)
    text = page.evaluate("url => decodeURIComponent(url.slice(url.indexOf(',') + 1))", url)
    text = re.sub(r" trace[0-9a-f]{6}(?=\")", "", text)
    names: dict[str, str] = {}  # plotly draws its ids by chance
    for found in re.findall(r'id="([\w-]+)"', text):
        names.setdefault(found, f"{name}-{len(names)}")
    for found in sorted(names, key=len, reverse=True):
        text = re.sub(rf'(id="|#){re.escape(found)}(?=["\')])', rf"\g<1>{names[found]}", text)
    return lighter(text, name)


def lighter(text: str, name: str) -> str:
    """The same SVG with each look said once, not at each mark."""
    text = re.sub(r' class="[^"]*"', "", text)  # they name nothing: plotly writes every look where it is
    looks = {look: f"{name}-look-{i}" for i, look in enumerate(dict.fromkeys(re.findall(r' style="([^"]+)"', text)))}
    text = re.sub(r' style="([^"]+)"', lambda found: f' class="{looks[found[1]]}"', text)
    rules = "".join(f".{of}{{{look}}}" for look, of in looks.items())
    return re.sub(r"(<svg [^>]*>)", lambda found: f"{found[1]}<style>{rules}</style>", text, count=1)


# ---- tables as pictures ----


def grid(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[tuple[str, str]]], first: int = 130) -> str:
    """Rows of cells (words, palette name) as SVG; an empty name leaves a cell blank."""
    wide = (WIDTH - first) / len(columns)
    head = 74
    height = head + ROW * len(rows) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="{FONT}" '
        f'font-size="14" fill="{INK["text"]}">',
        f'<rect width="100%" height="100%" fill="{INK["surface"]}"/>',
        f'<text x="10" y="28" font-size="17">{escape(title)}</text>',
    ]
    middle = [first + wide * (i + 0.5) for i in range(len(columns))]
    for x, words in zip(middle, columns, strict=True):
        parts.append(
            f'<text x="{x:.0f}" y="{head - 14}" text-anchor="middle" fill="{INK["muted"]}">{escape(words)}</text>'
        )
    for i, (name, cells) in enumerate(rows.items()):
        y = head + ROW * i
        parts.append(f'<text x="10" y="{y + 18}">{escape(name)}</text>')
        for x, (words, colour) in zip(middle, cells, strict=True):
            if colour:
                box = f'x="{x - wide / 2 + 2:.0f}" y="{y + 2}" width="{wide - 4:.0f}" height="{ROW - 4}" rx="4"'
                parts.append(f'<rect {box} fill="{INK[f"band-{colour}"]}"/>')
                ink = INK[f"ink-{colour}"]
                parts.append(f'<text x="{x:.0f}" y="{y + 18}" text-anchor="middle" fill="{ink}">{escape(words)}</text>')
    return "\n".join([*parts, "</svg>"])


def method() -> str:
    """The terms whose sum enters the softmax, by preset, as the models themselves name them."""
    columns = {
        "semantic": "word · word",
        "mixed": "(word + place)²",
        "semantic_to_absolute": "word · place",
        "absolute": "place · place",
        "semantic_to_relative": "word · distance",
        "relative": "distance",
    }
    colours = dict(zip(columns, ("semantic", "combined", "untied", "absolute", "untied", "relative"), strict=True))
    rows = {}
    for name in ww.encoder.PRESETS:
        config = ww.preset(name, "tiny", vocab_size=8, num_hidden_layers=1)
        terms = ww.Encoder(config).attention_terms(input_ids=torch.tensor([[2, 7, 3]]))
        said = {
            "semantic": "turned" if config.rotation != "none" else "words",
            "mixed": config.absolute,
            "semantic_to_absolute": "both ways",
            "absolute": "free" if config.untied == "free" else config.absolute,
            "semantic_to_relative": "both ways" if "relative_to_semantic" in terms else config.pair_terms,
            "relative": config.pair_terms if config.relative == "none" else config.relative,
        }
        cells = [(said[term].replace("_", " "), colours[term]) if term in terms else ("", "") for term in columns]
        apart = "own values" if config.relative_special != "none" else ""
        apart = "own, no place" if config.absolute_skips_special else apart
        if config.reset != "none":
            apart = "θ for both" if config.relative != "none" else "θ for place"
        rows[name] = [*cells, (apart, "combined" if apart else "")]
    return grid("A score is the sum of the terms of its row", [*columns.values(), "at [CLS], [SEP]"], rows)


def reliability() -> str:
    """Draw the table of docs/reliability.md: how often a work was struck, and how often it ended as it should."""
    table = (DOCS / "reliability.md").read_text("utf-8").split("<!-- faults -->")[1].split("<!-- end -->")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    modes = lines[0][1:]
    struck = 0
    well = 0
    rows = {}
    for work, *cells in lines[2:]:
        counts = [[int(count) for count in cell.split(" of ")] for cell in cells if cell]
        struck += sum(of[-1] for of in counts)
        well += sum(of[0] for of in counts)
        colours = ["absolute" if " of " in cell else cell and "relative" for cell in cells]
        rows[work.strip("`")] = list(zip(cells, colours, strict=True))
    how = "each" if struck == well else f"{well:,} of them"
    return grid(f"{struck:,} strikes; {how} noticed, or the same command ended bit-equal", modes, rows)


def chips(title: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str], str]]) -> str:
    """Rows of words, boxes with names, and words, each with a head, as SVG."""
    starts = (10, 200, 520)
    height = 74 + 40 * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="{FONT}" '
        f'font-size="14" fill="{INK["text"]}">',
        f'<rect width="100%" height="100%" fill="{INK["surface"]}"/>',
        f'<text x="10" y="28" font-size="17">{escape(title)}</text>',
        *(f'<text x="{x}" y="58" fill="{INK["muted"]}">{escape(w)}</text>' for x, w in zip(starts, heads, strict=True)),
    ]
    for i, (left, names, right) in enumerate(rows):
        y = 92 + 40 * i
        x = starts[1]
        parts += [f'<text x="{at}" y="{y}">{escape(words)}</text>' for at, words in ((10, left), (starts[2], right))]
        for name in names:
            wide = 8.5 * len(name) + 14
            parts.append(
                f'<rect x="{x:.0f}" y="{y - 19}" width="{wide:.0f}" height="28" rx="4" fill="{INK["band-semantic"]}"/>'
            )
            ink = f'fill="{INK["ink-semantic"]}" font-family="{MONO}"'
            parts.append(f'<text x="{x + wide / 2:.0f}" y="{y}" text-anchor="middle" {ink}>{escape(name)}</text>')
            x += wide + 8
    return "\n".join([*parts, "</svg>"])


def verbs() -> str:
    """Each verb of the program between what it takes and what it leaves."""
    rows = [
        ("a text", ["study"], "models, records, one page"),
        ("a text", ["windows"], "windows of tokens"),
        ("a text", ["pretrain"], "a model and its run"),
        ("a text", ["geometry"], "distances of positions"),
        ("a model", ["predict", "export"], "words, vectors, a graph"),
        ("a model", ["probe", "heads", "attention"], "what is inside: numbers, a page"),
        ("a model", ["spectra"], "shape of its position table"),
        ("a model", ["extrapolate"], "a copy for longer texts"),
        ("a model, tasks", ["finetune", "evaluate"], "a classifier, scores, a page"),
        ("a run", ["report", "claims"], "its page, its verdicts"),
        ("a run", ["status", "verify"], "how far it is, whether it is whole"),
        ("nothing", ["presets", "explain", "doctor"], "what there is to choose from"),
    ]
    return chips("What each verb takes and leaves", ("you have", "whatwhere ...", "you get"), rows)


def levels() -> str:
    """The parts of the package from the top down, as the test of the layout has them."""
    found = runpy.run_path(str(DOCS.parent / "tests/test_layout.py"))["LEVELS"]
    what = ["commands", "the API", "runs", "longer texts", "pages, benchmarks", "inside a model", "training"]
    what += ["models in use", "text in, batches out", "equations, rules", "what was measured", "files, jobs, signals"]
    what += ["names"]
    rows = []
    for words, parts in zip(what, found, strict=True):
        names = ["whatwhere" if name == "__init__" else name for name in sorted(parts - {"__main__"})]
        rows += [(words, names[:4], ""), *([("", names[4:], "")] if names[4:] else [])]
    return chips("A part imports only what stands below it", ("", "", ""), rows)


def opens() -> str:
    """Which files of a model's folder who reads."""
    readers = ["AutoModel", "SentenceTransformer", "whatwhere", "onnxruntime"]
    everywhere = ("reads", "semantic")
    rows = {
        "config.json, model.safetensors": [everywhere] * 3 + [("", "")],
        "tokenizer.json": [everywhere] * 3 + [("export's copy", "relative")],
        "modeling_whatwhere.py, ...": [
            ("without whatwhere", "absolute"),
            ("without whatwhere", "absolute"),
            ("", ""),
            ("", ""),
        ],
        "modules.json, 1_Pooling/": [("", ""), everywhere, ("", ""), ("", "")],
        "manifest.jsonl": [("", ""), ("", ""), ("compares", "semantic"), ("", "")],
        "export: model.onnx": [("", ""), ("", ""), ("", ""), ("reads", "relative")],
    }
    return grid("Which file of a model's folder is read by whom", readers, rows, 232)


PICTURES = {"method": method, "reliability": reliability, "verbs": verbs, "levels": levels, "opens": opens}
OWN = {"theory": theory, "corpora": corpora, "scale": scale, "reach": reach}


def main(names: Sequence[str]) -> None:
    OUT.mkdir(exist_ok=True)
    wanted = names or [*PICTURES, *PLOTS, *OWN]
    for name in PICTURES:
        if name in wanted:
            (OUT / f"{name}.svg").write_text(PICTURES[name]() + "\n", encoding="utf-8")
    if by_plotly := [name for name in (*PLOTS, *OWN) if name in wanted]:
        from playwright.sync_api import sync_playwright

        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for name in by_plotly:
                figure = plotted(*PLOTS[name]) if name in PLOTS else composed(OWN[name](), "light", WIDTH)
                (OUT / f"{name}.svg").write_text(svg(browser.new_page(), name, figure) + "\n", encoding="utf-8")
            browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
