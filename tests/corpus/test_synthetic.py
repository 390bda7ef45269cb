"""Synthetic documents: A, B and A again; three regimes with the geometry of GEOM's Tables 2 and 3; the same ones every
time."""

import numpy as np
import pytest

from whatwhere.corpus import open_source
from whatwhere.corpus.synthetic import Regimes, RepeatedDocuments, ThreeRegimes
from whatwhere.geometry.counts import positional_counts
from whatwhere.geometry.distances import hellinger, positional_distributions
from whatwhere.geometry.encodings import random_table, sinusoidal
from whatwhere.geometry.mds import classical_mds
from whatwhere.geometry.stress import stress


def test_repeated_documents_say_a_twice():
    source = open_source("synthetic:repeat")
    documents = list(source)
    assert documents == list(open_source("synthetic:repeat")) and len(documents) == 4000
    for document in documents[:50]:
        a, b, again = document.split("\n")
        assert a == again != b and a.count(".") == b.count(".") == 3 and a[0].isupper()
    assert len(set(documents)) > 3900
    assert source.share_read() == 1.0
    assert list(RepeatedDocuments(5, seed=1)) != documents[:5]
    with pytest.raises(ValueError, match="at least one document"):
        RepeatedDocuments(0)


def distances(source, n=32, vocabulary=200):
    rows = [[int(word[1:]) for word in document.split()] for document in source]
    return hellinger(positional_distributions(positional_counts(rows, vocabulary, n)).p)


def test_three_regimes_order_tables_as_the_paper():
    """Three regimes keep the order of the tables of the paper."""
    # GEOM Table 2: sinusoidal d=128 18.98, MDS r=1 0.281, 2 0.060, 3 0.047, 7 0.020, full 0; Table 3 (d=16): MDS 0.009,
    # sinusoidal 2.248, random 24.8; section 6.2: two dominant eigenvalues and three blocks.
    dist = distances(open_source("synthetic:three-regimes"))
    by_rank = [stress(classical_mds(dist, r).coords, dist) for r in (1, 2, 3, 7, 31)]
    np.testing.assert_allclose(by_rank, [0.281, 0.060, 0.047, 0.020, 0.0], atol=0.015)
    assert by_rank == sorted(by_rank, reverse=True)
    assert stress(sinusoidal(32, 128), dist) == pytest.approx(18.98, rel=0.05)
    assert (
        stress(random_table(32, 16), dist)
        > 5 * stress(sinusoidal(32, 16), dist)
        > 25 * stress(classical_mds(dist, 16).coords, dist)
    )
    values = classical_mds(dist).eigenvalues
    assert values[:2].sum() / values.sum() == pytest.approx(0.799, abs=0.05) and values[1] > 10 * values[2]
    regime = np.repeat([0, 1, 2], [8, 16, 8])
    same = regime[:, None] == regime
    assert dist[same].max() < 0.6 < 1.2 < dist[~same].min()


def test_three_regimes_are_drawn_from_the_truth():
    source = ThreeRegimes(Regimes(n=5, vocabulary=9, documents=2500, initial=1, terminal=2, own=3.0, other=0.5))
    rows = np.array([[int(word[1:]) for word in document.split()] for document in source])
    assert rows.shape == (2500, 5) and source.share_read() == 1.0
    truth = source.distributions()
    np.testing.assert_allclose(truth.sum(axis=1), 1)
    for i in range(5):
        np.testing.assert_allclose(np.bincount(rows[:, i], minlength=9) / 2500, truth[i], atol=0.04)


def test_three_regimes_depend_on_the_seed():
    """Three regimes are the same every time and another seed gives others."""
    assert list(open_source("synthetic:three-regimes:documents=3")) == list(open_source("synthetic:three-regimes"))[:3]
    few = [list(open_source(f"synthetic:three-regimes:documents=3,seed={seed}")) for seed in (1, 1, 2)]
    assert few[0] == few[1] != few[2]
    assert (
        open_source("synthetic:three-regimes").fingerprint()
        != open_source("synthetic:three-regimes:own=3").fingerprint()
    )
