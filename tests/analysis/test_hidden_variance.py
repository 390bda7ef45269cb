"""Shares of variance between positions against scipy's and loops, on known distributions, and ceilings of targets by
position alone."""

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import f_oneway
from sklearn.metrics import r2_score

from whatwhere.analysis.hidden import PositionVariance, _position_r2, ceiling_records, corrected_share
from whatwhere.analysis.passes import ChosenWindows, read
from whatwhere.analysis.probes import split_documents
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select


def documents(count, n, mean_length=5, seed=0):
    """[CLS], segments of random lengths, [SEP]; input_ids are the number of the document."""
    regular = np.ones((count, n), dtype=bool)
    regular[:, [0, -1]] = False
    segments = np.cumsum(np.random.default_rng(seed).random((count, n)) < 1 / mean_length, axis=1)
    numbers = np.tile(np.arange(count)[:, None], (1, n))
    positions = np.tile(np.arange(n), (count, 1))
    return ChosenWindows(numbers, positions, None, regular, {"segment": (segments - segments[:, 1:2]).astype(float)})


class Fixed(torch.nn.Module):
    """A model whose hidden states are given, found by the number of the document."""

    def __init__(self, features, position_size=0):
        super().__init__()
        self.features = [torch.tensor(f) for f in features]
        self.config = SimpleNamespace(
            hidden_size=features[0].shape[-1], position_size=position_size, num_hidden_layers=len(features) - 1
        )

    def forward(self, input_ids, position_ids, output_hidden_states):
        return SimpleNamespace(hidden_states=tuple(f[input_ids[:, 0]] for f in self.features))


def shares(features, docs, position_size=0, batch_size=5):
    model = Fixed(features, position_size)
    reader = PositionVariance(model)
    read(model, docs, [reader], batch_size=batch_size)
    return reader.records(RecordContext("m", 1, "s"))


def uneven(count=40, n=12, seed=0):
    """Documents in which later positions are regular less often; their ids are their numbers."""
    docs = documents(count, n, seed=seed)
    regular = np.random.default_rng(seed).random((count, n)) < np.linspace(1, 0.2, n)
    regular[:2] = True
    return ChosenWindows(docs.input_ids, docs.position_ids, None, regular, docs.targets)


def by_anova(x, positions):
    """η² and ε² of one column from scipy's F: η² = F(k - 1) / (F(k - 1) + N - k)."""
    groups = [x[positions == p] for p in np.unique(positions)]
    k = len(groups)
    n = len(x)
    f = f_oneway(*groups).statistic
    eta = f * (k - 1) / (f * (k - 1) + n - k)
    return eta, 1 - (1 - eta) * (n - 1) / (n - k)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_share_of_one_column_is_that_of_scipys_anova(offset):
    docs = uneven()
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 12, 1)) + 0.3 * np.arange(12)[:, None] + offset
    (found,) = [r for r in shares([x, x], docs) if r.layer == 1]
    inside = docs.regular
    assert found.value == pytest.approx(by_anova(x[inside][:, 0], docs.position_ids[inside])[1], rel=1e-6)
    assert found.low < found.value < found.high and (found.metric, found.part, found.n) == (
        "variance.position",
        "all",
        40,
    )


def test_part_columns_add_as_sums_of_squares():
    """Columns of a part are added as sums of squares."""
    docs = uneven()
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 12, 5)) * [1, 2, 3, 4, 5] + np.sin(np.arange(12))[:, None] * [3, 0, 0, 1, 0]
    records = shares([x], docs, position_size=2)
    y = x[docs.regular]
    at = docs.position_ids[docs.regular]
    for part, columns in (("all", slice(0, 5)), ("position", slice(0, 2)), ("semantic", slice(2, 5))):
        own = y[:, columns]
        means = np.array([own[at == p].mean(0) for p in at])
        between = ((means - own.mean(0)) ** 2).sum()
        total = ((own - own.mean(0)) ** 2).sum()
        (found,) = select(records, part=part)
        assert found.value == pytest.approx(corrected_share(np.bincount(at), between, total))


def test_position_functions_have_all_variance_between_positions():
    """A function of position has all of its variance there and a constant has no record."""
    docs = uneven()
    wave = np.broadcast_to(np.cos(9 * np.arange(12))[:, None], (40, 12, 1))  # no line reads it
    records = shares([np.concatenate([wave, np.full((40, 12, 1), 0.1)], axis=2)], docs, position_size=1)
    assert {r.part: r.value for r in records} == {"position": pytest.approx(1), "all": pytest.approx(1)}


def test_noise_has_no_share_for_any_group_sizes():
    """Noise has a share of nothing on average whatever the sizes of the groups."""
    values = []
    raw = []
    for seed in range(60):
        docs = uneven(count=12, n=10, seed=seed)
        (found,) = shares([np.random.default_rng(100 + seed).normal(size=(12, 10, 3)) ** 3], docs)
        values.append(found.value)
        n = docs.regular.sum()
        k = len(np.unique(docs.position_ids[docs.regular]))
        raw.append((found.value * (n - k) + k - 1) / (n - 1))
    error = np.std(values) / np.sqrt(60)
    assert abs(np.mean(values)) < 3 * error and np.mean(raw) > 10 * error  # without the correction it is far from 0


