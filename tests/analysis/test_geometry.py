"""The geometry of a corpus: numbers against the functions they come from, intervals that cover, tables on documents not
seen."""

import numpy as np
import pytest
from known_distributions import distributions, sample
from scipy.sparse import csr_array, vstack

from whatwhere.analysis.corpus_geometry import Plan, best_rank, corpus_geometry, encoding_tables
from whatwhere.geometry import (
    classical_mds,
    hellinger,
    positional_distributions,
    random_table,
    sinusoidal,
    smacof,
    stress,
    violations_of_distances,
)
from whatwhere.geometry.counts import Counts

SMALL = Plan(min_support=100, width=64, dims=(4, 16), ranks=(1, 2), splits=4)


def corpus(n=16, tokens=400, groups=12, drift=1.0, seed=0, draw=0):
    """Counts of documents in groups, drawn from known distributions."""
    p = distributions(n, drift=drift, seed=seed)
    parts = [sample(p, tokens, seed=100 * draw + g) for g in range(groups)]
    return p, Counts(vstack(parts, format="csr"), n, groups, np.full(groups, tokens), "start", {})


def values(found):
    return {(s.metric, s.part, s.index): s for s in found.statistics}


def test_statistics_equal_the_functions_they_name():
    _, counts = corpus()
    found = corpus_geometry(counts, SMALL)
    dist = hellinger(positional_distributions(counts.total(), min_support=100).p)
    np.testing.assert_array_equal(found.dist, dist)
    got = values(found)
    waves = sinusoidal(16, 64)
    assert got["stress.raw", "sinusoidal", None].value == stress(waves, dist)
    assert got["stress.optimal.corrected", "sinusoidal", None].value == stress(
        waves, found.corrected.distances, "optimal"
    )
    assert got["stress.raw", "random", None].value == stress(random_table(16, 64), dist)
    assert got["stress.raw", "sinusoidal", 16].value == stress(sinusoidal(16, 16), dist)
    assert got["stress.raw", "mds", 2].value == pytest.approx(classical_mds(dist, 2).stress, rel=1e-9)
    assert got["stress.raw", "smacof", 2].value == pytest.approx(smacof(dist, 2).stress, rel=1e-6)
    assert got["violations", "corpus", None].value == violations_of_distances(dist)
    assert got["parameters", "mds", 2].value == 2 * (16 + 64)
    assert got["stress.raw", "mds", None].value < 1e-20  # full rank: exact, contrary to GEOM section 5.2


@pytest.mark.whole
def test_ratios_of_stresses_are_resampled_as_ratios():
    """Both stresses are of the same documents: their errors go together, and the interval of the ratio is narrower than
    that of two numbers that have nothing to do with each other."""
    got = values(corpus_geometry(corpus(groups=24)[1], SMALL))
    for ending in ("", ".corrected"):
        for a, b in (("rope", "sinusoidal"), ("random", "rope")):
            above, below = (got[f"stress.optimal{ending}", part, None] for part in (a, b))
            ratio = got[f"stress.ratio.optimal{ending}", f"{a}/{b}", None]
            assert ratio.value == pytest.approx(above.value / below.value)
            apart = ratio.value * np.hypot(*((s.high - s.low) / 2 / s.value for s in (above, below)))
            assert 0 < (ratio.high - ratio.low) / 2 < 0.7 * apart, (ending, a, b)


@pytest.mark.whole
def test_intervals_surround_their_value_and_shrink_with_documents():
    narrow, wide = (
        values(corpus_geometry(corpus(tokens=tokens)[1], SMALL))["stress.optimal.corrected", "sinusoidal", None]
        for tokens in (4000, 400)
    )
    for s in (narrow, wide):
        assert s.low < s.value < s.high
    assert narrow.high - narrow.low < wide.high - wide.low


