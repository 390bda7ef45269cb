"""Weight of position in a corpus, and fit of position tables to it (GEOM sections 5 and 6).

Two geometries side by side: "plug-in", the Hellinger distances of the counted distributions, as GEOM has them; and
"corrected", without what few samples add (`geometry.corrected_hellinger`). A statistic of the second has the ending
`.corrected`.
"""

from collections import defaultdict
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
from ..geometry.distances import TooLittleText, advise_on_support, distances
from ..geometry.stress import Scale
from ..records.intervals import bounded
from ..records.metrics import range_of
from ..records.record import Record, select

SCALES: tuple[Scale, ...] = ("raw", "optimal")
# Splits of the documents for each interval: fewer than for the value, so an interval is rather too wide.
SPLITS_OF_INTERVALS = 2
FEWEST_GROUPS = 8  # of documents, to fit a table on half of them and to try it on the corrected distances of the others
MOST_POSITIONS = 2048  # (m, m) matrices and their eigenvectors, a few times for each group
MOST_WITH_INTERVALS = 512  # positions up to which every single distance gets an interval: more would fill the memory
PAPER_SMOOTHING = 1e-12
SPLITS_TO_CHOOSE = 2  # random halves behind the corrected distances by which a rank is chosen
RANKS_TRIED = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50)
# Tables whose stresses are compared: one, the other, and the rank of the first where it is not whole.
RATIOS = (
    ("alibi", "sinusoidal", None),
    ("rope", "sinusoidal", None),
    ("sinusoidal", "random", None),
    ("random", "alibi", None),
    ("random", "sinusoidal", None),
    ("random", "rope", None),
    ("mds", "sinusoidal", 3),
)


@dataclass(frozen=True)
class Plan:
    """Settings of the measurements on a corpus.

    follows_paper: GEOM's own protocol: all positions, the last two always empty, smoothed counts, no correction.
    min_support: tokens of a position that is kept.
    width: d of the encodings. dims: d of the curves. ranks: r of the MDS tables. heads: columns of ALiBi's table.
    tables: further tables by name, each (positions, width), row i of position i. splits: random halves. intervals:
    whether there are any.
    """

    follows_paper: bool = False
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


@dataclass(frozen=True, eq=False)
class Geometry:
    """Geometry of the positions of one corpus, m of its n positions.

    dist: (m, m) plug-in distances. corrected: without noise, or None (paper's protocol).
    mds, mds_corrected: classical MDS of both at full rank. statistics: every number, without the corpus's name; part:
    encoding, index: rank, width, component or position.
    dist_margin, squares_margin: (m, m) half 95 % intervals of `dist` and of the corrected squares, or None.
    """

    distributions: Distributions
    dist: np.ndarray
    corrected: Corrected | None
    mds: MDS
    mds_corrected: MDS | None
    statistics: list[Record]
    dist_margin: np.ndarray | None = None
    squares_margin: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class CorpusDistances:
    """Hellinger distances of a corpus (m, m) with the positions of their rows.

    positions: (m,), counted from 0 without special tokens. corrected: distances without the part that few samples add
    (`geometry.corrected_hellinger`), or None.
    """

    dist: np.ndarray
    positions: np.ndarray
    corrected: np.ndarray | None = None

    def kinds(self) -> dict[str, np.ndarray]:
        """Return the distances by the ending of their metrics: "" and, if there are corrected ones, ".corrected"."""
        return {"": self.dist} | ({} if self.corrected is None else {".corrected": self.corrected})

    def stress(self, rows: np.ndarray) -> dict[str, float]:
        """Compute `stress.raw` and `stress.optimal` of vectors (m, d) of the positions, with their endings.

        Raises:
            ValueError: another number of rows, NaN or infinity in them, or distances that are all 0.
        """
        kinds = self.kinds().items()
        return {f"stress.{scale}{e}": stress(rows, dist, scale) for e, dist in kinds for scale in SCALES}


def rows_of(corpus: CorpusDistances, rows: int) -> np.ndarray:
    """Return the rows of a table, (m,), that belong to the corpus's positions; `rows` is its number of rows.

    Raises:
        ValueError: the corpus has a position beyond the table.
    """
    at = np.asarray(corpus.positions) + 1
    if at.max() >= rows:
        raise ValueError(
            f"The corpus has a position {at.max() - 1}, in row {at.max()}, but the table has {rows} rows. "
            f"Keep {rows - 1} positions: --positions {rows - 1}."
        )
    return at


