"""What mkdocs.yml adds to the pages of this folder: the reference, and the files of the repository that pages link to.

A page may link to any file of the repository as seen from its own place (`../examples/kerple.py`), as on a code host;
on the site the link leads to a page that shows the file.
"""

import posixpath
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)")
LANGUAGES = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml"}
INTRO = """# Commands

Every verb, from its own help: `whatwhere VERB --help` says the same. What a command prints is for people;
`--json` gives one object instead. Wrong input ends with status 2 and one line that says what would be right.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of the package, and those of files that pages link to."""
    made = {"reference/commands.md": commands(), "reference/metrics.md": metrics(), "reference/python.md": python()}
    for file in files.documentation_pages():
        for link in LINK.findall(file.content_string):
            place = outside(file.src_uri, link)
            if place and (ROOT / place).is_file():
                made[f"source/{place}.md"] = shown(place)
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave the folder of the pages to the pages that show those files."""
    here = page.file.src_uri

    def led(match: re.Match[str]) -> str:
        place = outside(here, match[1])
        return posixpath.relpath(f"source/{place}.md", posixpath.dirname(here) or ".") if place else match[1]

    return LINK.sub(led, markdown)


def outside(page: str, link: str) -> str | None:
    """The path in the repository of what a page links to, where that is no file of this folder."""
    place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if place.startswith("docs/") else place


def shown(place: str) -> str:
    """A page that shows a file: a text as it is, but for its links to pages, of others the source."""
    text = (ROOT / place).read_text(encoding="utf-8")
    if place.endswith(".md"):
        return re.sub(r"\]\(docs/", f"]({posixpath.relpath('.', posixpath.dirname(f'source/{place}'))}/", text)
    return f"# {place}\n\n````{LANGUAGES.get(Path(place).suffix, 'text')}\n{text}````\n"


def row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def escaped(text: str) -> str:
    """Words of a help text as Markdown: what stands in angle or square brackets is no tag and no link."""
    return re.sub(r"([<*_\[\]])", r"\\\1", text)


def commands() -> str:
    """The page of every verb, from what its help says."""
    from typer.main import get_command

    from whatwhere.cli.verbs import app

    lines = [INTRO]

    def describe(name: str, command: Any, level: str) -> None:
        inner = getattr(command, "commands", {})
        lines.extend([f"{level} {name}", "", escaped(" ".join((command.help or "").split())), ""])
        for each in inner:
            describe(f"{name} {each}", inner[each], f"{level}#")
        if inner:
            return
        context = command.context_class(command, info_name=name)
        here = [p for p in command.params if p.name != "help"]
        said = {p.name: p.get_help_record(context) for p in here}  # (`--out PATH`, `Folder ... [required]`)
        needed = [said[p.name][0] for p in here if p.param_type_name == "argument" or p.required]
        usage = " ".join(["whatwhere", name, *needed, "[OPTIONS]"])
        lines.extend(["```text", usage, "```", "", row("option", "what it says"), row("---", "---")])
        lines.extend(row(f"`{flags}`", escaped(text)) for flags, text in said.values())
        lines.append("")

    for name, command in get_command(app).commands.items():
        describe(name, command, "##")
    return "\n".join(lines)


def metrics() -> str:
    """The page of every metric and of how each is measured."""
    from whatwhere.records.metrics import all_metrics, methods

    rows = all_metrics()
    lines = [
        "# Metrics\n",
        "Every value of a run is a row of its `records.parquet`: a metric, a value, an interval (`low`, `high`), what",
        "it was taken of (`model`, `seed`, `step`, `layer`, `head`, `part`, `index`) and how many (`n`).\n",
        row(
            "metric", "what a value is", "unit", "`part` names", "`index` counts", "`n` counts", "interval over", "how"
        ),
        row(*["---"] * 8),
    ]
    for m, group in groupby(rows, rows.__getitem__):
        how = f"[{m.method}](#{m.method})" if m.method else ""
        names = ", ".join(f"`{name}`" for name in group)
        lines.append(row(names, m.name, m.unit, m.part, m.index, m.counts, m.over, how))
    lines.append("\n## How each is measured\n")
    for key, text in methods().items():
        lines.extend([f"### {key}\n", "\n\n".join(text), ""])
    return "\n".join(lines)


def python() -> str:
    """The page of the public names, from their docstrings."""
    import whatwhere
    from whatwhere import corpus, geometry

    more = {
        "whatwhere.records.record": ["Record", "read_records", "write_records", "select"],
        "whatwhere.corpus": sorted(corpus.__all__, key=str.lower),
        "whatwhere.training.corpus_settings": ["CorpusConfig", "prepare_windows"],
        "whatwhere.training.finetune": ["FinetuneConfig", "finetune"],
        "whatwhere.study.finetune_run": ["run_finetuning"],
        "whatwhere.models.open": ["OpenModel", "open_config", "open_model"],
        "whatwhere.models.model_tables": ["read_table"],
    }
    lines = ["# Python\n", "`import whatwhere as ww` gives these names; each is imported when it is first used.\n"]
    names = [name for name in whatwhere.__all__ if name not in ("__version__", "encoder", "geometry")]
    lines += ["## whatwhere\n", *(f"::: whatwhere.{name}\n" for name in names)]
    lines += ["## whatwhere.geometry\n", "numpy and scipy only: arrays in, arrays out, float64.\n"]
    lines += (f"::: whatwhere.geometry.{name}\n" for name in sorted(geometry.__all__, key=str.lower))
    for module, held in more.items():
        lines += [f"## {module}\n", *(f"::: {module}.{name}\n" for name in held)]
    return "\n".join(lines)
