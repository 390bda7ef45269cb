"""What the models of a run do with positions: family, sentence and colour of each, parts of a configuration in words.

A scheme that nobody knew beforehand is described by the fields of its recorded configuration, and by its source where
one is recorded.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..records import families
from ..records.noise import DRAWS, components_of_noise
from ..records.terms import unequal
from .figure import Table, row, value
from .loaded_run import Run
from .numbers import compact
from .style import MODEL_COLOURS, model_styles

FEW = 6  # models that one plot, and one line under the title, can name

FAMILIES = families.FAMILIES | {"other": "Other schemes"}  # and their headings

# Preset -> (family, what it does with positions).
SCHEMES: dict[str, tuple[str, str]] = {
    "dstg": ("streams", "meaning and position in separate streams, and a bias by distance"),
    "dstg-full-mlm": ("streams", "meaning and position in separate streams, words predicted from both"),
    "dstg-waves": ("streams", "as `dstg`, with positions that start as half a turn of two slow waves and learn"),
    "dstg-waves-frozen": ("streams", "as `dstg`, with positions that are half a turn of two slow waves, not learned"),
    "split": ("streams", "meaning and position in separate streams that meet in the scores only"),
    "bert-ad": ("untied", "words and positions apart at the input, all four of their products in the scores"),
    "tupe-a-tie-cls": ("untied", "scores of words with words plus scores of positions with positions"),
    "tupe-a": ("untied", "scores of words plus scores of positions, with learned values where [CLS] takes part"),
    "tupe-r": ("untied", "scores of words plus scores of positions plus a bias by distance, [CLS] untied"),
    "tupe-free": (
        "untied",
        "scores of words plus a free learned matrix of position scores for each head, [CLS] untied",
    ),
    "tupe-product": (
        "untied",
        "scores of words plus scores of positions plus products of distance vectors, [CLS] untied",
    ),
    "ap": ("added", "a learned vector for each position, added to the word"),
    "sinusoidal": ("added", "fixed sines and cosines of the position, added to the word"),
    "shape": ("added", "fixed sines and cosines, added to the word, of positions shifted at random in training"),
    "cape": (
        "added",
        "fixed sines and cosines, added to the word, of positions shifted and scaled at random in training",
    ),
    "low-rank": ("added", "a learned table of low rank, added to the word"),
    "fourier": ("added", "sines and cosines with learned frequencies, phases and amplitudes, added to the word"),
    "bert-a": ("added", "a learned vector for each position, added to the word"),
    "bert-r": ("added", "a learned vector for each position, added to the word, and a bias by distance"),
    "rp": ("distance", "a learned bias of attention by distance"),
    "rope": ("rotated", "queries and keys rotated by position"),
    "rope-partial": ("rotated", "a quarter of queries and keys rotated by position"),
    "bipe": (
        "rotated",
        "queries and keys rotated by sentence, and a learned vector for each place in one, added to words",
    ),
    "xpos": ("rotated", "queries and keys rotated by position, and scores that fall with distance"),
    "alibi": ("distance", "attention that falls with distance along a fixed slope for each head"),
    "kerple-log": ("distance", "attention that falls with the logarithm of the distance, by learned numbers a head"),
    "kerple-power": ("distance", "attention that falls with a learned power of the distance in each head"),
    "tisa": ("distance", "attention in a few learned bumps over distance, which may lie to one side"),
    "sandwich": ("distance", "attention that falls with distance as products of sinusoids do, nothing learned"),
    "fire": ("distance", "attention by a small network of the distance, relative to how far into the text both are"),
    "shaw": ("content", "a learned vector for each distance, which queries look up"),
    "deberta": ("content", "learned vectors of distances, which meet the words as keys and as queries"),
    "transformer-xl": ("content", "waves of the distance, which queries look up"),
    "cope": ("content", "distances in tokens that the query lets through, which it looks up"),
    "dape": ("content", "scores that a small network adapts, which reads them beside a bias of the distance"),
    "nope": ("rotated", "no position: the order of the words is invisible"),
    "conv": ("rotated", "no position, but a convolution that adds each word's neighbours at the input"),
}
FIXED = ("fixed", "sinusoidal", "mds")  # tables that no gradient reaches
FIELDS = ("absolute", "untied", "relative", "rotation", "reset")  # of a configuration, which make its scheme


@dataclass(frozen=True)
class Entry:
    """A model in the list of the page."""

    name: str
    block: str
    words: str
    colour: str


def preset(run: Run, model: str) -> str:
    """Return the preset that a model was built from, or its own name."""
    return str(run.config(model).get("preset") or model)


def family(run: Run, model: str) -> str:
    """Return the family of a model by its configuration; by its preset where records stand alone."""
    config = run.config(model)
    if "absolute" not in config and preset(run, model) in SCHEMES:
        return SCHEMES[preset(run, model)][0]
    if "absolute" not in config and not config.get("position_size"):
        probed = any("position" in run.parts(metric, model) for metric in ("r2.token", "shift.change"))
        return "streams" if probed else "other"
    return families.family_of(config)


def colour(run: Run, model: str, part: str = "all") -> str:
    """Return the colour name of a line: its stream's, or for all of hidden the model's; grey of a model in
    `Run.weak_models`."""
    if part == "all" and model not in run.weak_models:
        return f"model-{_order(run).index(model) % len(MODEL_COLOURS['light'])}"
    if model in run.weak_models:
        return "combined"
    return {"position": "absolute", "semantic": "semantic"}.get(part, "combined")


def _order(run: Run) -> list[str]:
    """The models; many family by family, so that models of one plot take colours in turn."""
    return sorted(run.models, key=lambda m: list(FAMILIES).index(family(run, m))) if many(run) else run.models


def many(run: Run) -> bool:
    """Return whether the run has more models than one plot can name."""
    return len(run.models) > FEW


def aside(run: Run) -> list[str]:
    """Return the models that figures show when they are asked to, where models are many: all but the ones of lowest
    loss, and `dstg`."""
    if not many(run):
        return []
    losses = {m: p.value for m in run.models if (p := run.last("loss", m)) is not None}
    ranked = sorted(run.models, key=lambda m: losses.get(m, math.inf))
    return [m for m in ranked[FEW:] if m != run.named("dstg")]


def marks(run: Run) -> dict[str, tuple[str, str]]:
    """Return model -> (dash, marker), the same on the whole page."""
    return model_styles(_order(run))


def place(run: Run, model: str, part: str) -> tuple[int, str]:
    """Return rank and heading of a line's panel where models are many: its stream's, or its family's."""
    kind = family(run, model)
    if part not in ("", "all"):
        return 0, f"{part.capitalize()} streams" if part in ("position", "semantic") else part.capitalize()
    if kind == "streams":
        return 1, "Both streams together" if part else FAMILIES[kind]
    return 2 + list(FAMILIES).index(kind), FAMILIES[kind]


