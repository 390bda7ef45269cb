"""Regression between models against scikit-learn on the same states, its controls, depths that differ, and memory."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

import whatwhere as ww
from whatwhere.analysis import probes, regressions
from whatwhere.analysis.passes import ChosenWindows
from whatwhere.analysis.probes import split_documents
from whatwhere.analysis.regressions import regression_records
from whatwhere.records.intervals import split_interval
from whatwhere.records.metrics import range_of
from whatwhere.records.record import select

M = 20
N = 12
P = 6
D = 9
SPLITS = (0, 1, 2, 3, 4)


def documents(count=M, n=N, inner=True):
    """input_ids[:, 0] is the number of the document; with `inner` every third has a special token inside."""
    regular = np.ones((count, n), dtype=bool)
    regular[:, [0, -1]] = False
    if inner:
        regular[::3, 5] = False
    positions = np.tile(np.arange(n), (count, 1))
    return ChosenWindows(np.tile(np.arange(count)[:, None], (1, n)), positions, None, regular, {})


class Fixed(torch.nn.Module):
    """A model whose hidden states are given, found by the number of the document; `calls` counts batches."""

    def __init__(self, features, position_size=0):
        super().__init__()
        self.features = [torch.as_tensor(f) for f in features]
        self.calls = 0
        self.config = SimpleNamespace(
            hidden_size=features[0].shape[-1], position_size=position_size, num_hidden_layers=len(features) - 1
        )

    def forward(self, input_ids, position_ids, output_hidden_states):
        self.calls += 1
        return SimpleNamespace(hidden_states=tuple(f[input_ids[:, 0]] for f in self.features))


def states(seed, layers=3, width=P, count=M, n=N):
    return [np.random.default_rng([seed, layer]).normal(size=(count, n, width)) for layer in range(layers)]


def setup(offset=0.0, layers=3, reference_layers=3):
    """A baseline and a reference (position 0:4, semantic 4:9) whose states are mixtures of the baseline's and noise."""
    base = states(1, layers)
    mix = np.random.default_rng(5).normal(size=(P, D))
    reference = [
        n * 2 + base[min(layer, layers - 1)] @ mix + offset for layer, n in enumerate(states(2, reference_layers, D))
    ]
    return Fixed([b + offset for b in base]), Fixed(reference, 4)


def run(two_streams, models, docs=None, **options):
    return regression_records(
        two_streams, models, documents() if docs is None else docs, run_name="s", seed=3, **options
    )


def values(records, metric, layer, model="base"):
    return [r.value for r in select(records, metric=metric, model=model, layer=layer, index=SPLITS)]


def sklearn_r2(x, y, docs, penalty=1.0):
    """One fit a split; x and y (m, n, width)."""
    found = []
    for test in split_documents(docs.which(), 5):
        fit = docs.regular & ~test[:, None]
        tested = docs.regular & test[:, None]
        found.append(r2_score(y[tested], Ridge(alpha=penalty).fit(x[fit], y[fit]).predict(x[tested])))
    return found


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("penalty", [1.0, 50.0])
def test_r2_equals_scikit_learn(offset, penalty, monkeypatch):
    monkeypatch.setattr(probes, "PENALTY", penalty)
    base, reference = setup(offset)
    docs = documents()
    records = run(reference, {"base": base}, batch_size=7)
    for layer in range(3):
        for stream, columns in (("position", slice(0, 4)), ("semantic", slice(4, 9))):
            x = base.features[layer].numpy()
            y = reference.features[layer].numpy()[..., columns]
            ours = values(records, f"regression.{stream}", layer)
            np.testing.assert_allclose(ours, sklearn_r2(x, y, docs, penalty), atol=1e-7)
            assert 0.2 < np.mean(ours) < 0.95


def test_records_have_the_interval_of_their_splits():
    base, reference = setup()
    records = run(reference, {"base": base, "other": Fixed(states(7))}, reference="two")
    assert {(r.study, r.part, r.seed) for r in records} == {("s", "two", 3)} and {r.model for r in records} == {
        "base",
        "other",
    }
    metrics = {f"regression.{s}{e}" for s in ("position", "semantic") for e in ("", ".place", ".chance")}
    assert {(r.metric, r.layer) for r in records} == {(m, layer) for m in metrics for layer in range(3)}
    for summary in (r for r in records if r.index is None):
        own = values(records, summary.metric, summary.layer, summary.model)
        assert summary.value == pytest.approx(np.mean(own)) and summary.n == M
        assert (summary.low, summary.high) == pytest.approx(split_interval(own, M, range_of(summary.metric)))
    assert {r.n for r in records if r.index is not None} == {4}
    (alone,) = select(run(reference, {"base": base}, splits=1), metric="regression.position", layer=0, index=None)
    assert (alone.low, alone.high) == (None, None)


