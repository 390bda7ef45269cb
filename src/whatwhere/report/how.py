"""How a run was done, the end of its page: facts by name, methods in words, whom to cite, tables and configurations."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from ..papers import bibtex
from ..records.metrics import methods, metric
from ..records.table import Point, effects, smallest_difference
from . import schemes
from .figure import Table, row
from .loaded_run import Run, finite
from .numbers import compact, count, duration, fixed, memory, number, percent, span
from .page import How, code_spans
from .titles import PAPER_TOKENS, listed, totals

Rows = list[tuple[str, str]]

_CORPUS = {
    **{"length": "Window length", "join": "Windows joined", "pieces": "Pieces of a document"},
    **{"vocab_size": "Vocabulary"},
}
_MACHINE = {"cpu": "Processor", "cores": "Cores", "memory_bytes": "Memory", "accelerator": "Accelerator"}
_SIZES = {
    **{"num_hidden_layers": "Layers", "num_attention_heads": "Heads", "hidden_size": "Width"},
    **{"position_size": "Position stream", "intermediate_size": "Feed-forward"},
    **{"max_position_embeddings": "Positions", "vocab_size": "Vocabulary"},
}
_TRAINED = Markup(
    "The corpus is cut into windows; training and held-out windows come from different documents. {models} are "
    "trained by masked-language modelling on the same batches in the same order, with the same masks where their "
    "recipes mask alike. "
)
_READ = Markup(
    "Every figure of this page is read from one file of {records}, maps and texts from the arrays beside it; the fold "
    "of a figure’s data table names its records."
)
_POWER = Markup(
    "With {seeds}, a two-sided test at 5\u202f% finds an effect with a chance of 80\u202f% only from {size} standard "
    "deviations on: of the differences between two models seed by seed, or of one model’s values beside a threshold. "
    "{sentence}Between models whose seeds are not the same it takes {apart} standard deviations between seeds. A "
    "smaller effect that is not seen may still be there."
)
_ALONE = Markup(
    "One training seed cannot show a difference between schemes, however large: the distance between two trainings of "
    "one scheme is not known. A two-sided test at 5\u202f% finds an effect with a chance of 80\u202f% from {three} "
    "standard deviations of the differences on with three seeds, from {five} on with five."
)
# Where two models are compared, beside losses: metric, the columns that are its places, others, its unit in words.
_EFFECTS: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("r2.token", "layer", {"part": "all"}, "in R² of position"),
    ("heads.share", "part", {}, "in shares of heads"),
)
_PAPER = Markup(
    "The paper's training is counted as 70,000 steps of 256 sequences of 512 tokens, {tokens} tokens; its text says "
    "22B."
)
# Measured in one pass over held-out documents, which has a paragraph of its own.
_PASS = ("kl.", "ablation.", "attention.", "local.", "hidden.", "sentences.")


def section(
    run: Run, words: Sequence[str], groups: Mapping[str, Rows], configs: Sequence[tuple[str, Any]] = (), **rest: Any
) -> How:
    """Return the last section of a run's page: words, facts under headings, machine and versions, JSON in folds.

    rest: as `How`.
    """
    facts = [(name, rows) for name, rows in (*groups.items(), ("Machine", _machine(run))) if rows]
    folds = [(name, json.dumps(body, indent=2, ensure_ascii=False)) for name, body in configs]
    return How(words, facts, flat(run.facts.get("versions")), configs=folds, **rest)


def of_run(run: Run, **more: Any) -> Rows:
    """Return the known facts of how a run was made: command, time and duration, then more facts by name."""
    seconds = finite(run.facts.get("seconds"))
    entries = {"Command": run.facts.get("command"), "Started": run.facts.get("started")}
    known = {**entries, "Time": duration(seconds) if seconds is not None else None, **more}
    return [(name, " ".join(map(str, v)) if isinstance(v, list) else str(v)) for name, v in known.items() if v]


def of_study(run: Run) -> Rows:
    """Return how a study was made, with what its models have in common."""
    entries = {
        "Size": run.facts.get("size"),
        "Models": ", ".join(run.models),
        "Costs": schemes.matched(run),
        "Training seeds": ", ".join(map(str, run.seeds)),
        "Training tokens a model": span(totals(run, "tokens")),
        "Parameters a model": span(totals(run, "parameters")),
    }
    return of_run(run, **entries)


def rows_read(run: Run) -> str:
    """Say which pieces of documents a study's windows are, and how often a training read each; "" where not known."""
    join = run.corpus.get("join")
    pieces = run.corpus.get("pieces")
    start_share = run.table.point("corpus.from_start")
    often = totals(run, "passes")
    begin = f", {percent(start_share.value, 0)} begin with a document" if start_share else ""
    if join == "run-on":
        text = f"windows run on from document to document{begin}"
    elif pieces == "first":
        text = "windows are the first pieces of documents"
    elif pieces == "all":
        text = f"windows are all pieces of documents{begin}"
    else:
        return ""
    if often and max(often) > 1:
        times = " to ".join(dict.fromkeys(fixed(end(often), 1) for end in (min, max)))
        text += f"; each is read {times} times"
    return text


