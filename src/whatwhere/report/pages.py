"""The page of a study as data: questions, each with its figures and tables; and facts of any run in words."""

import fnmatch
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import methods, schemes
from .cards import card
from .explorer import STUDY_BUDGET, load_explorer
from .figure import Cell, Figure, Table, count_cell, text
from .figures import attention, buys, corpus, fits, heads, shape, structure, where
from .numbers import compact, count, duration, memory, number, span
from .page import How, Page, Section, render_page
from .run import Run, load_run
from .titles import caveats, totals

MOST_BYTES = 9_800_000  # of a page with its explorer, whose texts give way to the figures

Draw = Callable[[Run], Any]  # -> a figure or table, several, or None


@dataclass(frozen=True)
class Question:
    """A section: a question, what leads to its answer, and what is drawn and listed. short: its name in the bar."""

    id: str
    title: str
    intro: str | Callable[[Run], str]
    figures: Sequence[Draw] = ()
    tables: Sequence[Draw] = ()
    short: str = ""

    def section(self, run: Run, above: str = "") -> Section:
        """The section of a run; `above`: the figure that stands on the first screen."""
        intro = self.intro if isinstance(self.intro, str) else self.intro(run)
        figures = [f for f in _several(run, self.figures) if f.id != above]
        return Section(self.id, self.title, intro, figures, _several(run, self.tables), self.short)


def _several(run: Run, draws: Sequence[Draw]) -> list[Any]:
    made = (draw(run) for draw in draws)
    return [
        traced(run, each)
        for found in made
        for each in (found if isinstance(found, list) else [found])
        if each is not None
    ]


def traced(run: Run, thing: Any) -> Any:
    """A figure or table that names, of the records and arrays that it may draw, those that the run has."""
    files = [f"arrays/{stem}.npz" for stem in run.arrays]
    held = []
    for entry in thing.records:
        names, _, columns = entry.partition(":")
        known = files if names.startswith("arrays/") else run.table.metrics
        found = [name for name in names.split(", ") if fnmatch.filter(known, name)]
        held += [", ".join(found) + (f":{columns}" if columns else "")] if found else []
    return replace(thing, records=tuple(held))


STUDY = (
    Question(
        "where",
        "Where is position kept?",
        lambda run: (
            "A linear probe reads where a token stands from the hidden state after every layer: from all of it, or "
            "from one stream "
            "alone. R² of 1 is a perfect reading, 0 no better than the mean. "
            + (
                "Each panel holds the models of one family, or one stream of those that have two; all others stand "
                "behind in grey."
                if schemes.many(run)
                else "Each panel is one model; the others stand behind it in grey."
            )
        ),
        [where.figures],
        short="Position",
    ),
    Question(
        "moves",
        "Does meaning move with position?",
        "The same text is read twice, the second time further on along the positions. Where distances alone count, the "
        "states stay as they "
        "were, a change of 0; the notes behind `split` say the same of its semantic states, whose values never see "
        "position while the "
        "attention weights do.",
        [where.SHIFT.draw],
        short="Shift",
    ),
    Question(
        "shape",
        "What shape does it take?",
        "A position table is a list of vectors, one a position. The principal components of a learned one show what "
        "the training made of "
        "it; a fixed one stays what it was. What the layers make of it is seen in the flatness of the hidden states, "
        "and in the distances "
        "that the attention of each layer still sees.",
        [shape.figures],
        short="Shape",
    ),
    Question(
        "heads",
        "Who uses it?",
        "The scores of attention are a sum of terms. What becomes of the attention, or of the loss, when one is taken "
        "away says which "
        "head, and which layer, goes by meaning, by absolute or by relative position.",
        [heads.figures, attention.figures],
        short="Heads",
    ),
    Question(
        "structure",
        "Does it know structure?",
        "Sentences and lines are structure that needs no labels. The hidden states of a document show whether tokens "
        "of one sentence lie "
        "together; neighbouring tokens are alike anyway, so every distance stands beside that of random cuts. A "
        "regression shows whether "
        "another model holds what a stream holds.",
        [structure.figures],
        short="Structure",
    ),
    Question(
        "corpus",
        "What does the corpus say?",
        "Before any model: how far the words at one position differ from those at another. Where they hardly do, a "
        "text gives a position "
        "table little to learn; the stress says how well a table's distances follow those of the text. Positions count "
        "from the start of a "
        "document, special tokens left out; where windows run on, models see later parts too.",
        [fits.of_study],
        [corpus.overview],
        short="Corpus",
    ),
    Question(
        "buys",
        "What does it buy?",
        lambda run: (
            "All models see the same batches with the same masks, so their losses can be compared step by step. "
            + (schemes.cost_differences(run) or schemes.matched(run) or "")
        ),
        [buys.figures],
        [buys.costs],
        short="Training",
    ),
)


