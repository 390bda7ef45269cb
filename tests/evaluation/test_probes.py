"""Batched probes: those of scikit-learn and of a plain loop of torch, one at a time."""

from dataclasses import replace

import numpy as np
import pytest
from plain_probes import plain_probe
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from whatwhere.evaluation.agreement import macro_f1, pearson
from whatwhere.evaluation.probe_fits import (
    PLAIN,
    PORTIONS,
    Protocol,
    Rows,
    codelength,
    commonest_by,
    control_labels,
    train_probes,
)

ALL = np.ones((1, 6), bool)


def made(n=120, layers=2, d=6, classes=3, seed=0, variants=1):
    """Rows whose labels go with the features, and with noise."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(layers, n, d)).astype(np.float32)
    planes = np.random.default_rng(9).normal(size=(d, max(classes, 2)))
    outputs = features[0] @ planes + rng.gumbel(size=(n, max(classes, 2)))
    labels = outputs.argmax(-1) if classes else outputs[:, 0].astype(np.float32)
    return Rows(features, np.stack([labels, *(rng.permutation(labels) for _ in range(variants - 1))]))


@pytest.mark.parametrize("classes", [2, 5])
def test_without_dropout_probes_are_logistic_regressions(classes):
    rows = made(classes=classes)
    c = 0.5
    protocol = Protocol(0.1, 600, len(rows), 1, patience=0, penalty=1 / (c * len(rows)), standardise=False, warmup=0.0)
    probes = train_probes(rows, rows, ALL, classes, [0], protocol)
    said = probes.map_outputs(rows.features, lambda outputs, _: outputs.log_softmax(-1)[..., 0])[:, 0, 0, 0]
    for layer, features in enumerate(rows.features.astype(float)):
        # Two classes are one output there, w = w1 - w2, of which |w1|² + |w2|² is half the square.
        theirs = LogisticRegression(C=c * (1 + (classes == 2)), max_iter=1000, tol=1e-8).fit(features, rows.labels[0])
        assert said[layer] == pytest.approx(theirs.predict_log_proba(features)[:, 0], abs=2e-3)
        assert np.array_equal(probes.predict(rows.features)[layer, 0, 0, 0], theirs.predict(features))


@pytest.mark.parametrize(("classes", "twice"), [(2, False), (3, False), (3, True), (0, False)])
def test_probes_are_those_of_a_plain_loop(classes, twice):
    rows = made(50, 1, classes=classes, variants=2)
    dev = made(30, 1, classes=classes, seed=1, variants=2)
    protocol = Protocol(0.01, 4, 16, dropout=0.2, patience=10, twice=twice, standardise=not twice)
    mask = np.array([[True, True, True, True, False, False]])
    probes = train_probes(rows, dev, mask, classes, [3, 4], protocol)
    for i, seed in enumerate((3, 4)):
        for variant in (0, 1):
            expected, _ = plain_probe(rows, dev, mask, classes, seed, protocol, variant)
            assert probes.losses[0, i, 0, variant] == pytest.approx(expected, abs=1e-5)


def test_probes_do_not_depend_on_each_other():
    """A probe is the same whatever is trained with it."""
    rows = made(70)
    dev = made(40, seed=1)
    columns = np.array([[True] * 6, [False, False, True, True, True, True]])
    protocol = replace(PLAIN, epochs=6)
    together = train_probes(rows, dev, columns, 3, [0, 7], protocol)
    alone = train_probes(
        Rows(rows.features[1:], rows.labels), Rows(dev.features[1:], dev.labels), columns, 3, [7], protocol
    )
    assert together.losses[1, 1] == pytest.approx(alone.losses[0, 0], abs=1e-5)
    assert not together.weights.view(2, 2, 7, 2, 3)[:, :, :2, 1].any()  # columns that are not read


def test_the_epoch_of_the_lowest_development_loss_is_kept():
    rows = made(40, classes=2)
    dev = made(40, classes=2, seed=1)
    wrong = Rows(dev.features, 1 - dev.labels)  # what is learned makes this worse from the first epoch on
    protocol = replace(PLAIN, rate=0.05, epochs=8, patience=2)
    kept = train_probes(rows, wrong, ALL, 2, [0], protocol)
    short = train_probes(rows, wrong, ALL, 2, [0], replace(protocol, epochs=8, patience=1))
    assert kept.losses == pytest.approx(short.losses) and kept.losses == pytest.approx(
        kept.row_losses(wrong).mean(-1), abs=1e-6
    )


def test_the_online_code_is_the_sum_of_its_blocks():
    rows = made(200, 1, variants=2)
    dev = made(50, 1, seed=1, variants=2)
    protocol = replace(PLAIN, rate=0.05, epochs=4)
    bits = codelength(rows, dev, ALL, 3, [0, 1], protocol)
    ends = [round(share * 200) for share in PORTIONS if round(share * 200)]
    ends = sorted(set(ends))
    expected = ends[0] * np.log2(3)
    for begin, end in zip(ends, ends[1:], strict=False):
        probes = train_probes(rows.part(0, begin), dev, ALL, 3, [1], protocol)
        expected += probes.row_losses(rows.part(begin, end))[0, 0, 0, 0].sum() / np.log(2)
    assert bits[0, 1, 0, 0] == pytest.approx(expected, rel=1e-4)
    assert (bits[..., 0] < bits[..., 1]).all()  # labels that are shuffled take more


def test_controls_give_a_label_to_a_word():
    types = [["a", "b", "a", "c"], ["c", "d", "a"]]
    train, test = control_labels(types, np.array([0, 0, 1, 2]))
    assert train[0] == train[2] == test[2] and train[3] == test[0]
    many = control_labels([[str(i) for i in range(4000)]], np.array([0, 0, 1, 2]))[0]
    assert np.bincount(many) / 4000 == pytest.approx([0.5, 0.25, 0.25], abs=0.03)


def test_guesses_are_the_commonest_labels():
    """The guess is the commonest label, and by a key the commonest label of the key."""
    commonest, by_key = commonest_by(["a", "a", "b", "b", "b"], np.array([1, 1, 0, 2, 2]), ["a", "b", "c"])
    assert commonest.tolist() == [1, 1, 1] and by_key.tolist() == [1, 2, 1]


def test_scores_are_those_of_scikit_learn_and_numpy():
    rng = np.random.default_rng(0)
    said = rng.integers(5, size=300)
    right = rng.integers(1, 7, size=300)
    assert macro_f1(said, right) == pytest.approx(f1_score(right, said, average="macro"))
    assert macro_f1(said, np.where(said == 2, -1, said)) < 1  # a class that was never seen in training
    assert pearson(said, right) == pytest.approx(np.corrcoef(said, right)[0, 1]) and pearson(said, said * 0) == 0.0


def test_what_cannot_be_probed_is_named():
    rows = made(10)
    with pytest.raises(ValueError, match="no development rows"):
        train_probes(rows, rows.part(0, 0), ALL, 3, [0])
    with pytest.raises(ValueError, match="is 2, not a class from 0 to 1"):
        train_probes(rows, rows, ALL, 2, [0])
    with pytest.raises(ValueError, match="NaN or infinite values. Train the model anew"):
        train_probes(Rows(rows.features * np.nan, rows.labels), rows, ALL, 3, [0])
