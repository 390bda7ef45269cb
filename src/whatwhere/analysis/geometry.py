"""How much position matters in a corpus, and how well position tables fit it: every statistic of GEOM sections 5 and 6
with its interval.

Two geometries side by side: "plug-in", the Hellinger distances of the counted distributions, as GEOM has them; and
"corrected", without what few samples add (`geometry.corrected_hellinger`). A statistic of the second has the ending
`.corrected`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..geometry import (
    ENCODINGS,
    MDS,
    MIN_SUPPORT,
    Corrected,
    Distributions,
    alibi,
    centred_gram,
    circulant_share,
    classical_mds,
    corrected_hellinger,
    hellinger,
    jackknife,
    lag_correlation,
    mds_of_squares,
    positional_distributions,
    smacof,
    stress,
    stress_of_distances,
    toeplitz_share,
    violations_of_distances,
)
from ..geometry.counts import Counts
from ..geometry.distances import distances

SPLITS_OF_INTERVALS = (
    2  # splits of the documents for each interval: fewer than for the value, so an interval is rather too wide
)
FEWEST_GROUPS = 8  # of documents, to fit a table on half of them and to try it on the corrected distances of the others
MOST_POSITIONS = 2048  # (m, m) matrices and their eigenvectors, a few times for each group
MOST_WITH_INTERVALS = 512  # positions up to which every single distance gets an interval: more would fill the memory
PAPER_SMOOTHING = 1e-12
RANKS_TRIED = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50)


@dataclass(frozen=True)
class Plan:
    """What is measured on a corpus.

    paper: GEOM's own protocol: all positions, the last two always empty, smoothed counts, no correction.
    min_support: tokens of a position that is kept.
    width: d of the encodings. dims: d of the curves. ranks: r of the MDS tables. heads: columns of ALiBi's table.
    tables: further tables by name, each (positions, width), row i of position i. splits: random halves. intervals:
    whether there are any.
    """

    paper: bool = False
    min_support: float = MIN_SUPPORT
    width: int = 768
    dims: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 768)
    ranks: tuple[int, ...] = (1, 2, 3, 7)
    heads: int = 12
    tables: Mapping[str, np.ndarray] = field(default_factory=dict)
    splits: int = 10
    intervals: bool = True
    use_smacof: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Statistic:
    """One number of a corpus: metric, part (encoding) and index (rank, width, component or position) as in `Record`;
    interval if any."""

    metric: str
    value: float
    part: str | None = None
    index: int | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class Geometry:
    """The geometry of the positions of one corpus; m positions kept of n.

    dist: (m, m) plug-in distances. corrected: without noise, or None (paper's protocol).
    mds, mds_corrected: classical MDS of both at full rank. statistics: every number.
    dist_half, squares_half: (m, m) half 95 % intervals of `dist` and of the corrected squares, or None.
    """

    distributions: Distributions
    dist: np.ndarray
    corrected: Corrected | None
    mds: MDS
    mds_corrected: MDS | None
    statistics: list[Statistic]
    dist_half: np.ndarray | None = None
    squares_half: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class CorpusDistances:
    """Hellinger distances of a corpus (m, m) and the positions that their rows are, counted from 0 without special
    tokens (m,).

    corrected: the same without what few samples add (`geometry.corrected_hellinger`), or None.
    """

    dist: np.ndarray
    positions: np.ndarray
    corrected: np.ndarray | None = None

    def kinds(self) -> dict[str, np.ndarray]:
        """The distances by the ending of what is measured on them: "" and, if there are corrected ones,
        ".corrected"."""
        return {"": self.dist} | ({} if self.corrected is None else {".corrected": self.corrected})

    def stress(self, rows: np.ndarray) -> dict[str, float]:
        """`stress.raw` and `stress.optimal` of vectors of the positions, with their endings."""
        return {
            f"stress.{scale}{ending}": stress(rows, dist, scale)  # type: ignore[arg-type]
            for ending, dist in self.kinds().items()
            for scale in ("raw", "optimal")
        }


def rows_of(corpus: CorpusDistances, rows: int) -> np.ndarray:
    """The table's rows of the corpus's positions."""
    found = np.asarray(corpus.positions) + 1
    if found.max() >= rows:
        raise ValueError(
            f"The corpus has a position {found.max() - 1}, in row {found.max()}, but the table has {rows} rows. "
            f"Keep {rows - 1} positions: --positions {rows - 1}."
        )
    return found


Key = tuple[str, str | None, int | None]
TableKey = tuple[str, int | None]  # encoding, and its width where it is not that of the run


def encoding_tables(plan: Plan, n: int) -> dict[str, np.ndarray]:
    """The tables that a corpus of n positions is compared with, by name: (n, width) each, ALiBi's (n, heads).

    Raises:
        ValueError: a table of the plan has fewer than n rows.
    """
    found = {name: make(n, plan.width) for name, make in ENCODINGS.items() if name not in ("alibi", "random")}
    found["alibi"] = alibi(n, plan.heads)
    if plan.paper:
        found["alibi, slopes 1"] = alibi(n, plan.heads, [1.0] * plan.heads)  # GEOM's number for IMDB (DESIGN 6.4)
    found["random"] = ENCODINGS["random"](n, plan.width)
    for name, table in plan.tables.items():
        if len(table) < n:
            way = f"Ask for fewer: --positions {len(table)}." if len(table) > 2 else "Give a longer one."
            raise ValueError(f"The table {name} has rows for {len(table)} positions, {n} are asked for. {way}")
        found[name] = table[:n]
    return found


def corpus_geometry(
    counts: Counts, plan: Plan, show: Callable[[str, int, int], None] = lambda what, done, all: None
) -> Geometry:
    """Distances, MDS, stress, violations and their intervals for the counts of one corpus.

    Args:
        counts: in groups of documents; in the paper's protocol one is enough, as nothing is corrected.
        plan: what to measure.
        show: is told what is being done, how many of how many steps.

    Raises:
        ValueError: no position with enough tokens, fewer than three such positions, or a table too short.
    """
    smoothing, support = (PAPER_SMOOTHING, 0.0) if plan.paper else (0.0, plan.min_support)
    if plan.paper:
        counts = _with_room_for_specials(counts)
    kept = positional_distributions(counts.total(), smoothing, support)
    if len(kept.positions) < 3:
        raise ValueError(
            f"{len(kept.positions)} of {counts.positions} positions have at least {support:g} tokens; a geometry needs "
            "3. "
            "Count more text, or lower min_support."
        )
    if len(kept.positions) > MOST_POSITIONS:
        raise ValueError(
            f"{len(kept.positions)} positions have enough tokens; a run compares at most {MOST_POSITIONS}. Ask for "
            "fewer --positions, with "
            "--align relative for whole documents; geometry.hellinger_mds scales more in Python."
        )
    tables = {name: table[kept.positions] for name, table in encoding_tables(plan, counts.positions).items()}
    apart = {(name, None): distances(table) for name, table in tables.items()} | _curve_distances(
        plan, counts.positions, kept.positions
    )
    groups = [counts.group(g) for g in range(counts.groups) if counts.documents[g]]
    if len(groups) < 2 and not plan.paper:
        raise ValueError(
            f"{int(counts.documents.sum())} document, or equal ones: nothing tells what chance adds to its distances. "
            "Give two at least; "
            "--set document=line or blank-line cuts a text into documents."
        )
    can_correct = not plan.paper
    show("distances", 0, 1)
    dist = hellinger(kept.p)
    corrected = corrected_hellinger(groups, kept.positions, plan.splits, plan.seed) if can_correct else None
    full = classical_mds(dist)
    full_corrected = _scaled(corrected.squares) if corrected is not None else None
    values = dict(_statistics(dist, full, kept.positions, apart, plan))
    if corrected is not None:
        values |= _ending(dict(_statistics(corrected.signed, full_corrected, kept.positions, apart, plan)))
        values["floor.mean", None, None] = float(corrected.floor.mean())
    bounds: dict[Key, float] = {}
    dist_half = squares_half = None
    if plan.intervals and len(groups) > 1:
        keys = [
            key for key in values if key[0] not in ("floor.mean", "rank", "rank.corrected") and key[1:] != ("mds", None)
        ]
        half, dist_half, squares_half = _intervals(groups, kept, apart, plan, smoothing, keys, can_correct, show)
        bounds = {key: float(h) for key, h in zip(keys, half, strict=True) if np.isfinite(h)}
    values |= dict(_of_tables(apart, full, kept.positions, plan))
    if can_correct and len(groups) >= FEWEST_GROUPS:
        show("held-out documents", 0, 1)
        values |= dict(_held_out(groups, kept.positions, tables, plan))
    statistics = [_statistic(key, value, bounds.get(key)) for key, value in values.items() if np.isfinite(value)]
    return Geometry(kept, dist, corrected, full, full_corrected, statistics, dist_half, squares_half)


def _with_room_for_specials(counts: Counts) -> Counts:
    """Counts without the last two positions: GEOM cuts to n tokens with [CLS] and [SEP], n - 2 of text, and keeps the
    empty rows."""
    matrix = counts.matrix.copy()
    last = np.concatenate(
        [g * counts.positions + np.arange(max(counts.positions - 2, 0), counts.positions) for g in range(counts.groups)]
    )
    for row in last:
        matrix.data[matrix.indptr[row] : matrix.indptr[row + 1]] = 0
    matrix.eliminate_zeros()
    return replace(counts, matrix=matrix)


def _scaled(squares: np.ndarray) -> MDS | None:
    """Classical MDS of corrected squares; None where no dimension stands out of chance, which is a finding, not an
    error."""
    try:
        return mds_of_squares(squares)
    except ValueError:
        return None


def _statistic(key: Key, value: float, half: float | None) -> Statistic:
    """One number with its interval; mean squares become their roots."""
    low, high = (None, None) if half is None or abs(value) < 1e-12 else (value - half, value + half)
    if key[0].startswith("distance.mean"):
        value, low, high = _signed_root(value), low and _signed_root(low), high and _signed_root(high)
    metric, part, index = key
    return Statistic(metric, value, part, index, low, high)


def _signed_root(square: float) -> float:
    return float(np.sign(square) * np.sqrt(abs(square)))


def _ending(values: Mapping[Key, float]) -> dict[Key, float]:
    return {(f"{metric}.corrected", part, index): value for (metric, part, index), value in values.items()}


def _statistics(
    signed: np.ndarray, mds: MDS | None, positions: np.ndarray, apart: Mapping[TableKey, np.ndarray], plan: Plan
) -> Iterator[tuple[Key, float]]:
    """Every number of one geometry that gets an interval; `distance.mean` as the mean square.

    Corrected distances come signed, so that orders and correlations are not those of numbers cut at 0; stress takes
    them cut at 0.
    """
    squares = np.sign(signed) * signed**2
    dist = np.maximum(signed, 0.0)
    yield ("distance.mean", None, None), float(squares[np.triu_indices(len(dist), 1)].mean())
    yield ("lag.correlation", None, None), lag_correlation(signed, positions, signed=True)
    yield ("violations", "corpus", None), violations_of_distances(signed, positions, signed=True)
    gram = centred_gram(squares)
    yield ("toeplitz", None, None), toeplitz_share(gram, positions)
    yield ("circulant", None, None), circulant_share(gram, positions)
    yield ("rank", None, None), float(mds.rank if mds is not None else 0)
    pairs = np.triu_indices(len(dist), 1)
    for (name, width), d in apart.items():
        yield ("stress.raw", name, width), stress_of_distances(d, dist, "raw")
        yield ("stress.optimal", name, width), stress_of_distances(d, dist, "optimal")
        if width is None and np.ptp(d[pairs]) and np.ptp(dist[pairs]):
            yield ("correlation", name, None), float(np.corrcoef(d[pairs], dist[pairs])[0, 1])
    constant = np.ones_like(dist) - np.eye(len(dist))
    yield ("stress.optimal", "equidistant", None), stress_of_distances(constant, dist, "optimal")
    if mds is None:
        return
    variance = mds.eigenvalues[mds.eigenvalues > 0].sum()
    for i, value in enumerate(mds.eigenvalues[:10]):
        yield ("mds.share", None, i), float(max(value, 0.0) / variance)
    ranks = {r for r in (*plan.ranks, *RANKS_TRIED, *plan.dims) if r < mds.rank}
    for rank in sorted(ranks | {mds.rank}):
        coords = mds.coords[:, :rank]
        index = None if rank == mds.rank else rank
        for scale in ("raw", "optimal"):
            yield (f"stress.{scale}", "mds", index), stress(coords, dist, scale)  # type: ignore[arg-type]
        yield ("violations", "mds", index), violations_of_distances(distances(coords), positions)
        if plan.use_smacof and index is not None and index in plan.ranks:
            better = smacof(dist, rank, init=coords)
            yield ("stress.raw", "smacof", index), better.stress
            yield ("stress.optimal", "smacof", index), stress(better.coords, dist, "optimal")


def _curve_distances(plan: Plan, n: int, positions: np.ndarray) -> dict[TableKey, np.ndarray]:
    """Distances of the encodings that GEOM figure 4 follows over d: (name, d) -> (m, m)."""
    found: dict[TableKey, np.ndarray] = {}
    for d in plan.dims:
        for name in ("sinusoidal", "rope"):
            if name != "rope" or d % min(64, d) == 0:  # whole heads
                found[name, d] = distances(ENCODINGS[name](n, d)[positions])
    return found


def _of_tables(
    apart: Mapping[TableKey, np.ndarray], mds: MDS, positions: np.ndarray, plan: Plan
) -> Iterator[tuple[Key, float]]:
    """What does not depend on the corpus: violations of the tables, parameters (GEOM Table 2)."""
    for (name, width), d in apart.items():
        if width is None:
            yield ("violations", name, None), violations_of_distances(d, positions)
    for rank in sorted({min(r, mds.rank) for r in plan.ranks} | {mds.rank}):
        yield ("parameters", "mds", rank), float(rank * (len(positions) + plan.width))
    yield ("parameters", "free", None), float(len(positions) * plan.width)


def _held_out(
    groups: Sequence[Any], positions: np.ndarray, tables: Mapping[str, np.ndarray], plan: Plan
) -> Iterator[tuple[Key, float]]:
    """Stress at the best scale of tables fitted on half of the documents, against the corrected distances of the other
    half.

    At full rank MDS fits the distances that it is given exactly, noise and all; on other documents the noise is a
    fault. Mean over `splits` random halves, each used both ways. The other tables are measured on the same distances.
    The part "noise" has one half's distances themselves against those of the other, for comparison; a table of few
    dimensions has less noise and may well be below.
    """
    rng = np.random.default_rng(plan.seed)
    found: dict[Key, list[float]] = {}
    for _ in range(max(1, plan.splits // 2)):
        order = rng.permutation(len(groups))
        halves = [
            corrected_hellinger([groups[i] for i in half], positions, plan.splits, plan.seed)
            for half in np.array_split(order, 2)
        ]
        for fitted, other in (halves, halves[::-1]):
            dist = other.distances
            mds = _scaled(fitted.squares)
            coords = mds.coords if mds is not None else np.zeros((len(dist), 0))
            for rank in {r for r in (*RANKS_TRIED, *plan.ranks) if r <= coords.shape[1]}:
                value = stress(coords[:, :rank], dist, "optimal")
                found.setdefault(("stress.held_out", "mds", rank), []).append(value)
            for name, table in tables.items():
                found.setdefault(("stress.held_out", name, None), []).append(stress(table, dist, "optimal"))
            equal = np.ones_like(dist) - np.eye(len(dist))
            found.setdefault(("stress.held_out", "equidistant", None), []).append(
                stress_of_distances(equal, dist, "optimal")
            )
            for scale in ("raw", "optimal"):
                value = stress_of_distances(fitted.distances, dist, scale)  # type: ignore[arg-type]
                found.setdefault((f"stress.{scale}.corrected", "noise", None), []).append(value)
    most = max(len(values) for values in found.values())
    yield from ((key, float(np.mean(values))) for key, values in found.items() if len(values) == most)


def best_rank(geometry: Geometry) -> int | None:
    """The rank at which MDS fits documents best that it has not seen; None if that was not measured."""
    tried = _held_out_of(geometry, "mds")
    return min(tried, key=lambda s: s.value).index if tried else None


def stands_out(geometry: Geometry) -> bool:
    """Whether the corpus's own table fits documents that it has not seen better than a random one; True if nothing was
    corrected."""
    if geometry.corrected is None:
        return True
    mds, random = _held_out_of(geometry, "mds"), _held_out_of(geometry, "random")
    return geometry.mds_corrected is not None and (
        not random or min((s.value for s in mds), default=np.inf) < random[0].value
    )


def _held_out_of(geometry: Geometry, part: str) -> list[Statistic]:
    return [s for s in geometry.statistics if s.metric == "stress.held_out" and s.part == part]


def _intervals(
    groups: Sequence[Any],
    kept: Distributions,
    apart: Mapping[TableKey, np.ndarray],
    plan: Plan,
    smoothing: float,
    keys: Sequence[Key],
    can_correct: bool,
    show: Callable[[str, int, int], None],
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Half intervals of the numbers `keys`, of the distances and of the corrected squares, by leaving out groups of
    documents."""
    positions, m = kept.positions, len(kept.positions)
    whole = m <= MOST_WITH_INTERVALS
    steps = 0

    def measured(left: Sequence[Any]) -> np.ndarray:
        nonlocal steps
        show("intervals", steps, len(groups) + 1)
        steps += 1
        summed = sum(left[1:], start=left[0])[positions]
        dist = hellinger(positional_distributions(summed, smoothing, 0.0).p)
        values = dict(_statistics(dist, classical_mds(dist), positions, apart, plan))
        matrices = [dist.ravel()] if whole else []
        if can_correct:
            corrected = corrected_hellinger(left, positions, SPLITS_OF_INTERVALS, plan.seed)
            found = _statistics(corrected.signed, _scaled(corrected.squares), positions, apart, plan)
            values |= _ending(dict(found))
            matrices += [corrected.squares.ravel()] if whole else []
        return np.concatenate([[values.get(key, np.nan) for key in keys], *matrices])

    interval = jackknife(groups, measured, summed=False)
    half = (interval.high - interval.low) / 2
    matrices: list[np.ndarray | None] = [*half[len(keys) :].reshape(-1, m, m), None, None]
    return half[: len(keys)], matrices[0], matrices[1]


def scatter(
    geometry: Geometry, tables: Mapping[str, np.ndarray], seed: int = 0, most: int = 400
) -> dict[str, np.ndarray]:
    """Distances of tables at their best scale beside those of the corpus, for up to `most` random pairs of positions
    (GEOM figure 7).

    Returns:
        scatter_dist (k,): of the corpus, corrected where it is. scatter_lag (k,). scatter_names (encodings,).
        scatter_table (encodings, k).
    """
    positions = geometry.distributions.positions
    i, j = np.triu_indices(len(positions), 1)
    if len(i) > most:
        chosen = np.random.default_rng(seed).choice(len(i), most, replace=False)
        i, j = i[chosen], j[chosen]
    dist = geometry.dist if geometry.corrected is None else geometry.corrected.distances
    scaled = []
    for table in tables.values():
        d = distances(table[positions])
        scaled.append((d * np.vdot(d, dist) / max(float(np.vdot(d, d)), 1e-300))[i, j])
    return {
        "scatter_dist": dist[i, j],
        "scatter_lag": positions[j] - positions[i],
        "scatter_names": np.array(list(tables)),
        "scatter_table": np.array(scaled),
    }
