"""The five patterns of TUPE 4.4 on matrices built for each, with noise and near the boundaries; then the terms that
they come from."""

import math

import numpy as np
import pytest
import torch
from encoder_models import build
from small_documents import documents
from transformers import BertConfig, BertModel

from whatwhere.analysis.passes import read
from whatwhere.analysis.patterns import PATTERNS, PatternCounts, content_free_terms, pattern_of
from whatwhere.analysis.record_context import RecordContext
from whatwhere.encoder.biases import t5_bucket
from whatwhere.encoder.distance_biases import alibi_slopes

WHO = RecordContext("m", 0, "s")
N = 96


def lags(n=N):
    return np.arange(n) - np.arange(n)[:, None]


def table(values):
    """Scores (n, n) of a function of the lag j - i."""
    return np.vectorize(values, otypes=[float])(lags())


def fixed_places(columns, n=N):
    scores = np.zeros((n, n))
    scores[:, columns] = 12.0
    return scores


CONSTRUCTED = {
    "uniform": ("broad", np.zeros((N, N))),
    "slow decay": ("broad", table(lambda d: -abs(d) / 100)),
    "itself": ("local", table(lambda d: 8.0 * (d == 0))),
    "three around": ("local", table(lambda d: 5.0 * (abs(d) <= 3))),
    "decay": ("local", table(lambda d: -abs(d) / 4)),
    "both neighbours": ("local", table(lambda d: 9.0 * (abs(d) == 1))),
    "all but near": ("global", table(lambda d: -6.0 * (abs(d) <= 5))),
    "farther is better": ("global", table(lambda d: abs(d) / 10)),
    "two places": ("global", fixed_places([40, 60])),
    "one before": ("previous", table(lambda d: 9.0 * (d == -1))),
    "some before": ("previous", table(lambda d: 5.0 * (-6 <= d < 0))),
    "shifted hump": ("previous", table(lambda d: -((d + 8) ** 2) / 20)),
    "all before": ("previous", table(lambda d: 9.0 * (d < 0))),
    "one after": ("next", table(lambda d: 9.0 * (d == 1))),
    "all after": ("next", table(lambda d: 9.0 * (d > 0))),
    "shifted hump after": ("next", table(lambda d: -((d - 8) ** 2) / 20)),
}


@pytest.mark.parametrize("name", CONSTRUCTED)
@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_patterns_are_found_through_noise(name, noise):
    expected, scores = CONSTRUCTED[name]
    found, strength = pattern_of(scores + noise * np.random.default_rng(5).standard_normal(scores.shape))
    assert found == expected and 1 / 3 <= strength <= 1


def test_a_constant_in_each_row_changes_nothing():
    for _, scores in CONSTRUCTED.values():
        moved = scores + np.random.default_rng(0).normal(0, 30, (N, 1))
        assert pattern_of(moved)[0] == pattern_of(scores)[0]
        assert pattern_of(moved)[1] == pytest.approx(pattern_of(scores)[1])


@pytest.mark.parametrize("name", ["one before", "some before", "shifted hump", "all before"])
def test_turned_over_previous_is_next(name):
    scores = CONSTRUCTED[name][1]
    assert pattern_of(scores.T) == ("next", pytest.approx(pattern_of(scores[::-1, ::-1])[1]))
    assert pattern_of(scores[::-1, ::-1])[0] == "next"


def test_a_clearer_pattern_has_a_larger_strength():
    found = [pattern_of(table(lambda d, s=s: s * (d == -1))) for s in (5.0, 7.0, 9.0)]
    assert [p for p, _ in found] == ["previous"] * 3 and found[0][1] < found[1][1] < found[2][1]
    assert pattern_of(np.zeros((N, N))) == ("broad", pytest.approx(1.0))
    assert pattern_of(table(lambda d: 30.0 * (d == 0))) == ("local", pytest.approx(1 - (7 - 12 / N) / N))


