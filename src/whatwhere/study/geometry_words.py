"""What came out of a geometry run, in plain words made from its numbers by fixed rules."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..analysis.geometry import Geometry, stands_out
from ..records import Record

Numbers = Mapping[tuple[str, str | None, int | None], Record]


def summary(
    found: Geometry, asked: int, width: int, min_support: float, ranks: Sequence[int], table: dict[str, Any] | None
) -> list[str]:
    """Sentences on one corpus.

    Args:
        found: its geometry.
        asked: positions that were to be counted.
        width, min_support, ranks: as in the plan.
        table: the table that was written: file, rows, rank.
    """
    value: Numbers = {(s.metric, s.part, s.index): s for s in found.statistics}
    words = [
        _kept(found, asked, min_support),
        *_noise(found, value),
        *_fit(value, len(found.distributions.positions), width),
    ]
    corrected = ".corrected" if found.corrected is not None else ""
    violations = value[f"violations{corrected}", "corpus", None].value
    words.append(
        f"In {100 * violations:.0f} % of the triples of positions the nearer one is the more different (0 if distances "
        "grow with the lag, 50 by chance)."
    )
    if over := [r for r in ranks if r > found.mds.rank]:
        words.append(f"Rank {max(over)} was asked for; the distances have rank {found.mds.rank}, which is used.")
    if table:
        words.append(
            f"`{table['file']}` is its table of rank {table['rank']} for {table['rows']} model positions: `--set "
            f"model.absolute=mds --set model.table_file=FILE --set model.table_width={table['rank']} --set "
            f"model.max_position_embeddings={table['rows']}`."
        )
    elif not stands_out(found):
        words.append(
            "No table made of these distances fits other documents better than a random one, so none is written."
        )
    return words


def model_summary(records: Sequence[Record], name: str) -> list[str]:
    """Sentences on one model: how far apart its table's rows are over training, and GEOM's conditions H1 and H3."""
    own = [r for r in records if r.model == name]
    words = []
    separation = [r for r in own if r.metric == "separation" and r.part == "corpus"]
    if apart := sorted((r.step, r.value) for r in separation if r.step is not None):
        (first, start), (last, end) = apart[0], apart[-1]
        nearest = "The nearest two rows of its position table are"
        words.append(f"{nearest} {start:.3g} apart at step {first}, {end:.3g} at step {last}.")
    whats = {"h1": "mean word vectors of two positions (H1)", "h3": "the same times a head's matrix M (H3)"}
    for metric, what in whats.items():
        least = [r.value for r in own if r.metric == metric]
        floor = {(r.layer, r.head, r.part): r.value for r in own if r.metric == f"{metric}.floor"}
        below = [r for r in own if r.metric == metric and r.value < floor.get((r.layer, r.head, r.part), 0.0)]
        share = f"{len(below)} of {len(least)}"
        tail = f"; below what two halves of the documents differ by at one position in {share}" if floor else ""
        words += [f"Smallest distance of {what}: {min(least):.3g}{tail}."] if least else []
    return words


def _kept(found: Geometry, asked: int, min_support: float) -> str:
    kept = found.distributions
    if found.corrected is None:
        empty = int(np.sum(kept.support == 0))
        return (
            f"GEOM's protocol: all {asked} positions are kept, the last two empty, as [CLS] and [SEP] take their "
            f"place. {empty} in all are empty and count as uniform, and no noise is taken out."
        )
    tail = f"; {len(kept.left_out)} are left out (first: {kept.left_out[0]})" if len(kept.left_out) else ""
    return f"{len(kept.positions)} of {asked} positions have at least {min_support:g} tokens{tail}."


def _noise(found: Geometry, value: Numbers) -> list[str]:
    if found.corrected is None:
        return []
    mean, counted = value["distance.mean.corrected", None, None], value["distance.mean", None, None].value
    floor = f"Two halves of the documents are {found.corrected.floor.mean():.2f} apart at one and the same position. "
    if (mean.low if mean.low is not None else mean.value) <= 0:
        return [f"{floor}Nothing is left of the distances between positions when that is taken out."]
    noise = 1 - mean.value**2 / counted**2
    return [
        f"{floor}Without that, positions are {mean.value:.2f} apart (root mean square) instead of {counted:.2f}: "
        f"{100 * noise:.0f} % of the squared distances were noise."
    ]


def _fit(value: Numbers, rows: int, width: int) -> list[str]:
    held = {key[1:]: s.value for key, s in value.items() if key[0] == "stress.held_out"}
    ranked = [(s, index) for (part, index), s in held.items() if part == "mds" and index is not None]
    if not ranked:
        return []
    least, rank = min(ranked)
    least = held.get(("mds.chosen", None), least)  # at ranks that were not chosen on what judges them
    sinusoids, equal = held["sinusoidal", None], held["equidistant", None]
    last = rank == max(index for _, index in ranked)
    edge = " (the most that stand out of the noise of half of the documents)" if last else ""
    cost = "fewer" if rank * (rows + width) < rows * width else "more"
    return [
        "Made from half of the documents and held against the others, the corpus's own table has the least stress, "
        f"{least:.3f}, with {rank} dimensions{edge}; sinusoids have {sinusoids:.3f}, positions that are all equally "
        f"far apart {equal:.3f} (best scale; 0 is exact). r(n + d) = {rank * (rows + width):,} numbers are {cost} than "
        f"the {rows * width:,} of a free table of width {width}."
    ]