def sections(run: Run, questions: Sequence[Question], above: Figure | None = None) -> list[Section]:
    """Every section the run could have, in the order of the questions; the page leaves empty ones out."""
    return [question.section(run, above.id if above else "") for question in questions]


def open_page(folder: str | Path) -> Page:
    """The page of a study's folder, with as many texts of its attention explorer as fit.

    Raises:
        ValueError: the folder has no records, or a file in it is damaged.
    """
    page = study_page(load_run(folder))
    if not (Path(folder) / "explorer.json").is_file():
        return page
    room = MOST_BYTES - len(render_page(page).encode())
    return replace(page, explorer=load_explorer(folder, min(STUDY_BUDGET, max(0, room))))


# ---- a study ----


def study_page(run: Run) -> Page:
    """The page of a study; `open_page` adds the explorer."""
    return Page(
        title=str(run.facts.get("title") or run.name),
        summary=summary(run),
        glossary=schemes.line(run),
        models=schemes.listed(run),
        caveats=study_caveats(run),
        notes=[str(note) for note in run.facts.get("notes") or []],
        cards=[card(c) for c in run.claims],
        hero=next(iter(_several(run, [where.POSITION.draw])), None),
        sections=sections(run, STUDY),
        explorer_after="heads",
        how=how(run),
    )


def study_caveats(run: Run) -> list[str]:
    """What the run is too small to say, and in what else than their scheme its models differ."""
    return [*caveats(run), *filter(None, (schemes.backbone_differences(run), schemes.cost_differences(run)))]


def corpus_name(run: Run) -> str:
    """Name of a study's corpus; empty if study.json has none."""
    found = run.facts.get("corpus")
    return str((found.get("name") if isinstance(found, dict) else found) or "")


def summary(run: Run) -> list[str]:
    """Corpus and size in one line: name; documents, characters, tokens; models; depth and width; training; seeds."""
    pieces = [corpus_name(run)] if corpus_name(run) else []
    sizes = [
        f"{compact(p.value)} {unit}"
        for unit in ("documents", "characters", "tokens")
        if (p := run.table.point(f"corpus.{unit}"))
    ]
    pieces += [", ".join(sizes)] if sizes else []
    if run.models:
        size = f" of size {run.facts['size']}" if isinstance(run.facts.get("size"), str) else ""
        depths = sorted({run.depth(m) for m in run.models})
        layers = count(depths[0], "layer") if len(depths) == 1 else f"{depths[0]} to {depths[-1]} layers"
        pieces.append(f"{count(len(run.models), 'model')}{size}, {layers}")
    if parameters := totals(run, "parameters"):
        pieces.append(f"{span(parameters)} parameters")
    if tokens := totals(run, "tokens"):
        pieces.append(f"{span(tokens)} training tokens each")
    return pieces + ([count(len(run.seeds), "seed")] if run.seeds else [])


def how(run: Run) -> How:
    """The last section: facts as name and value, one table of models, every configuration."""
    groups = [("Run", _run(run)), ("Corpus", _corpus(run)), ("Machine", machine(run.facts.get("machine")))]
    return How(
        words=methods.words(run),
        facts=[(name, rows) for name, rows in groups if rows],
        versions=flat(run.facts.get("versions")),
        tables=how_tables(run),
        configs=_configs(run),
        cite=methods.cited(run),
    )


def how_tables(run: Run) -> list[Table]:
    """Schemes and sizes of the models."""
    return [t for t in (schemes.table(run), _models_table(run)) if t]


