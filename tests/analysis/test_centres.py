"""Stress of the mean states of positions: of states that are a table, the table's; else loops over the documents."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from whatwhere.analysis.centres import centre_records
from whatwhere.analysis.corpus_geometry import CorpusDistances
from whatwhere.analysis.passes import ChosenWindows
from whatwhere.analysis.record_context import RecordContext
from whatwhere.geometry import stress
from whatwhere.geometry.distances import distances
from whatwhere.records.record import select

N = 10  # tokens of a document: [CLS], eight words, [SEP]


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


def documents(count, begin_in=None):
    regular = np.ones((count, N), dtype=bool)
    regular[:, [0, -1]] = False
    numbers = np.tile(np.arange(count)[:, None], (1, N))
    positions = np.tile(np.arange(N), (count, 1))
    return ChosenWindows(numbers, positions, None, regular, {}, document_numbers=begin_in)


def corpus(rng, positions=8, skip=()):
    places = np.array([p for p in range(positions) if p not in skip])
    return CorpusDistances(distances(rng.normal(size=(len(places), 5))), places)


def values(records, **place):
    return [r.value for r in select(records, metric="hidden.stress", **place)]


def test_states_of_a_table_have_its_stress():
    """States that are a table have its stress and the corpus own has none."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(N, 4))
    own = rng.normal(size=(N, 5))
    dist = CorpusDistances(3 * distances(own[1:9]), np.arange(8))
    states = [np.tile(t, (20, 1, 1)) for t in (np.hstack([table, own]), np.hstack([own, table]))]
    records = centre_records(Fixed(states, position_size=4), documents(20), dist, RecordContext("m", 1, "s"))
    assert values(records, layer=0, part="position") == pytest.approx([stress(table[1:9], dist.dist, "optimal")])
    assert values(records, layer=0, part="semantic") == pytest.approx([0.0], abs=1e-12)
    whole = np.hstack([own, table])[1:9]
    assert values(records, layer=1, part="all") == pytest.approx([stress(whole, dist.dist, "optimal")])
    (level,) = select(records, metric="hidden.stress.level")
    pairs = dist.dist[np.triu_indices(8, 1)]
    assert level.value == pytest.approx(1 - pairs.mean() ** 2 / (pairs**2).mean()) and level.n == 8


def test_means_over_uneven_documents_equal_loops():
    """Means over uneven documents and positions are those of loops."""
    rng = np.random.default_rng(1)
    count = 24
    numbers = np.repeat(np.arange(6), 4)
    states = rng.normal(size=(count, N, 3)) + np.arange(N)[:, None]
    docs = documents(count, numbers)
    docs.regular[rng.random((count, N)) < 0.2] = False
    dist = corpus(rng, skip=(2,))
    (record,) = select(centre_records(Fixed([states]), docs, dist, RecordContext("m")), metric="hidden.stress")

    def by_loops(left_out):
        means = []
        for side in (0, 1):
            rows = [i for i in range(count) if numbers[i] % 2 == side and numbers[i] != left_out]
            tokens = [[states[i, p + 1] for i in rows if docs.regular[i, p + 1]] for p in dist.positions]
            means.append([np.mean(of_position, axis=0) for of_position in tokens])
        a, b = means
        d = [[np.sqrt(max((a[i] - a[j]) @ (b[i] - b[j]), 0)) for j in range(len(a))] for i in range(len(a))]
        d, best = np.array(d), dist.dist
        return np.sum((d * np.sum(d * best) / np.sum(d**2) - best) ** 2) / np.sum(best**2)

    left = [by_loops(g) for g in range(6)]
    assert record.value == pytest.approx(by_loops(None)) and record.n == 6
    half = 2.570582 * np.sqrt(5 / 6 * np.sum((left - np.mean(left)) ** 2))  # Student's t of 5 degrees of freedom
    assert (record.low, record.high) == pytest.approx((record.value - half, record.value + half), rel=1e-5)


def test_equal_states_have_no_stress():
    """States that do not tell positions apart have no stress."""
    rng = np.random.default_rng(2)
    line = CorpusDistances(distances(np.arange(8.0)[:, None]), np.arange(8))
    placed = np.tile(np.arange(N)[:, None], (1, 3))
    noise, moved = (
        values(centre_records(Fixed([rng.normal(size=(40, N, 3)) + add]), documents(40), line, RecordContext("m")))
        for add in (0.0, placed)
    )
    assert noise == [] and moved[0] < 0.01


def test_few_documents_have_no_stress():
    """Few documents or positions have no stress and diverged states are refused."""
    rng = np.random.default_rng(3)
    states = rng.normal(size=(12, N, 3))
    of_one = documents(12, np.zeros(12, dtype=int))
    assert centre_records(Fixed([states]), of_one, corpus(rng), RecordContext("m")) == []
    assert centre_records(Fixed([states]), documents(12), corpus(rng, positions=2), RecordContext("m")) == []
    far = CorpusDistances(distances(rng.normal(size=(4, 2))), np.arange(4) + 100)
    still = CorpusDistances(np.ones((8, 8)) - np.eye(8), np.arange(8), np.zeros((8, 8)))
    assert all(centre_records(Fixed([states]), documents(12), c, RecordContext("m")) == [] for c in (far, still))
    special = states.copy()
    special[:, 0] = np.nan  # [CLS] is no word
    assert centre_records(Fixed([special]), documents(12), corpus(rng), RecordContext("m"))
    beyond = CorpusDistances(distances(rng.normal(size=(20, 2))), np.arange(20))
    assert (
        select(
            centre_records(Fixed([states]), documents(12), beyond, RecordContext("m")), metric="hidden.stress.level"
        )[0].n
        == 8
    )
    states[3, 4, 0] = np.inf
    with pytest.raises(ValueError, match=r"hidden\[0\] has NaN or infinite"):
        centre_records(Fixed([states]), documents(12), corpus(rng), RecordContext("m"))