@pytest.mark.parametrize(
    ("draws", "covered"), [pytest.param(9, 7, marks=pytest.mark.long), pytest.param(25, 20, marks=pytest.mark.slow)]
)
def test_intervals_cover_at_their_nominal_rate(draws, covered):
    """Intervals cover what is estimated about as often as they say."""
    # Other documents of the same distributions: the estimate varies around its own mean (which is not quite the truth,
    # see resampling.py).
    plan = Plan(min_support=1, width=64, dims=(), ranks=(1,), splits=4, use_smacof=False)
    found = [values(corpus_geometry(corpus(tokens=1000, seed=0, draw=draw)[1], plan)) for draw in range(draws)]
    for key in (
        ("distance.mean.corrected", None, None),
        ("stress.optimal.corrected", "sinusoidal", None),
        ("distance.mean", None, None),
    ):
        statistics = [draw[key] for draw in found]
        centre = np.mean([s.value for s in statistics])
        assert sum(s.low < centre < s.high for s in statistics) >= covered, key


@pytest.mark.long
def test_without_any_geometry_nothing_is_left_after_correction():
    # Cut at 0 instead of signed, chance would show 0.36 violations and a mean distance whose interval never reaches 0.
    means = []
    shares = []
    contained = 0
    for draw in range(6):
        _, counts = corpus(n=24, drift=0.0, draw=draw)
        plan = Plan(min_support=100, width=64, dims=(), ranks=(1,), splits=4, use_smacof=False)
        found = values(corpus_geometry(counts, plan))
        assert found["distance.mean", None, None].value > 0.15  # what few tokens alone do
        mean = found["distance.mean.corrected", None, None]
        contained += mean.low < 0 < mean.high
        means.append(mean.value)
        shares.append(found["violations.corrected", "corpus", None].value)
    assert contained >= 5 and abs(np.mean(means)) < 0.03
    assert np.mean(shares) == pytest.approx(0.5, abs=0.06)


def test_best_rank_is_that_of_the_truth():
    # The made-up distributions move along three waves.
    _, counts = corpus(n=24, tokens=500, groups=16)
    found = corpus_geometry(counts, Plan(min_support=1, width=64, dims=(), ranks=(1, 2, 3), splits=6, intervals=False))
    held = {s.index: s.value for s in found.statistics if s.metric == "stress.held_out" and s.part == "mds"}
    assert best_rank(found) in (2, 3, 4)
    assert held[1] > 10 * held[best_rank(found)]
    # A rank that was not chosen on what it is judged by does no better, and here nearly as well.
    chosen = next(s.value for s in found.statistics if s.part == "mds.chosen")
    assert held[best_rank(found)] <= chosen < 2 * held[best_rank(found)]
    assert found.mds.rank == 23  # as many as there are, most of them noise


def test_paper_protocol_keeps_positions_that_never_occur():
    _, counts = corpus()
    matrix = counts.matrix.toarray()
    matrix[15::16] = 0  # nothing stands at position 15
    padded = Counts(csr_array(matrix), 16, 12, counts.documents, "start", {})
    found = corpus_geometry(padded, Plan(follows_paper=True, width=64, dims=(), ranks=(1,), intervals=False))
    assert len(found.distributions.positions) == 16 and found.corrected is None
    np.testing.assert_allclose(found.dist[14, 15], 0, atol=1e-6)  # 14 tokens are text in GEOM's 16; uniform, both
    assert ("stress.raw", "alibi, slopes 1", None) in values(found)
    assert len(corpus_geometry(padded, SMALL).distributions.positions) == 15


def test_table_with_too_few_rows_is_refused():
    with pytest.raises(
        ValueError, match=r"The table mine has rows for 9 positions, 16 are asked for. Ask for fewer: --positions 9."
    ):
        encoding_tables(Plan(width=64, tables={"mine": np.zeros((9, 4))}), 16)


def test_too_few_positions_are_refused():
    _, counts = corpus(n=2)
    with pytest.raises(ValueError, match="2 of 2 positions have at least 100 tokens; a geometry needs 3"):
        corpus_geometry(counts, SMALL)
