"""P values of rules beside Student's test, and what a ledger marks."""

import numpy as np
import pytest
from claim_cases import BY_ID, CASES, verdict
from claim_records import moved, one, probes
from scipy.stats import ttest_1samp

from whatwhere.claims import evaluate
from whatwhere.claims.p_values import p_value
from whatwhere.records.intervals import split_interval
from whatwhere.records.places import LEVEL
from whatwhere.records.table import Point


@pytest.mark.parametrize("values", [[0.2, 0.3, 0.5], [0.1, -0.2, 0.4, 0.3], [0.9, 0.91], [-0.3, -0.2, -0.4]])
def test_p_over_seeds_is_student_p(values):
    """P over seeds is that of students test against values below the threshold."""
    found = p_value(Point.of(np.array(values)[:, None]) >= 0.0)
    assert found == pytest.approx(min(1.0, 2 * ttest_1samp(values, 0.0, alternative="greater").pvalue))


@pytest.mark.parametrize("shift", np.linspace(-0.3, 0.3, 13))
def test_small_p_means_an_interval_above_threshold(shift):
    """P is small exactly where the interval lies above the threshold."""
    splits = Point.of([0.2 + shift + 0.05 * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])]) >= 0.2
    carried = Point.between(0.2 + shift, 0.1 + shift, 0.25 + shift) >= 0.2
    for margin in (splits, carried):
        assert (p_value(margin) <= LEVEL) == (margin.low >= 0)
    low, _ = split_interval(splits.at[0])
    touching = Point.of(splits.at - low) >= 0.0  # its interval ends on the threshold
    assert p_value(touching) == pytest.approx(LEVEL)


def test_without_an_interval_there_is_no_p():
    """Without an interval there is no p and a least half width makes one."""
    assert p_value(Point.of([[0.9]]) >= 0.5) is None
    assert p_value(Point.of([[0.05]]) >= 0.0, least=0.05) == pytest.approx(LEVEL)
    # Once, an interval of no width had p 0, and Holm passed it among any number of claims.
    assert p_value(Point.of([[0.9], [0.9]]) >= 0.5) is None and p_value(Point.of([[0.1], [0.1]]) >= 0.5) is None


# What holds by two splits' worth, by far, and by a value alone.
CLOSE = CASES["dstg-position-kept"].records(0.79, 0.03)
FAR = probes("rope", "token", "all", [0.1, 0.12], 0.001, 2) + probes("ap", "token", "all", [0.99, 0.5], 0.001, 1)
ALONE = CASES["dstg-most-heads-absolute"].records(0.75, 0.0)


def ledger(records, *names):
    return {row["id"]: row for row in evaluate(records, [BY_ID[name] for name in names])}


def test_claims_that_fail_correction_keep_their_verdict():
    """What holds alone and not among many keeps its verdict and is marked."""
    alone = verdict("dstg-position-kept", CLOSE)
    assert alone["verdict"] == "holds here" and 0.0125 < alone["p"] < 0.05 and alone["holm"] == ""
    many = ["dstg-position-kept", "rope-no-position", "dstg-hidden-two-dimensional", "intra-in-semantics"]
    records = CASES["dstg-hidden-two-dimensional"].records(0.6, 0.01) + CLOSE + FAR
    records += CASES["intra-in-semantics"].records(0.2, 0.01)
    found = ledger(records, *many)
    kept = found["dstg-position-kept"]
    rope = found["rope-no-position"]
    assert kept["verdict"] == "holds here" and kept["p"] == alone["p"]
    assert kept["holm"] == "not after Holm's correction over 4 claims"
    assert (rope["verdict"], rope["holm"]) == ("holds here", "") and rope["p"] < 0.05 / 4
    # What does not hold is no finding that many tests could have made.
    failed = found["intra-in-semantics"]
    assert (failed["verdict"], failed["holm"], failed["p"]) == ("not seen here", "", 1.0)


def test_values_without_intervals_do_not_enter_correction():
    """A value without an interval has no p and is no part of the correction."""
    found = ledger(ALONE + CLOSE, "dstg-most-heads-absolute", "dstg-position-kept")
    share = found["dstg-most-heads-absolute"]
    kept = found["dstg-position-kept"]
    assert (share["verdict"], share["p"]) == ("holds here", None) and share["holm"].startswith("no p: ")
    assert kept["holm"] == ""  # one claim has a p: nothing to correct


def test_p_of_a_rule_is_its_largest():
    """The p of a rule is that of its least certain part."""
    table = [*moved("dstg", 0.99), *moved("ap", 0.2)]

    def with_halves(dstg, ap):
        return [
            one(r.model, r.metric, r.value, {"dstg": dstg, "ap": ap}[r.model]) if r.metric == "pca.top2" else r
            for r in table
        ]

    first, second = (p_value((Point.between(v, v - h, v + h)) >= b) for v, h, b in ((0.99, 0.08, 0.9), (0.79, 0.08, 0)))
    assert verdict("dstg-2d-collapse", with_halves(0.08, 0.0))["p"] == pytest.approx(max(first, second))
    assert verdict("dstg-2d-collapse", with_halves(0.0, 0.08))["p"] is None  # 0.99 beside 0.9 has no interval


def test_unsettled_and_corpus_claims_do_not_enter_correction():
    """What is not settled or about text is not corrected nor corrects."""
    young = [one("dstg", "loss", v, part="validation", step=s) for s, v in ((90, 4.0), (100, 3.5))]
    found = ledger(CLOSE + FAR + young, "dstg-position-kept", "rope-no-position")
    assert found["dstg-position-kept"]["verdict"] == "not settled" and found["dstg-position-kept"]["holm"] == ""
    toeplitz = verdict("geom-toeplitz", CASES["geom-toeplitz"].records(0.95, 0.0))
    assert toeplitz["verdict"] == "holds here" and toeplitz["holm"] == ""