def of_corpus(run: Run) -> Rows:
    """Return the facts of a study's corpus: its name, sizes, how it was cut, and which of its windows were read."""
    sizes = {k: p for k in ("documents", "characters", "tokens", "windows") if (p := run.table.point(f"corpus.{k}"))}
    rows = [("Name", run.corpus_name)] if run.corpus_name else []
    rows += [(k.capitalize(), number(p.value)) for k, p in sizes.items()]
    rest = {k: v for k, v in run.corpus.items() if k not in ("name", *sizes) and not isinstance(v, dict | list)}
    rows += flat({_CORPUS.get(k, k.replace("_", " ").capitalize()): v for k, v in rest.items()})
    text = rows_read(run)
    return [*rows, ("What is read", text[:1].upper() + text[1:])] if text else rows


def _machine(run: Run) -> Rows:
    rows: Rows = []
    for key, fact in known.items() if isinstance(known := run.facts.get("machine"), dict) else ():
        size = finite(fact) if key.endswith("_bytes") else None
        shown = "none" if fact is None else str(fact)
        if size is not None:
            shown = memory(size)
        rows.append((_MACHINE.get(key) or key, shown))
    return rows


def flat(facts: Any, prefix: str = "") -> Rows:
    """Flatten nested facts into names and values; a value that is no dictionary has none."""
    rows: Rows = []
    for key, item in facts.items() if isinstance(facts, dict) else ():
        if isinstance(item, dict):
            rows += flat(item, f"{prefix}{key} ")
        elif isinstance(item, int | float) and not isinstance(item, bool):
            rows.append((f"{prefix}{key}", number(item)))
        else:
            rows.append((f"{prefix}{key}", ", ".join(map(str, item)) if isinstance(item, list) else str(item)))
    return rows


def tables(run: Run) -> list[Table]:
    """Return the tables of the models' schemes and sizes."""
    configs = {m: config for m in run.models if (config := run.config(m))}
    keys = [key for key in _SIZES if any(isinstance(c.get(key), int) for c in configs.values())]
    rows = [row(m, *(v if isinstance(v := c.get(key), int) else None for key in keys)) for m, c in configs.items()]
    sizes = Table.of("models", "Sizes of the models", ["Model", *(_SIZES[key] for key in keys)], rows)
    return [t for t in (schemes.table(run), sizes if keys else None) if t]


def configs(run: Run) -> list[tuple[str, Any]]:
    """Return heading and body of every configuration: one for each model and seed, and one that identifies the
    corpus."""
    folds: list[tuple[str, Any]] = []
    for entry in run.entries:
        seed = f", seed {entry['seed']}" if entry.get("seed") is not None else ""
        body = {k: v for k, v in entry.items() if k not in ("name", "seed")}
        folds.append((f"{entry.get('name') or 'model'}{seed}", body))
    return folds + ([("Corpus", run.facts["corpus"])] if isinstance(run.facts.get("corpus"), dict) else [])


def summary(run: Run) -> list[str]:
    """Return corpus and size in one line: name; documents, characters, tokens; models; depth and width; training;
    seeds."""
    units = ("documents", "characters", "tokens")
    sizes = [f"{compact(p.value)} {unit}" for unit in units if (p := run.table.point(f"corpus.{unit}"))]
    pieces = [run.corpus_name, ", ".join(sizes), rows_read(run)]
    if run.models:
        size = f" of size {run.facts['size']}" if isinstance(run.facts.get("size"), str) else ""
        models = [m for m in run.models if run.config(m)]  # not those after SimCSE, which are named by their source
        depths = sorted({run.depth(m) for m in models or run.models})
        layers = count(depths[0], "layer") if len(depths) == 1 else f"{depths[0]} to {depths[-1]} layers"
        pieces.append(f"{count(len(run.models), 'model')}{size}, {layers}")
    for name, what in (("parameters", "parameters"), ("tokens", "training tokens each")):
        pieces += [f"{span(values)} {what}"] if (values := totals(run, name)) else []
    pieces += [count(len(run.seeds), "seed")] if run.seeds else []
    return [piece for piece in pieces if piece]