Key = tuple[str, str | None, int | None]  # metric, part, index


def encoding_tables(plan: Plan, n: int) -> dict[str, np.ndarray]:
    """Return the tables that a corpus of n positions is compared with, by name: (n, width) each, ALiBi's (n, heads).

    Raises:
        ValueError: a table of the plan has fewer than n rows, or its width does not suit it, as an odd one does not
            suit RoPE.
    """
    tables = {name: make(n, plan.width) for name, make in ENCODINGS.items() if name not in ("alibi", "random")}
    tables["alibi"] = alibi(n, plan.heads)
    if plan.follows_paper:
        tables["alibi, slopes 1"] = alibi(n, plan.heads, [1.0] * plan.heads)  # GEOM's number for IMDB
    tables["random"] = ENCODINGS["random"](n, plan.width)
    for name, table in plan.tables.items():
        if len(table) < n:
            way = f"Ask for fewer: --positions {len(table)}." if len(table) > 2 else "Give a longer one."
            raise ValueError(f"The table {name} has rows for {len(table)} positions, {n} are asked for. {way}")
        tables[name] = table[:n]
    return tables


def corpus_geometry(
    counts: Counts, plan: Plan, progress: Callable[..., None] = lambda done, total, part: None
) -> Geometry:
    """Measure distances, MDS, stress, violations and their intervals from the counts of one corpus.

    Args:
        counts: in groups of documents; in the paper's protocol one is enough, as nothing is corrected.
        plan: what to measure.
        progress: function that is called with (steps done, steps in all, name of the part).

    Raises:
        ValueError: no position with enough tokens, fewer than three such positions, or a table too short; more than
            2,048 positions; documents of fewer than two groups, or a position without tokens in one half of them (but
            in the paper's protocol); positions that are all alike.
    """
    smoothing = 0.0
    support = plan.min_support
    if plan.follows_paper:
        smoothing = PAPER_SMOOTHING
        support = 0.0
        counts = _with_room_for_specials(counts)
    distributions = positional_distributions(counts.total(), smoothing, support)
    positions = distributions.positions
    m = len(positions)
    if m < 3:
        raise TooLittleText(
            f"{m} of {counts.positions} positions have at least {support:g} tokens; a geometry needs 3.",
            advise_on_support(distributions.support) if counts.positions > 2 else "Ask for more --positions.",
        )
    if m > MOST_POSITIONS:
        raise ValueError(
            f"{m} positions have enough tokens; a run compares at most {MOST_POSITIONS}. Ask for fewer --positions, "
            "with --align relative for whole documents; geometry.hellinger_mds scales more in Python."
        )
    groups = [counts.group(g) for g in range(counts.groups) if counts.documents[g]]
    if len(groups) < 2 and not plan.follows_paper:
        raise ValueError(
            f"{int(counts.documents.sum())} document, or equal ones: nothing tells what chance adds to its distances. "
            "Give at least two; --set document=line or blank-line cuts a text into documents."
        )
    compared = _Compared(plan, counts.positions, positions)
    progress(0, 1, "distances")
    dist = hellinger(distributions.p)
    corrected = None if plan.follows_paper else corrected_hellinger(groups, positions, plan.splits, plan.seed)
    full = classical_mds(dist)
    full_corrected = None if corrected is None else _scaled(corrected.squares)
    values = compared.both(dist, full, corrected)
    if corrected is not None:
        values["floor.mean", None, None] = float(corrected.floor.mean())
    bounds: dict[Key, float] = {}
    halves: list[np.ndarray | None] = [None, None]
    if plan.intervals and len(groups) > 1:
        without = ("floor.mean", "rank", "rank.corrected")
        keys = [key for key in values if key[0] not in without and key[1:] != ("mds", None)]
        whole = m <= MOST_WITH_INTERVALS
        steps = iter(range(len(groups) + 1))

        def measured(left: Sequence[Any]) -> np.ndarray:
            progress(next(steps), len(groups) + 1, "intervals")
            summed = sum(left[1:], start=left[0])[positions]
            apart = hellinger(positional_distributions(summed, smoothing, 0.0).p)
            better = None
            if not plan.follows_paper:
                better = corrected_hellinger(left, positions, SPLITS_OF_INTERVALS, plan.seed)
            again = compared.both(apart, classical_mds(apart), better)
            matrices = [apart.ravel()] if whole else []
            if whole and better is not None:
                matrices.append(better.squares.ravel())
            return np.concatenate([[again.get(key, np.nan) for key in keys], *matrices])

        ends = jackknife(groups, measured, summed=False)
        half = (ends.high - ends.low) / 2
        bounds = {key: float(h) for key, h in zip(keys, half, strict=False) if np.isfinite(h)}
        halves = [*half[len(keys) :].reshape(-1, m, m), None, None]
    values |= compared.tables_alone(full)
    if not plan.follows_paper and len(groups) >= FEWEST_GROUPS:
        progress(0, 1, "held-out documents")
        values |= compared.held_out(groups)
    statistics = [_statistic(key, value, bounds.get(key)) for key, value in values.items() if np.isfinite(value)]
    return Geometry(distributions, dist, corrected, full, full_corrected, statistics, halves[0], halves[1])