def _configs(run: Run) -> list[tuple[str, str]]:
    """Heading and JSON of every configuration: one a model and seed, and what identifies the corpus."""
    folds: list[tuple[str, Any]] = []
    for entry in run.entries:
        seed = entry.get("seed")
        heading = str(entry.get("name") or "model") + (f", seed {seed}" if seed is not None else "")
        folds.append((heading, {k: v for k, v in entry.items() if k not in ("name", "seed")}))
    found = run.facts.get("corpus")
    folds += [("Corpus", found)] if isinstance(found, dict) else []
    return [(name, _json(body)) for name, body in folds]


def _json(body: Any) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False)


def _rows(rows: Sequence[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Facts that are known; a command's words in one line."""
    return [(k, " ".join(str(x) for x in v) if isinstance(v, list) else str(v)) for k, v in rows if v]


def _seconds(run: Run) -> str | None:
    seconds = run.facts.get("seconds")
    return duration(seconds) if isinstance(seconds, int | float) else None


def _run(run: Run) -> list[tuple[str, str]]:
    facts = run.facts
    return _rows(
        [
            ("Command", facts.get("command")),
            ("Started", facts.get("started")),
            ("Time", _seconds(run)),
            ("Size", facts.get("size")),
            ("Models", ", ".join(run.models)),
            ("Costs", schemes.matched(run)),
            ("Training seeds", ", ".join(str(s) for s in run.seeds)),
            ("Training tokens a model", span(found) if (found := totals(run, "tokens")) else None),
            ("Parameters a model", span(found) if (found := totals(run, "parameters")) else None),
        ]
    )


def _corpus(run: Run) -> list[tuple[str, str]]:
    found = run.facts.get("corpus")
    counts = {k: p for k in ("documents", "characters", "tokens", "windows") if (p := run.table.point(f"corpus.{k}"))}
    rows = [("Name", corpus_name(run))] if corpus_name(run) else []
    rows += [(k.capitalize(), number(p.value)) for k, p in counts.items()]
    if isinstance(found, dict):
        known = {"length": "Window length", "join": "Windows joined", "vocab_size": "Vocabulary"}
        rest = {k: v for k, v in found.items() if k != "name" and k not in counts and not isinstance(v, dict | list)}
        rows += flat({known.get(k, k.replace("_", " ").capitalize()): v for k, v in rest.items()})
    return rows


def machine(found: Any) -> list[tuple[str, str]]:
    """The facts of a machine as name and value."""
    if not isinstance(found, dict):
        return []
    names = {"cpu": "Processor", "cores": "Cores", "memory_bytes": "Memory", "accelerator": "Accelerator"}
    rows: list[tuple[str, str]] = []
    for key, fact in found.items():
        shown = (
            memory(fact)
            if key.endswith("_bytes") and isinstance(fact, int | float)
            else "none"
            if fact is None
            else str(fact)
        )
        rows.append((names.get(key) or str(key), shown))
    return rows


def flat(found: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested facts as name and value."""
    rows: list[tuple[str, str]] = []
    for key, item in found.items() if isinstance(found, dict) else ():
        if isinstance(item, dict):
            rows += flat(item, f"{prefix}{key} ")
        elif isinstance(item, bool) or not isinstance(item, int | float):
            rows.append((f"{prefix}{key}", ", ".join(str(i) for i in item) if isinstance(item, list) else str(item)))
        else:
            rows.append((f"{prefix}{key}", number(item)))
    return rows


_SIZES = {
    "Layers": "num_hidden_layers",
    "Heads": "num_attention_heads",
    "Width": "hidden_size",
    "Position stream": "position_size",
    "Feed-forward": "intermediate_size",
    "Positions": "max_position_embeddings",
    "Vocabulary": "vocab_size",
}


def _models_table(run: Run) -> Table | None:
    configs = {m: run.config(m) for m in run.models if run.config(m)}
    columns = {name: key for name, key in _SIZES.items() if any(isinstance(c.get(key), int) for c in configs.values())}
    if not columns:
        return None
    rows = [
        [text(m), *(count_cell(v) if isinstance(v := c.get(key), int) else Cell("–") for key in columns.values())]
        for m, c in configs.items()
    ]
    return Table("models", "Sizes of the models", ["Model", *columns], rows, frozenset(range(1, len(columns) + 1)))