# ---- methods and papers: words of ours, which may hold markup ----


def words(run: Run) -> list[Markup]:
    """Return paragraphs on the training, then on every analysis that the run has records of, in the order of
    `methods`."""
    ways = {metric(name).method for name in run.table.metrics}
    if _has(run, *_PASS):
        ways.add("pass")
    if any(r.metric.startswith("r2.") and (r.step == 0 or ".pca" in (r.part or "")) for r in run.records):
        ways.add("control")
    measured = [
        code_spans(paragraph) for way, paragraphs in methods().items() if way in ways for paragraph in paragraphs
    ]
    read = _READ.format(records=count(len(run.records), "record"))
    if not _has(run, "loss"):  # models that were trained elsewhere, and evaluated
        return [read, *measured]
    beside = [code_spans(" ".join(run.beside.notes))] if run.beside.notes else []
    paper = _PAPER.format(tokens=compact(PAPER_TOKENS))
    trained = _TRAINED.format(models="Within a run, all models" if run.apart else "All models")
    return [trained + read, *measured, power(run), *beside, paper]


def power(run: Run) -> Markup:
    """Return how small an effect the run's seeds can show, in standard deviations and in the units of its records."""
    fewest, seeds = run.trainings
    if seeds < 2:
        return _ALONE.format(three=number(effects(3)[0]), five=number(effects(5)[0]))
    compared = {"nats of held-out loss": [[p for m in run.models if (p := run.last("loss", m))]]}
    for name, by, where, words in _EFFECTS:
        places: dict[Any, list[Point]] = {}
        for model in run.models:
            for place, point in run.table.points(name, model, by=by, **where).items():
                places.setdefault(place, []).append(point)
        compared[words] = list(places.values())
    sizes = []
    for words, groups in compared.items():
        between = smallest_difference(groups)
        bar = smallest_difference(groups, paired=False)
        if between and bar:
            sizes.append(f"{number(between[1])} {words} ({number(bar[1])} between a model and a threshold)")
    sentence = f"Between two models of this run that is {listed(sizes)}. " if sizes else ""
    size, apart = map(number, effects(seeds))
    number_of_seeds = f"{'up to ' if fewest < seeds else ''}{count(seeds, 'training seed')}"
    return _POWER.format(seeds=number_of_seeds, size=size, sentence=sentence, apart=apart)


def _has(run: Run, *beginnings: str) -> bool:
    return any(metric.startswith(beginnings) for metric in run.table.metrics)


def cited(run: Run) -> list[tuple[Markup, str]]:
    """Return what a page takes from which paper, and its BibTeX: every paper whose schemes, analyses or claims the
    study has."""
    families = {schemes.family(run, m) for m in run.models}
    presets = {schemes.preset(run, m) for m in run.models}
    tables = {str(run.config(m).get("absolute")) for m in run.models}
    sources = " ".join(str(c.get("source") or "") for c in run.claims)
    reasons: dict[str, dict[str, bool]] = {
        "dstg": {  # its values are in the words of every page
            "the architecture, the probes and the values of the paper": True,
            "the taxonomy of heads": _has(run, "kl."),
        },
        "tupe": {
            "the untied schemes": "untied" in families,
            "the products of words and positions": _has(run, "correlation."),
            "the patterns of attention": _has(run, "pattern"),
            "the steps to a baseline’s loss": _has(run, "convergence."),
            "claims of the ledger": "TUPE" in sources,
        },
        "geometry": {
            "positional distributions, Hellinger distances and stress": _has(run, "distance.", "stress.", "projected."),
            "the separation of positions": _has(run, "separation"),
            "tables made by scaling": bool(tables & {"mds", "low_rank"}),
            "claims of the ledger": "GEOM" in sources,
        },
        "lowdim": {
            "the components and waves of position tables": _has(run, "pca.", "fft.", "dct."),
            "tables of low rank and of waves": bool(tables & {"low_rank", "fourier"}),
            "claims of the ledger": "LOWDIM" in sources,
        },
        "split": {
            "the streams that meet in the scores only": "split" in presets,
            "the shift of positions": _has(run, "shift."),
            "claims of the ledger": "SPLIT" in sources or "notes" in sources,
        },
    }
    reasons_of_key = {key: listed([reason for reason, holds in of.items() if holds]) for key, of in reasons.items()}
    return [(escape(f"{of[0].upper()}{of[1:]}:"), bibtex(key)) for key, of in reasons_of_key.items() if of]