def naive_pattern(scores):
    """The rules with loops, thresholds as documented."""
    n = len(scores)
    B = 0.0
    A = 0.0
    M = 0.0
    V = 0.0
    U = 0.0
    H = 0.0
    for i in range(n):
        powers = [math.exp(s - max(scores[i])) for s in scores[i]]
        w = [p / sum(powers) for p in powers]
        for j in range(n):
            B += w[j] / n if 0 < i - j <= n // 4 else 0
            A += w[j] / n if 0 < j - i <= n // 4 else 0
            V += 1 / n / n if 0 < i - j <= n // 4 else 0
            M += w[j] / n if abs(i - j) <= 3 else 0
            U += 1 / n / n if abs(i - j) <= 3 else 0
            H -= w[j] * math.log(w[j]) / math.log(n) / n if w[j] > 0 else 0
    if B >= 2 * V and B >= 2 * A:
        return "previous", (B - A) / (B + A)
    if A >= 2 * V and A >= 2 * B:
        return "next", (A - B) / (B + A)
    if M >= 2 * U:
        return "local", 1 - U / M
    if M <= U / 2:
        return "global", 1 - M / U
    return ("broad", H) if H >= 0.5 else ("global", 1 - H)


@pytest.mark.parametrize("seed", range(6))
def test_pattern_rules_equal_loops_near_boundaries(seed):
    """Mixtures of two constructed patterns, from one to the other: every rule decides somewhere along the way."""
    rng = np.random.default_rng(seed)
    scores = [s for _, s in CONSTRUCTED.values()]
    one, other = (scores[i] for i in rng.choice(len(scores), 2, replace=False))
    for mix in np.linspace(0, 1, 6):
        mixed = (mix * one + (1 - mix) * other)[:60, :60] + 0.2 * rng.standard_normal((60, 60))
        name, strength = naive_pattern(mixed)
        assert pattern_of(mixed) == (name, pytest.approx(strength))


def test_the_boundary_of_a_side_is_twice_the_weight():
    for share, expected in ((0.63, "local"), (0.70, "previous")):
        scores = np.log(np.full((N, N), 1e-9) + share * (lags() == -1) + (1 - share) * (lags() == 1))
        assert pattern_of(scores)[0] == expected


def test_the_boundary_of_local_is_twice_the_uniform_share():
    uniform = (abs(lags()) <= 3).sum(1).mean() / N
    for factor, expected in ((1.9, "broad"), (2.1, "local"), (0.55, "broad"), (0.45, "global")):
        near = abs(lags()) <= 3
        weights = np.where(
            near, factor * uniform / near.sum(1, keepdims=True), (1 - factor * uniform) / (~near).sum(1, keepdims=True)
        )
        assert pattern_of(np.log(weights))[0] == expected


def test_alibi_is_local_where_steep_and_broad_where_flat():
    found = [pattern_of(table(lambda d, m=m: -m * abs(d))) for m in alibi_slopes(8)]
    assert [p for p, _ in found] == ["local"] * 5 + [
        "broad"
    ] * 3  # slope 1/32 has 2.1 times the uniform share within ±3 of 96, 1/64 has 1.5
    assert all(a > b for (_, a), (_, b) in zip(found[:4], found[1:5], strict=True))


def test_t5_tables():
    """A table that favours the buckets of the token before is `previous`; turned over it is `next`; one of zeros is
    broad."""
    buckets = t5_bucket(torch.from_numpy(lags())).numpy()
    for favoured, expected in (((1, 2), "previous"), ((17, 18), "next"), ((0, 1, 17), "local"), ((), "broad")):
        values = np.zeros(32)
        values[list(favoured)] = 6.0
        assert pattern_of(values[buckets])[0] == expected
    far = np.zeros(32)
    far[[12, 13, 14, 15, 28, 29, 30, 31]] = 4.0
    assert pattern_of(far[buckets])[0] == "global"


@pytest.mark.parametrize("n", [3, 5, 8, 20, 200])
def test_patterns_are_found_at_any_length(n):
    before = 9.0 * (lags(n) == -1)
    assert (
        pattern_of(before)[0] == "previous"
        and pattern_of(before.T)[0] == "next"
        and pattern_of(np.zeros((n, n)))[0] == "broad"
    )


@pytest.mark.parametrize("scores", [np.zeros((2, 2)), np.zeros((4, 5)), np.zeros(4), np.float64(1)])
def test_no_matrix_is_an_error(scores):
    with pytest.raises(ValueError, match="at least 3 regular tokens"):
        pattern_of(scores)