def test_the_mean_over_all_orders_is_exactly_zero():
    x = np.array([0.0, 1.0, 5.0, 2.0, 2.5])
    groups = np.array([0, 0, 0, 1, 2])
    found = []
    for order in permutations(range(5)):
        y = x[list(order)]
        between = sum(np.sum(groups == g) * (y[groups == g].mean() - y.mean()) ** 2 for g in range(3))
        found.append(corrected_share(np.array([3, 1, 1]), between, np.sum((y - y.mean()) ** 2)))
    assert np.mean(found) == pytest.approx(0, abs=1e-12)


def test_a_known_share_lies_in_its_interval():
    """A known share is found and lies in its interval."""
    hits = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        docs = documents(48, 20, seed=seed)
        table = np.random.default_rng(0).normal(size=(20, 6))
        signal = table[1:-1].var(axis=0).sum()  # spread of the positions that are read
        noise = rng.normal(size=(48, 20, 6)) * np.sqrt(signal / 6)  # the same variance again: a share of one half
        (found,) = shares([table + noise], docs)
        hits.append(found.low <= 0.5 <= found.high)
        assert found.value == pytest.approx(0.5, abs=0.08)
    assert np.mean(hits) >= 0.85


def test_documents_are_left_out_whole():
    docs = documents(64, 20)
    rng = np.random.default_rng(0)
    numbers = np.repeat(np.arange(8), 8)
    x = rng.normal(size=(8, 20, 4)).repeat(8, axis=0)  # windows of a document are copies: eight things, not 64
    together = ChosenWindows(
        docs.input_ids, docs.position_ids, None, docs.regular, docs.targets, document_numbers=numbers
    )
    (alone,) = shares([x], docs)
    (joined,) = shares([x], together)
    assert (
        (alone.n, joined.n) == (64, 8)
        and alone.value == pytest.approx(joined.value)
        and joined.high - joined.low > 1.5 * (alone.high - alone.low)
    )


def test_nonfinite_states_and_no_states_are_refused():
    """States that are not finite and nothing read are refused."""
    docs = documents(12, 10)
    with pytest.raises(ValueError, match=r"hidden\[0\] has NaN"):
        shares([np.full((12, 10, 2), np.nan)], docs)
    with pytest.raises(ValueError, match="No window has passed"):
        PositionVariance(Fixed([np.zeros((1, 1, 1))])).records(RecordContext("m", 0, "s"))


# Ceilings


class Windows:
    """Windows as `choose_windows` takes them, segments and progress as given (m, n)."""

    def __init__(self, segments, progress):
        self.segments = segments
        self.progress = progress

    def __len__(self):
        return len(self.segments)

    def __getitem__(self, i):
        n = len(self.segments[i])
        given = {
            "input_ids": np.arange(n),
            "position_ids": np.arange(n),
            "document_ids": np.zeros(n),
            "segments": self.segments[i],
        }
        return SimpleNamespace(**given, progress=self.progress[i])


def made_up(count=30, n=16, seed=0):
    docs = documents(count, n, mean_length=4, seed=seed)
    segments = np.where(docs.regular, docs.targets["segment"], -1).astype(int)
    progress = np.where(docs.regular, np.random.default_rng(seed).random((count, n)), np.nan)
    progress[:, 3] = np.nan  # a segment of one token
    return Windows(segments, progress)


def test_ceilings_equal_means_by_position_and_sklearns_r2():
    windows = made_up()
    records = ceiling_records(windows, run_name="s", windows=30, splits=3)
    test = split_documents(np.arange(30), 3)
    for target, y in (("segment", windows.segments.astype(float)), ("intra", windows.progress)):
        has = (windows.segments >= 0) & ~np.isnan(y)
        values = []
        for held_out in test:
            truth = []
            fitted = []
            for d, p in zip(*np.nonzero(has & held_out[:, None]), strict=True):
                trained = [y[e, p] for e in range(30) if not held_out[e] and has[e, p]]
                fitted.append(np.mean(trained))
                truth.append(y[d, p])
            values.append(r2_score(truth, fitted))
        found = select(records, metric=f"r2.{target}.ceiling")
        assert [r.value for r in found if r.index is not None] == pytest.approx(values)
        (mean,) = [r for r in found if r.index is None]
        assert (
            mean.value == pytest.approx(np.mean(values)) and mean.low <= mean.value < mean.high and mean.n == has.sum()
        )
    assert {(r.model, r.seed, r.layer, r.part, r.step) for r in records} == {("", None, None, None, None)}


def test_ceiling_of_a_position_function_is_one():
    """A target that is a function of position has the ceiling one and a constant has none."""
    n = 16
    segments = np.tile(np.concatenate([[-1], np.arange(n - 2) // 4, [-1]]), (12, 1))
    progress = np.where(segments >= 0, 0.5, np.nan)
    records = ceiling_records(Windows(segments, progress), run_name="s", windows=12, splits=2)
    assert {r.metric for r in records} == {"r2.segment.ceiling"} and {r.value for r in records} == {1.0}


def test_a_position_without_training_token_predicts_the_mean():
    positions = np.array([[0, 1], [0, 2]])
    y = np.array([[1.0, 3.0], [1.0, 5.0]])
    train = np.array([[True, True], [False, False]])
    assert _position_r2(positions, y, train, ~train) == pytest.approx(r2_score([1.0, 5.0], [1.0, 2.0]))
