"""The report of a study: reads its folder, makes the figures, says in words what was done."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..papers import DSTG_R2
from . import (
    ablation_figures,
    attention_figures,
    convergence_figures,
    corpus_section,
    findings,
    heads_figures,
    hidden_figures,
    methods,
    probe_figures,
    projection_figures,
    regression_figures,
    schemes,
    shift_figures,
    table_figures,
    training_figures,
)
from .cards import card
from .explorer import STUDY_BUDGET, load_explorer
from .figures import Cell, Table, text, value
from .load import Study, load_study
from .numbers import compact, count, duration, memory, number, span
from .page import How, Page, Section, render_page, write_page

MOST_BYTES = 9_800_000  # of a page with its explorer, whose texts give way to the figures
OF_SHAPE = ("hidden-flat",)  # figures of hidden states that tell of their shape, not of sentences


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the report of a study folder to `out` (default: report.html inside it), whole or not at all; returns the path.

    Raises:
        ValueError: the folder has no records, or a file in it is damaged.
    """
    folder = Path(folder)
    return write_page(Path(out) if out is not None else folder / "report.html", open_page(folder))


def open_page(folder: str | Path) -> Page:
    """The page of a study's folder, with as many texts of its attention explorer as fit.

    Raises:
        ValueError: the folder has no records, or a file in it is damaged.
    """
    page = study_page(load_study(folder))
    if not (Path(folder) / "explorer.json").is_file():
        return page
    room = MOST_BYTES - len(render_page(page).encode())
    return replace(page, explorer=load_explorer(folder, min(STUDY_BUDGET, max(0, room))))


def study_page(study: Study) -> Page:
    """The page of a study; `open_page` adds the explorer."""
    paper = DSTG_R2
    return Page(
        title=_title(study),
        summary=summary(study),
        glossary=schemes.line(study),
        models=schemes.listed(study),
        caveats=caveats(study),
        notes=[str(note) for note in study.facts.get("notes") or []],
        cards=[card(c) for c in study.claims],
        hero=probe_figures.hero(study, paper),
        sections=sections(study, paper),
        explorer_after="heads",
        how=how(study),
    )


def _title(study: Study) -> str:
    return str(study.facts.get("title") or study.name)


def corpus_name(study: Study) -> str:
    """Name of a study's corpus; empty if study.json has none."""
    corpus = study.facts.get("corpus")
    name = corpus.get("name") if isinstance(corpus, dict) else corpus
    return str(name or "")


def summary(study: Study) -> list[str]:
    """Corpus and size in one line: name; documents, characters, tokens; models; depth and width; training; seeds."""
    pieces = [corpus_name(study)] if corpus_name(study) else []
    corpus = [f"{compact(p.value)} {unit}" for unit in ("documents", "characters", "tokens") if (p := study.point(f"corpus.{unit}", ""))]
    pieces += [", ".join(corpus)] if corpus else []
    if study.models:
        size = f" of size {study.facts['size']}" if isinstance(study.facts.get("size"), str) else ""
        depths = sorted({study.depth(m) for m in study.models})
        layers = count(depths[0], "layer") if len(depths) == 1 else f"{depths[0]} to {depths[-1]} layers"
        pieces.append(f"{count(len(study.models), 'model')}{size}, {layers}")
    if parameters := training_figures.totals(study, "parameters"):
        pieces.append(f"{span(list(parameters))} parameters")
    if tokens := training_figures.totals(study, "tokens"):
        pieces.append(f"{span(list(tokens))} training tokens each")
    if study.seeds:
        pieces.append(count(len(study.seeds), "seed"))
    return pieces


def caveats(study: Study) -> list[str]:
    """What the run is too small to say, by the rules of `findings.caveats`."""
    repeated = any(r.low is not None and r.model in study.models for r in study.records)
    tokens, parameters = training_figures.totals(study, "tokens"), training_figures.totals(study, "parameters")
    stuck = training_figures.stuck_models(study)
    said = findings.caveats(list(tokens), list(parameters), len(study.seeds), stuck, repeated, len(study.models))
    return [*said, *filter(None, (schemes.backbone_differences(study), schemes.cost_differences(study)))]