def _with_room_for_specials(counts: Counts) -> Counts:
    """Return counts without the last two positions: GEOM cuts to n tokens with [CLS] and [SEP], n - 2 of text, and
    keeps the empty rows."""
    matrix = counts.matrix.copy()
    n = counts.positions
    for row in (g * n + i for g in range(counts.groups) for i in range(max(n - 2, 0), n)):
        matrix.data[matrix.indptr[row] : matrix.indptr[row + 1]] = 0
    matrix.eliminate_zeros()
    return replace(counts, matrix=matrix)


def _scaled(squares: np.ndarray) -> MDS | None:
    """Compute classical MDS of corrected squares; None where no dimension stands out of chance, which is a result, not
    an error."""
    try:
        return mds_of_squares(squares)
    except ValueError:
        return None


def _statistic(key: Key, value: float, half: float | None) -> Record:
    """Return a record of one number with its interval; mean squares become their roots."""
    low = None
    high = None
    if half is not None and abs(value) >= 1e-12:
        low, high = bounded(value, half, half, range_of(key[0]))
    if key[0].startswith("distance.mean"):
        value = _signed_root(value)
        low = low and _signed_root(low)
        high = high and _signed_root(high)
    metric, part, index = key
    return Record("", "", metric, value, low, high, part=part, index=index)


def _signed_root(square: float) -> float:
    return float(np.sign(square) * np.sqrt(abs(square)))


def _with_ratios(values: dict[Key, float]) -> dict[Key, float]:
    """Add the ratios of stresses of two tables to the numbers of one geometry.

    Both stresses come from the same documents, so the two are not independent in the interval of a ratio.
    """
    for scale in SCALES:
        for a, b, index in RATIOS:
            above = values.get((f"stress.{scale}", a, index))
            below = values.get((f"stress.{scale}", b, None))
            if above is not None and below:
                values[f"stress.ratio.{scale}", f"{a}/{b}", index] = above / below
    return values