def test_what_all_documents_share_is_place_and_not_chance():
    """A stream that is the number of the place: another document's says the same, shuffled tokens say nothing."""
    docs = documents(60, 30, inner=False)
    rng = np.random.default_rng(0)
    place = np.tile(rng.normal(size=(30, 4)), (60, 1, 1))
    reference = Fixed([np.concatenate([place, rng.normal(size=(60, 30, 5))], axis=-1)], 4)
    base = Fixed([place @ rng.normal(size=(4, P)) + 0.1 * rng.normal(size=(60, 30, P))])
    reference.config.num_hidden_layers = 1  # a depth of 0 has no relative depth
    base.config.num_hidden_layers = 1
    reference.features *= 2
    base.features *= 2
    records = run(reference, {"base": base}, docs)
    own, other, chance = (np.mean(values(records, f"regression.position{e}", 1)) for e in ("", ".place", ".chance"))
    assert own == other > 0.9 and abs(chance) < 0.05
    assert all(abs(np.mean(values(records, f"regression.semantic{e}", 1))) < 0.05 for e in ("", ".place", ".chance"))


def test_controls_take_another_documents_tokens():
    docs = documents()
    docs.regular[4, 3:] = False  # a short one: its places begin again
    docs.regular[4, 1] = True
    own = np.arange(N)[:, None] + 100.0
    others = np.arange(N)[:, None] + 200.0
    mine, place, chance = regressions._targets(docs, 1, own, 0, others).T
    np.testing.assert_array_equal(mine, 100 + np.flatnonzero(docs.regular[1]))
    inside = 200.0 + np.flatnonzero(docs.regular[0])
    np.testing.assert_array_equal(place, [*inside, inside[0]])
    assert sorted(chance) == sorted(place) and not np.array_equal(chance, place)
    _, place, _ = regressions._targets(docs, 1, own, 4, others).T
    np.testing.assert_array_equal(place, 201 + np.arange(10) % 2)
    np.testing.assert_array_equal(regressions._targets(docs, 1, own, 0, others)[:, 2], chance)


def test_no_document_is_its_own_control(monkeypatch):
    taken = []
    true = regressions._targets
    monkeypatch.setattr(regressions, "_targets", lambda d, i, y, j, z: taken.append((i, j)) or true(d, i, y, j, z))
    base, reference = setup()
    run(reference, {"base": base}, batch_size=19)  # the last batch has one document
    assert len(taken) == 3 * M and all(i != j for i, j in taken)