def sections(study: Study, paper: probe_figures.PaperValues) -> list[Section]:
    """Every section the run could have, in the order of the questions; the page leaves empty ones out."""
    loss, costs = training_figures.losses(study), training_figures.costs(study)
    hidden = hidden_figures.figures(study)
    panels = (
        "Each panel holds the models of one family, or one stream of those that have two; all others stand behind in grey."
        if probe_figures.many(study)
        else "Each panel is one model; the others stand behind it in grey."
    )
    few, between, shifts = probe_figures.components(study), probe_figures.between(study), shift_figures.shifts(study)
    return [
        Section(
            "where",
            "Where is position kept?",
            "A linear probe reads where a token stands from the hidden state after every layer: from all of it, or from one stream alone. "
            f"R² of 1 is a perfect reading, 0 no better than the mean. {panels}",
            [*probe_figures.targets(study, paper), *(f for f in (between, few) if f)],
            short="Position",
        ),
        Section(
            "moves",
            "Does meaning move with position?",
            "The same text is read twice, the second time further on along the positions. Where distances alone count, the states stay as "
            "they were, a change of 0; the notes behind `split` say the same of its semantic states, whose values never see position while "
            "the attention weights do.",
            [shifts] if shifts else [],
            short="Shift",
        ),
        Section(
            "shape",
            "What shape does it take?",
            "A position table is a list of vectors, one a position. The principal components of a learned one show what the training made "
            "of it; a fixed one stays what it was. What the layers make of it is seen in the flatness of the hidden states, and in the "
            "distances that the attention of each layer still sees.",
            [*table_figures.figures(study), *(f for f in hidden if f.id in OF_SHAPE), *projection_figures.figures(study)],
            short="Shape",
        ),
        Section(
            "heads",
            "Who uses it?",
            "The scores of attention are a sum of terms. What becomes of the attention, or of the loss, when one is taken away says which "
            "head, and which layer, goes by meaning, by absolute or by relative position.",
            [*heads_figures.figures(study), *ablation_figures.figures(study), *attention_figures.figures(study)],
            short="Heads",
        ),
        Section(
            "structure",
            "Does it know structure?",
            "Sentences and lines are structure that needs no labels. The hidden states of a document show whether tokens of one sentence "
            "lie together; neighbouring tokens are alike anyway, so every distance stands beside that of random cuts. A regression shows "
            "whether another model holds what a stream holds.",
            [*(f for f in hidden if f.id not in OF_SHAPE), *regression_figures.figures(study)],
            short="Structure",
        ),
        Section(
            "corpus",
            "What does the corpus say?",
            "Before any model: how far the words at one position differ from those at another. Where they hardly do, a text gives a "
            "position table little to learn; the stress says how well a table's distances follow those of the text.",
            corpus_section.figures(study),
            corpus_section.tables(study),
            short="Corpus",
        ),
        Section(
            "buys",
            "What does it buy?",
            "All models see the same batches with the same masks, so their losses can be compared step by step. "
            + (schemes.cost_differences(study) or schemes.matched(study) or ""),
            [*([loss] if loss else []), *convergence_figures.figures(study)],
            [costs] if costs else [],
            short="Training",
        ),
    ]


def how(study: Study) -> How:
    """The last section: facts as name and value, one table of models, every configuration."""
    return How(
        words=methods.words(study),
        facts=[
            (name, rows)
            for name, rows in (("Run", _run(study)), ("Corpus", _corpus(study)), ("Machine", machine(study.facts.get("machine"))))
            if rows
        ],
        versions=flat(study.facts.get("versions")),
        tables=how_tables(study),
        configs=_configs(study),
        cite=methods.cited(study),
    )


def how_tables(study: Study) -> list[Table]:
    """Schemes and sizes of the models."""
    return [t for t in (schemes.table(study), _models_table(study)) if t]


def _configs(study: Study) -> list[tuple[str, str]]:
    """Heading and JSON of every configuration: one a model and seed, and what identifies the corpus."""
    folds = [(_heading(m), {k: v for k, v in m.items() if k not in ("name", "seed")}) for m in study.entries]
    corpus = study.facts.get("corpus")
    folds += [("Corpus", corpus)] if isinstance(corpus, dict) else []
    return [(name, json.dumps(body, indent=2, ensure_ascii=False)) for name, body in folds]


def _heading(entry: Mapping[str, Any]) -> str:
    seed = entry.get("seed")
    return str(entry.get("name") or "model") + (f", seed {seed}" if seed is not None else "")


def _run(study: Study) -> list[tuple[str, str]]:
    facts = study.facts
    seconds = facts.get("seconds")
    rows = [
        ("Command", facts.get("command")),
        ("Started", facts.get("started")),
        ("Time", duration(seconds) if isinstance(seconds, int | float) else None),
        ("Size", facts.get("size")),
        ("Models", ", ".join(study.models)),
        ("Costs", schemes.matched(study)),
        ("Training seeds", ", ".join(str(s) for s in study.seeds)),
        ("Training tokens a model", span(list(tokens)) if (tokens := training_figures.totals(study, "tokens")) else None),
        ("Parameters a model", span(list(p)) if (p := training_figures.totals(study, "parameters")) else None),
    ]
    return [(k, str(v) if not isinstance(v, list) else " ".join(str(x) for x in v)) for k, v in rows if v]


def _corpus(study: Study) -> list[tuple[str, str]]:
    found = study.facts.get("corpus")
    counts = {k: p for k in ("documents", "characters", "tokens", "windows") if (p := study.point(f"corpus.{k}", ""))}
    rows = [("Name", corpus_name(study))] if corpus_name(study) else []
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
        shown = memory(fact) if key.endswith("_bytes") and isinstance(fact, int | float) else "none" if fact is None else str(fact)
        rows.append((names.get(key) or str(key), shown))
    return rows


def flat(found: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested facts as name and value."""
    if not isinstance(found, dict):
        return []
    rows: list[tuple[str, str]] = []
    for key, item in found.items():
        if isinstance(item, dict):
            rows += flat(item, f"{prefix}{key} ")
        elif isinstance(item, bool) or not isinstance(item, int | float):
            rows.append((f"{prefix}{key}", ", ".join(str(i) for i in item) if isinstance(item, list) else str(item)))
        else:
            rows.append((f"{prefix}{key}", number(item)))
    return rows


def _models_table(study: Study) -> Table | None:
    columns = [
        ("Layers", "num_hidden_layers"),
        ("Heads", "num_attention_heads"),
        ("Width", "hidden_size"),
        ("Position stream", "position_size"),
        ("Feed-forward", "intermediate_size"),
        ("Positions", "max_position_embeddings"),
        ("Vocabulary", "vocab_size"),
    ]
    models = [m for m in study.models if study.config(m)]
    columns = [(name, key) for name, key in columns if any(isinstance(study.config(m).get(key), int) for m in models)]
    if not models or not columns:
        return None
    rows = [
        [text(m)] + [value(v, f"{v:,}") if isinstance(v := study.config(m).get(key), int) else Cell("–") for _, key in columns]
        for m in models
    ]
    return Table("models", "Sizes of the models", ["Model", *(name for name, _ in columns)], rows, frozenset(range(1, len(columns) + 1)))
