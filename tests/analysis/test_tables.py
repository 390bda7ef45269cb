"""Records and arrays of a position table."""

import numpy as np
import pytest
import torch

from whatwhere.analysis.tables import table_records
from whatwhere.records import select


def circle(n=32, width=16):
    """Two slow waves of unequal size in a wide table, and a little of a fast one."""
    t = np.pi * (np.arange(n) + 0.5) / n
    return (
        np.stack([3 * np.cos(t), 2 * np.cos(2 * t), 0.5 * np.cos(20 * t)], axis=1)
        @ np.linalg.qr(np.random.default_rng(0).normal(size=(width, 3)))[0].T
    )


def test_records_hold_shares_bins_and_n50():
    records, arrays = table_records(circle(), study="s", name="dstg", seed=1)
    total = 9 + 4 + 0.25
    np.testing.assert_allclose([r.value for r in select(records, metric="pca.share")], np.array([9, 4, 0.25]) / total)
    assert [r.index for r in select(records, metric="pca.share")] == [0, 1, 2]
    top2 = select(records, metric="pca.top2")[0]
    assert top2.value == pytest.approx(13 / total) and (top2.index, top2.low, top2.layer, top2.part) == (None, None, None, None)
    np.testing.assert_allclose([r.value for r in select(records, metric="dct.low4")], [1, 1, 0], atol=1e-12)
    n50 = select(records, metric="n50")[0]
    assert (n50.value, n50.unit) == (pytest.approx(100 / 16), "%")
    assert {(r.study, r.model, r.seed, r.n) for r in records} == {("s", "dstg", 1, 32)}
    assert arrays["scores"].shape == (32, 3) and arrays["dct_power"].shape == (3, 32) and arrays["shares"].shape == (3,)


def test_at_most_ten_shares_and_three_components_are_kept():
    records, arrays = table_records(np.random.default_rng(0).normal(size=(40, 20)), study="s", name="ap", seed=0)
    assert len(select(records, metric="pca.share")) == 10 and len(select(records, metric="dct.low4")) == 3
    assert arrays["shares"].shape == (20,) and arrays["scores"].shape == (40, 3)


def test_a_parameter_is_accepted_and_left_alone():
    table = torch.nn.Parameter(torch.tensor(circle(), dtype=torch.float32))
    ours = table_records(table, study="s", name="m", seed=0)[0]
    reference = table_records(circle(), study="s", name="m", seed=0)[0]
    np.testing.assert_allclose([r.value for r in ours][:3], [r.value for r in reference][:3], atol=1e-6)
    assert table.requires_grad


def test_narrow_tables_give_what_they_have():
    records, arrays = table_records(np.arange(5.0)[:, None], study="s", name="m", seed=0)
    assert len(select(records, metric="pca.share")) == 1 and arrays["scores"].shape == (5, 1)
    assert select(records, metric="pca.top2")[0].value == 1


def test_diverged_table_is_an_error():
    table = circle()
    table[3, 4] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        table_records(table, study="s", name="m", seed=0)