def test_scores_that_are_not_finite_are_an_error():
    scores = np.zeros((5, 5))
    scores[2, 3] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        pattern_of(scores)


# In models


@pytest.mark.parametrize(
    ("case", "terms"),
    [
        ("dstg", ["absolute", "relative"]),
        ("tupe-r", ["absolute", "relative"]),
        ("tupe-a", ["absolute"]),
        ("tupe-free", ["absolute"]),
        ("bert-ad", ["absolute"]),
        ("split", ["absolute"]),
        ("rp", ["relative"]),
        ("alibi", ["relative"]),
        ("bert-r", ["relative"]),
    ],
)
def test_terms_free_of_content_are_named(case, terms):
    model = build(case)
    assert content_free_terms(model) == terms


@pytest.mark.parametrize(
    ("case", "why"), [("nope", "knows no positions"), ("rope", "without words"), ("ap", "correlation_records")]
)
def test_models_without_content_free_scores_are_refused(case, why):
    for give in (content_free_terms, PatternCounts):
        with pytest.raises(ValueError, match=why):
            give(build(case))


def test_other_encoders_are_refused():
    config = BertConfig(vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    with pytest.raises(ValueError, match="BertModel does not say"):
        content_free_terms(BertModel(config))


@pytest.mark.parametrize("kind", ["plain", "inner", "padded", "packed"])
@pytest.mark.parametrize("case", ["dstg", "tupe-r", "alibi"])
def test_scores_are_means_over_documents_between_regular_tokens(case, kind):
    model = build(case)
    chosen = documents(6, n=12, **({} if kind == "plain" else {kind: True}))
    reader = PatternCounts(model)
    read(model, chosen, [reader], batch_size=4)
    names = content_free_terms(model)
    regular = chosen.regular if chosen.document_ids is None else chosen.regular & (chosen.document_ids == 0)
    kept = np.flatnonzero(regular.mean(0) > 0.5)
    end = 6 if kind == "packed" else 12  # tokens never look past the first document
    given = {"input_ids": chosen.input_ids[:, :end], "position_ids": chosen.position_ids[:, :end]}
    given |= {"attention_mask": chosen.attention_mask} if kind == "padded" else {}
    terms = model.attention_terms(**{key: torch.from_numpy(value) for key, value in given.items()})
    found = reader.scores()
    assert found.shape == (2, 2, len(kept), len(kept))
    for block in range(2):
        for a, i in enumerate(kept):
            for c, j in enumerate(kept):
                both = [b for b in range(6) if regular[b, i] and regular[b, j]]
                values = [sum(terms[t][block, min(b, terms[t].shape[1] - 1), :, i, j] for t in names) for b in both]
                np.testing.assert_allclose(
                    found[block, :, a, c], np.mean([v.numpy() for v in values], axis=0), atol=1e-10
                )


def test_records_name_every_head_and_count_the_patterns():
    model = build("alibi", num_attention_heads=4)
    chosen = documents(5, n=30)
    reader = PatternCounts(model)
    read(model, chosen, [reader], batch_size=2)
    records = reader.records(WHO)
    heads = [r for r in records if r.metric == "pattern"]
    shares = [r for r in records if r.metric == "patterns.share"]
    assert [(r.layer, r.head) for r in heads] == [(1, head) for head in range(4)]  # its blocks share them
    d = lags(28)
    for r in heads:
        name, strength = pattern_of(-alibi_slopes(4)[r.head] * abs(d))
        assert r.part == name and r.value == pytest.approx(strength) and r.n == 5
    assert [r.part for r in shares] == list(PATTERNS) and all(r.n == 4 and r.layer is None for r in shares)
    assert {r.part: r.value for r in shares} == {p: sum(r.part == p for r in heads) / 4 for p in PATTERNS}
    assert reader.arrays() == {}


def test_nothing_seen_or_too_short_is_an_error():
    reader = PatternCounts(build("rp"))
    with pytest.raises(ValueError, match="No window has passed"):
        reader.records(WHO)
    model = build("rp")
    read(model, documents(3, n=4), [reader])
    with pytest.raises(ValueError, match="at least 3 regular tokens"):
        reader.records(WHO)