def block(run: Run, model: str) -> str:
    """Return the name of a model's block, or a dash where none is recorded."""
    name = str(run.config(model).get("block") or "–")
    return {"neobert": "NeoBERT", "bert": "BERT"}.get(name, name)


def sentence(run: Run, model: str) -> str:
    """Return a sentence on what a model does with positions."""
    kind = preset(run, model)
    if kind in SCHEMES:
        return SCHEMES[kind][1]
    source = next((e["source"] for e in run.entries if e.get("name") == model and e.get("source")), None)
    return _parts(run.config(model)) + (f" ({source})" if source else "")


def _parts(config: Mapping[str, Any]) -> str:
    """A configuration's scheme in words, part by part."""
    if "absolute" not in config:
        foreign = config.get("model_type")
        return f"{foreign} of transformers" if foreign else "a scheme that the run does not describe"
    words = []
    untied = _named(config, "untied")
    if table := _named(config, "absolute"):
        place = "apart from the words" if untied else "added to the word"
        words.append(f"`{table}` table {'in a stream of its own' if config.get('position_size') else place}")
    elif untied == "free":
        words.append("a free matrix of position scores")
    parts = {"relative": "bias", "pair_terms": "terms of words and distances", "rotation": "rotation"}
    words += [f"`{name}` {what}" for key, what in parts.items() if (name := _named(config, key))]
    if taps := config.get("input_kernel"):
        words.append(f"a convolution over {taps} neighbours")
    return "own scheme: " + (", ".join(words) or "no position")


def _named(config: Mapping[str, Any], key: str) -> str | None:
    value = config.get(key)
    return str(value) if value and value != "none" else None


def line(run: Run) -> list[str]:
    """Return the models for the line under the title, where they are few; with their blocks, where those differ."""
    if many(run):
        return []
    differ = len({block(run, m) for m in run.models}) > 1
    return [f"`{m}`{f' ({block(run, m)})' if differ else ''}: {sentence(run, m)}" for m in run.models]


def listed(run: Run) -> list[tuple[str, list[Entry]]]:
    """Return heading and models of each family that the run has, where the models are too many for a line."""
    families: dict[str, list[Entry]] = {kind: [] for kind in FAMILIES}
    for m in run.models if many(run) else ():
        families[family(run, m)].append(Entry(m, block(run, m), sentence(run, m), colour(run, m)))
    return [(FAMILIES[kind], entries) for kind, entries in families.items() if entries]


def fixed_table(run: Run, model: str) -> bool:
    """Return whether a position table is not learned: by its kind, or because training left every recorded share as it
    was."""
    if run.config(model).get("absolute") in FIXED:
        return True
    rows = run.table.rows("pca.share", model, part=None)
    before, after = ({(r.seed, r.index): r.value for r in rows if r.step == step} for step in (0, None))
    return bool(before) and before == after


def table_columns(run: Run, model: str) -> int | None:
    """Return how many columns a model's position table has; None where its configuration does not tell."""
    config = run.config(model)
    columns = config.get("position_size") or config.get("hidden_size")
    return columns if isinstance(columns, int) and columns >= 2 else None