@pytest.mark.parametrize("numbers", [np.arange(20) // 4, np.arange(20) // 19, np.array([0, 1] * 10)])
@pytest.mark.parametrize("batch_size", [1, 3, 20])
def test_controls_come_from_other_documents(numbers, batch_size, monkeypatch):
    """No window has its own document as control or on the other side."""
    taken = []
    true = regressions._targets
    monkeypatch.setattr(regressions, "_targets", lambda d, i, y, j, z: taken.append((i, j)) or true(d, i, y, j, z))
    base, reference = setup()
    docs = replace(documents(), document_numbers=numbers)
    records = run(reference, {"base": base}, docs, batch_size=batch_size)
    assert len(taken) == 3 * M and all(numbers[i] != numbers[j] for i, j in taken)
    x = base.features[1].numpy()
    y = reference.features[1].numpy()[..., :4]
    np.testing.assert_allclose(values(records, "regression.position", 1), sklearn_r2(x, y, docs), atol=1e-7)
    count = len(set(numbers.tolist()))
    assert {r.n for r in records if r.index is None} == {count}
    assert {r.n for r in records if r.index is not None} == {max(1, round(count / 5))}


def test_batches_and_chunks_change_nothing(monkeypatch):
    base, reference = setup()
    models = {"base": base, "other": Fixed(states(7, width=4))}
    whole = run(reference, models, batch_size=20)
    assert base.calls == 1 and reference.calls == 2  # and the control of the first window
    seen = []
    monkeypatch.setattr(probes, "MEMORY", 1)
    small = run(reference, models, batch_size=20, progress=lambda *p: seen.append(p))
    assert seen == 6 * [(20, 20)] and base.calls == 1 + 3 and reference.calls == 2 + 2 * 6
    monkeypatch.undo()
    others = run(reference, models, batch_size=3)
    for a in whole:
        (b,) = select(small, metric=a.metric, model=a.model, layer=a.layer, index=a.index)
        assert a.value == pytest.approx(b.value, abs=1e-10)
        (c,) = select(others, metric=a.metric, model=a.model, layer=a.layer, index=a.index)
        assert a.value == pytest.approx(c.value, abs=1e-10)


def test_other_depths_meet_at_the_same_share():
    base, reference = setup(layers=5, reference_layers=3)  # blocks 4 and 2
    records = run(reference, {"base": base})
    docs = documents()
    for layer, target in ((0, 0), (1, 1), (2, 1), (3, 2), (4, 2)):
        expected = sklearn_r2(base.features[layer].numpy(), reference.features[target].numpy()[..., :4], docs)
        np.testing.assert_allclose(values(records, "regression.position", layer), expected, atol=1e-8)


def test_the_reference_predicts_itself(caplog):
    """The reference knows itself and columns that do not vary are left out."""
    _, reference = setup()
    for f in reference.features:
        f[..., 2] = 0.7
    records = run(reference, {"two": reference})
    assert min(r.value for r in records if r.metric in ("regression.position", "regression.semantic")) > 0.99
    columns = [0, 1, 3]
    expected = sklearn_r2(reference.features[1].numpy(), reference.features[1].numpy()[..., columns], documents())
    np.testing.assert_allclose(values(records, "regression.position", 1, "two"), expected, atol=1e-9)
    for f in reference.features:
        f[..., :4] = 0.7
    with caplog.at_level(logging.WARNING):
        records = run(reference, {"two": reference})
    assert not [r for r in records if "position" in r.metric] and "does not vary" in caplog.text


def test_special_tokens_are_not_seen():
    base, reference = setup()
    plain = run(reference, {"base": base})
    for model in (base, reference):
        for f in model.features:
            f[:, 0] = float("nan")
            f[:, -1] = 1e9
    assert run(reference, {"base": base}) == plain


def test_only_states_with_positions_give_the_position_stream():
    """States of `dstg` give its position stream, states of `rope` do not; the models keep their modes."""
    # A table as wide as a trained one: the penalty of 1 would hide a fresh one of 0.02.
    sizes = {"vocab_size": 40, "num_hidden_layers": 2, "max_position_embeddings": N, "position_initializer_range": 0.16}
    torch.manual_seed(1)  # unseeded, the draw of another test decided: seed 0 gives 0.896, seeds 1 to 3 0.93 to 0.94
    models = {name: ww.EncoderForMaskedLM(ww.preset(name, "tiny", **sizes)).eval() for name in ("ap", "rope", "dstg")}
    docs = documents()
    docs.input_ids[:] = np.random.default_rng(0).integers(5, 40, docs.input_ids.shape)
    records = run(models["dstg"], models, docs)
    assert np.mean(values(records, "regression.position", 0, "dstg")) > 0.9
    assert np.mean(values(records, "regression.position", 0, "rope")) < 0.1  # words alone do not know their places
    assert not any(model.training for model in models.values())
    for model in models.values():
        model.train()
    assert run(models["dstg"], models, docs) == records and all(model.training for model in models.values())
    assert run(models["dstg"], {}, docs) == []


def test_zero_splits_are_refused():
    base, reference = setup()
    with pytest.raises(ValueError, match="splits=0"):
        run(reference, {"base": base}, splits=0)


def test_unusable_models_and_documents_are_refused():
    base, reference = setup()
    with pytest.raises(ValueError, match="rope has no position stream"):
        run(base, {"base": base}, reference="rope")
    docs = documents()
    docs.regular[3] = False
    with pytest.raises(ValueError, match="Only 19 of 20 windows have regular tokens"):
        run(reference, {"base": base}, docs)
    base.features[1][4, 5, 3] = float("inf")
    with pytest.raises(ValueError, match=r"hidden\[1\] of base"), np.errstate(invalid="ignore"):
        run(reference, {"base": base})
