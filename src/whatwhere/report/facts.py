"""Facts of a run as name and value, and the tables and configurations of its models: what stands at a page's end."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import schemes
from .figure import Cell, Table, count_cell, text
from .numbers import compact, count, duration, memory, number, span
from .page import How
from .run import Run
from .titles import totals

Rows = list[tuple[str, str]]

_CORPUS = {"length": "Window length", "join": "Windows joined", "vocab_size": "Vocabulary"}
_MACHINE = {"cpu": "Processor", "cores": "Cores", "memory_bytes": "Memory", "accelerator": "Accelerator"}
_SIZES = {
    "num_hidden_layers": "Layers",
    "num_attention_heads": "Heads",
    "hidden_size": "Width",
    "position_size": "Position stream",
    "intermediate_size": "Feed-forward",
    "max_position_embeddings": "Positions",
    "vocab_size": "Vocabulary",
}


def how(run: Run, words: Sequence[str], groups: Mapping[str, Rows], **rest: Any) -> How:
    """The last section of a run's page: words, facts under headings, machine and versions. rest: as `How`."""
    groups = {**groups, "Machine": _machine(run.facts.get("machine"))}
    facts = [(name, rows) for name, rows in groups.items() if rows]
    return How(words, facts, flat(run.facts.get("versions")), **rest)


def of_run(run: Run, **more: Any) -> Rows:
    """How a run was made: its command, when and how long, then more facts by name; those that are known."""
    seconds = run.facts.get("seconds")
    made = {"Command": run.facts.get("command"), "Started": run.facts.get("started")}
    made["Time"] = duration(seconds) if isinstance(seconds, int | float) else None
    known = {name: value for name, value in (made | more).items() if value}
    return [(name, " ".join(map(str, v)) if isinstance(v, list) else str(v)) for name, v in known.items()]


def of_study(run: Run) -> Rows:
    """How a study was made, with what its models have in common."""
    tokens, parameters = (totals(run, metric) for metric in ("tokens", "parameters"))
    return of_run(
        run,
        Size=run.facts.get("size"),
        Models=", ".join(run.models),
        Costs=schemes.matched(run),
        **{
            "Training seeds": ", ".join(map(str, run.seeds)),
            "Training tokens a model": span(tokens) if tokens else None,
            "Parameters a model": span(parameters) if parameters else None,
        },
    )


def corpus_name(run: Run) -> str:
    """Name of a study's corpus; empty if study.json has none."""
    corpus = run.facts.get("corpus")
    return str((corpus.get("name") if isinstance(corpus, dict) else corpus) or "")


def of_corpus(run: Run) -> Rows:
    """The corpus of a study: its name, sizes, and how it was cut."""
    sizes = {k: p for k in ("documents", "characters", "tokens", "windows") if (p := run.table.point(f"corpus.{k}"))}
    rows = [("Name", corpus_name(run))] if corpus_name(run) else []
    rows += [(k.capitalize(), number(p.value)) for k, p in sizes.items()]
    corpus = run.facts.get("corpus")
    plain = {k: v for k, v in corpus.items() if not isinstance(v, dict | list)} if isinstance(corpus, dict) else {}
    shown = {k: v for k, v in plain.items() if k != "name" and k not in sizes}
    return rows + flat({_CORPUS.get(k, k.replace("_", " ").capitalize()): v for k, v in shown.items()})


def _machine(facts: Any) -> Rows:
    rows = []
    for key, fact in facts.items() if isinstance(facts, dict) else ():
        size = key.endswith("_bytes") and isinstance(fact, int | float)
        rows.append((_MACHINE.get(key) or str(key), memory(fact) if size else "none" if fact is None else str(fact)))
    return rows


def flat(facts: Any, prefix: str = "") -> Rows:
    """Nested facts as name and value; none of what is no dictionary."""
    rows: Rows = []
    for key, item in facts.items() if isinstance(facts, dict) else ():
        if isinstance(item, dict):
            rows += flat(item, f"{prefix}{key} ")
        elif isinstance(item, bool) or not isinstance(item, int | float):
            rows.append((f"{prefix}{key}", ", ".join(map(str, item)) if isinstance(item, list) else str(item)))
        else:
            rows.append((f"{prefix}{key}", number(item)))
    return rows


def tables(run: Run) -> list[Table]:
    """Schemes and sizes of the models."""
    configs = {m: run.config(m) for m in run.models if run.config(m)}
    keys = [key for key in _SIZES if any(isinstance(c.get(key), int) for c in configs.values())]
    rows = [
        [text(m), *(count_cell(v) if isinstance(v := c.get(key), int) else Cell("–") for key in keys)]
        for m, c in configs.items()
    ]
    columns = ["Model", *(_SIZES[key] for key in keys)]
    sizes = Table("models", "Sizes of the models", columns, rows, frozenset(range(1, len(columns))))
    return [t for t in (schemes.table(run), sizes if keys else None) if t]


def configs(run: Run) -> list[tuple[str, str]]:
    """Heading and JSON of every configuration: one a model and seed, and what identifies the corpus."""
    folds: list[tuple[str, Any]] = []
    for entry in run.entries:
        seed = entry.get("seed")
        heading = str(entry.get("name") or "model") + (f", seed {seed}" if seed is not None else "")
        folds.append((heading, {k: v for k, v in entry.items() if k not in ("name", "seed")}))
    corpus = run.facts.get("corpus")
    folds += [("Corpus", corpus)] if isinstance(corpus, dict) else []
    return [(name, as_json(body)) for name, body in folds]


def as_json(body: Any) -> str:
    """What a fold shows."""
    return json.dumps(body, indent=2, ensure_ascii=False)


def summary(run: Run) -> list[str]:
    """Corpus and size in one line: name; documents, characters, tokens; models; depth and width; training; seeds."""
    units = ("documents", "characters", "tokens")
    sizes = [f"{compact(p.value)} {unit}" for unit in units if (p := run.table.point(f"corpus.{unit}"))]
    pieces = [corpus_name(run), ", ".join(sizes)]
    if run.models:
        size = f" of size {run.facts['size']}" if isinstance(run.facts.get("size"), str) else ""
        depths = sorted({run.depth(m) for m in run.models})
        layers = count(depths[0], "layer") if len(depths) == 1 else f"{depths[0]} to {depths[-1]} layers"
        pieces.append(f"{count(len(run.models), 'model')}{size}, {layers}")
    for metric, what in (("parameters", "parameters"), ("tokens", "training tokens each")):
        pieces += [f"{span(values)} {what}"] if (values := totals(run, metric)) else []
    pieces += [count(len(run.seeds), "seed")] if run.seeds else []
    return [piece for piece in pieces if piece]