def table_rank(run: Run, model: str) -> int | None:
    """Return the rank that a model's position table cannot exceed, of a low-rank table or of one behind a learned map;
    None where rows and columns alone bound it."""
    config = run.config(model)
    ranks = [rank for key in ("table_rank", "table_width") if isinstance(rank := config.get(key), int) and rank >= 1]
    columns = table_columns(run, model)
    return min(ranks) if ranks and columns and min(ranks) < columns else None


def shape_of_table(run: Run, model: str) -> str:
    """Return columns and rank of a model's position table in words; "" where its configuration does not tell."""
    columns = table_columns(run, model)
    rank = table_rank(run, model)
    words = f"{columns} columns" if columns else ""
    return f"{words} of rank {rank}" if rank else words


def two_components_of_noise(run: Run, model: str, positions: int | None) -> float | None:
    """Return the share that two components of white noise hold of a table of the shape and rank of a model's; None
    where its shape is not known.

    positions: rows of the table, where a record tells.
    """
    rows = positions or run.config(model).get("max_position_embeddings")
    columns = table_columns(run, model)
    rank = table_rank(run, model)
    if not rows or not columns:
        return None
    return _components_of_products(rows, columns, rank) if rank else components_of_noise(rows, columns)


@cache
def _components_of_products(rows: int, columns: int, rank: int) -> float:
    """Compute the share of variance that two components hold of a product of two tables of white noise, in [0, 1].

    The mean of eight products of (rows, rank) and (rank, columns) normal numbers: 0.38 for 128 × 128 of rank 8.
    """
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(DRAWS):
        table = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))
        power = np.linalg.svd(table - table.mean(axis=0), compute_uv=False) ** 2
        shares.append(power[:2].sum() / power.sum())
    return float(np.mean(shares))


def table_note(run: Run, model: str) -> str:
    """Return what kind of table a model has and where it enters, for the head of its panel."""
    config = run.config(model)
    place = {"streams": "position stream", "untied": "untied", "added": "added"}.get(family(run, model), "")
    kind = str(config.get("absolute") or "")
    known = {"none": "", "learned": "", "low_rank": f"rank {config.get('table_rank')}", "fourier": "learned waves"}
    what = known.get(kind, kind)
    if fixed_table(run, model):
        what = "fixed behind a learned map" if config.get("table_width") else "fixed, not learned"
    return ", ".join(filter(None, (place, what)))


def _field(config: Mapping[str, Any], key: str) -> str:
    """A field of a scheme with what belongs to it; empty where it is not recorded."""
    rank, start, width = (config.get(f"table_{name}") for name in ("rank", "start", "width"))
    notes: dict[str, dict[str, Any]] = {
        "absolute": {
            f"rank {rank}": rank is not None,
            f"from {start}": start not in (None, "random"),
            f"{width} columns mapped": width is not None,
            "by place in a segment": config.get("bilevel"),
            f"positions drawn as {config.get('position_draws')}": config.get("position_draws") not in (None, "none"),
        },
        "relative": {
            "one for all layers": config.get("relative_shared"),
            "special tokens apart": config.get("relative_special") == "shared",
            "[CLS] and [SEP] apart": config.get("relative_special") == "each",
            f"{config.get('tisa_kernels')} kernels": config.get("tisa_kernels") is not None,
        },
    }
    if (share := config.get("rotation_share")) not in (None, 1.0):
        notes["rotation"] = {f"{share:.0%} of the columns": True}
    if key == "relative" and (terms := _named(config, "pair_terms")):
        return terms
    more = [note for note, holds in notes.get(key, {}).items() if holds and _named(config, key)]
    return ", ".join([str(config[key]), *more]) if config.get(key) is not None else ""


def table(run: Run) -> Table | None:
    """Return the table of configurations: block, scheme, dropout, parameters, operations for a token."""
    rows = []
    for m in filter(run.config, run.models):
        config = run.config(m)
        costs = [run.table.point(metric, m) for metric in ("parameters", "operations")]
        kind = block(run, m) if config.get("block") else None
        dropout = value(rate, f"{rate:g}") if isinstance(rate := config.get("dropout"), int | float) else None
        written = [value(p.value, compact(p.value)) if p else None for p in costs]
        rows.append(row(m, kind, *(_field(config, key) for key in FIELDS), dropout, *written))
    columns = ["Model", "Block", *map(str.capitalize, FIELDS), "Dropout", "Parameters", "Operations/token"]
    caption = f"Schemes of the models. {matched(run) or 'Whether costs were matched is not recorded.'}"
    return Table("schemes", caption, columns, rows, frozenset({7, 8, 9})) if rows else None


def matched(run: Run) -> str | None:
    """Return a sentence on whether the study matched the models' costs; None where study.json does not say."""
    match = run.facts.get("match")
    if match is None:
        return None
    how = "not matched" if match in ("none", False, "") else f"matched by {str(match).replace('_', ' ')}"
    return f"Costs were {how}."


def unequal_terms(run: Run) -> str:
    """Return a sentence on what differs between the models beside their schemes; "" where no recorded setting does."""
    counted = {m: p.value for m in run.models if (p := run.table.point("parameters", m))}
    known = {m: {"summary": {"parameters": value}} for m, value in counted.items()}
    return unequal([e | known.get(str(e.get("name")), {}) for e in run.entries])