class _Compared:
    """Measured positions (m,) of a corpus of n, and the tables that they are compared with.

    tables: rows of the positions. apart: (m, m) distances of these, and of the encodings that GEOM figure 4 follows
    over d, by name and width (None: the width of the run).
    """

    def __init__(self, plan: Plan, n: int, positions: np.ndarray) -> None:
        self.plan = plan
        self.positions = positions
        self.tables = {name: table[positions] for name, table in encoding_tables(plan, n).items()}
        self.apart: dict[tuple[str, int | None], np.ndarray] = {
            (name, None): distances(table) for name, table in self.tables.items()
        }
        for d in plan.dims:
            for name in ("sinusoidal", "rope"):
                if name != "rope" or d % min(64, d) == 0:  # RoPE has whole heads
                    self.apart[name, d] = distances(ENCODINGS[name](n, d)[positions])

    def both(self, dist: np.ndarray, mds: MDS, corrected: Corrected | None) -> dict[Key, float]:
        """Return every number that gets an interval, plug-in and, with the ending `.corrected`, corrected."""
        values = _with_ratios(dict(self._statistics(dist, mds)))
        if corrected is not None:
            others = _with_ratios(dict(self._statistics(corrected.signed, _scaled(corrected.squares))))
            values |= {(f"{metric}.corrected", part, index): value for (metric, part, index), value in others.items()}
        return values

    def _statistics(self, signed: np.ndarray, mds: MDS | None) -> Iterator[tuple[Key, float]]:
        """Yield the numbers of one kind of distances; `distance.mean` as the mean square.

        Corrected distances come signed: the correlation with the lag and orders use the sign, stress and
        correlations with tables take them cut at 0.
        """
        positions = self.positions
        plan = self.plan
        pairs = np.triu_indices(len(signed), 1)
        squares = np.sign(signed) * signed**2
        dist = np.maximum(signed, 0.0)
        yield ("distance.mean", None, None), float(squares[pairs].mean())
        yield ("lag.correlation", None, None), lag_correlation(signed, positions, signed=True)
        yield ("lag.share", None, None), toeplitz_share(squares, positions)
        yield ("violations", "corpus", None), violations_of_distances(signed, positions, signed=True)
        gram = centred_gram(squares)
        yield ("toeplitz", None, None), toeplitz_share(gram, positions)
        yield ("circulant", None, None), circulant_share(gram, positions)
        yield ("rank", None, None), float(mds.rank if mds is not None else 0)
        for (name, width), d in self.apart.items():
            for scale in SCALES:
                yield (f"stress.{scale}", name, width), stress_of_distances(d, dist, scale)
            if width is None and np.ptp(d[pairs]) and np.ptp(dist[pairs]):
                yield ("correlation", name, None), float(np.corrcoef(d[pairs], dist[pairs])[0, 1])
        yield ("stress.optimal", "equidistant", None), stress_of_distances(equidistant(dist), dist, "optimal")
        if mds is None:
            return
        variance = mds.eigenvalues[mds.eigenvalues > 0].sum()
        for i, value in enumerate(mds.eigenvalues[:10]):
            yield ("mds.share", None, i), float(max(value, 0.0) / variance)
        ranks = {r for r in (*plan.ranks, *RANKS_TRIED, *plan.dims) if r < mds.rank}
        for rank in sorted(ranks | {mds.rank}):
            coords = mds.coords[:, :rank]
            index = None if rank == mds.rank else rank
            for scale in SCALES:
                yield (f"stress.{scale}", "mds", index), stress(coords, dist, scale)
            yield ("violations", "mds", index), violations_of_distances(distances(coords), positions)
            if plan.use_smacof and index is not None and index in plan.ranks:
                better = smacof(dist, rank, init=coords)
                yield ("stress.raw", "smacof", index), better.stress
                yield ("stress.optimal", "smacof", index), stress(better.coords, dist, "optimal")

    def tables_alone(self, mds: MDS) -> dict[Key, float]:
        """Return the numbers that do not depend on the corpus: violations of the tables, parameters (GEOM Table 2)."""
        m = len(self.positions)
        width = self.plan.width
        whole = {name: d for (name, narrower), d in self.apart.items() if narrower is None}
        ranks = {min(r, mds.rank) for r in self.plan.ranks} | {mds.rank}
        values: dict[Key, float] = {("parameters", "mds", rank): float(rank * (m + width)) for rank in sorted(ranks)}
        values["parameters", "free", None] = float(m * width)
        violations = {name: violations_of_distances(d, self.positions) for name, d in whole.items()}
        return values | {("violations", name, None): value for name, value in violations.items()}

    def held_out(self, groups: Sequence[Any]) -> dict[Key, float]:
        """Compute stress at the best scale of tables fitted on half of the documents, against the corrected distances
        of the other half.

        At full rank MDS fits the distances that it is given exactly, noise and all; on other documents the noise is a
        fault. Mean over `splits` random halves, each used both ways. "noise" is the distances of one half against the
        distances of the other; a table of few dimensions has less noise and may well be below. "mds.chosen" is MDS at
        the rank that the half it was fitted on would choose (its own halves, one fitted, one judging), so that the
        choice does not use the documents of the judgement.
        """
        plan = self.plan
        rng = np.random.default_rng(self.plan.seed)
        values: dict[Key, list[float]] = defaultdict(list)
        for _ in range(max(1, plan.splits // 2)):
            parts = np.array_split(rng.permutation(len(groups)), 2)
            halves = [self._corrected(groups, half, plan.splits) for half in parts]
            for (fitted, other), half in zip((halves, halves[::-1]), parts, strict=True):
                dist = other.distances
                by_rank = self._by_rank(fitted, dist)
                for rank, left in by_rank.items():
                    values["stress.held_out", "mds", rank].append(left)
                if (chosen := self._chosen(groups, half)) is not None and chosen in by_rank:
                    values["stress.held_out", "mds.chosen", None].append(by_rank[chosen])
                for name, table in self.tables.items():
                    values["stress.held_out", name, None].append(stress(table, dist, "optimal"))
                equal = stress_of_distances(equidistant(dist), dist, "optimal")
                values["stress.held_out", "equidistant", None].append(equal)
                for scale in SCALES:
                    noise = stress_of_distances(fitted.distances, dist, scale)
                    values[f"stress.{scale}.corrected", "noise", None].append(noise)
        most = max(map(len, values.values()))
        return {key: float(np.mean(of_key)) for key, of_key in values.items() if len(of_key) == most}

    def _corrected(self, groups: Sequence[Any], chosen: np.ndarray, splits: int) -> Corrected:
        return corrected_hellinger([groups[i] for i in chosen], self.positions, splits, self.plan.seed)

    def _by_rank(self, fitted: Corrected, dist: np.ndarray) -> dict[int, float]:
        """Return rank -> stress at the best scale of MDS of some documents against the corrected distances
        of others."""
        mds = _scaled(fitted.squares)
        coords = mds.coords if mds is not None else np.zeros((len(dist), 0))
        ranks = {r for r in (*RANKS_TRIED, *self.plan.ranks) if r <= coords.shape[1]}
        return {rank: stress(coords[:, :rank], dist, "optimal") for rank in ranks}

    def _chosen(self, groups: Sequence[Any], half: np.ndarray) -> int | None:
        """Return the rank that some documents choose by themselves, one half fitted and the other judging; None where
        they are too few."""
        try:
            fitted, other = (self._corrected(groups, part, SPLITS_TO_CHOOSE) for part in np.array_split(half, 2))
        except ValueError:  # a position without text in a quarter of the documents
            return None
        by_rank = self._by_rank(fitted, other.distances)
        return min(by_rank, key=lambda rank: by_rank[rank]) if by_rank else None


def equidistant(dist: np.ndarray) -> np.ndarray:
    """Return the distance matrix of points that are all 1 apart, of the shape of `dist` (m, m)."""
    return np.ones_like(dist) - np.eye(len(dist))


def best_rank(geometry: Geometry) -> int | None:
    """Return the rank at which MDS fits held-out documents best; None if that was not measured."""
    tried = _held_out_of(geometry, "mds")
    return min(tried, key=lambda s: s.value).index if tried else None


def stands_out(geometry: Geometry) -> bool:
    """Return whether the corpus's own table fits held-out documents better than a random one.

    True if nothing was corrected.
    """
    if geometry.corrected is None:
        return True
    mds = _held_out_of(geometry, "mds.chosen") or _held_out_of(geometry, "mds")
    random = _held_out_of(geometry, "random")
    return geometry.mds_corrected is not None and (
        not random or min((s.value for s in mds), default=np.inf) < random[0].value
    )


def _held_out_of(geometry: Geometry, part: str) -> list[Record]:
    return select(geometry.statistics, metric="stress.held_out", part=part)


def scatter(
    geometry: Geometry, tables: Mapping[str, np.ndarray], seed: int = 0, most: int = 400
) -> dict[str, np.ndarray]:
    """Return distances of tables beside distances of the corpus, for random pairs.

    Tables are at their best scale; up to `most` pairs of positions are drawn (GEOM figure 7).

    tables: (n, width) each, row i position i, at least as many as the corpus has.

    Returns:
        scatter_dist (k,): of the corpus, corrected where it is. scatter_lag (k,): positions between the two.
        scatter_names (encodings,). scatter_table (encodings, k).
    """
    positions = geometry.distributions.positions
    i, j = np.triu_indices(len(positions), 1)
    if len(i) > most:
        chosen = np.random.default_rng(seed).choice(len(i), most, replace=False)
        i = i[chosen]
        j = j[chosen]
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
