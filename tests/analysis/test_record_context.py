"""Records of arrays: every entry with the columns of its axes, as a loop over the array makes them."""

import numpy as np
import pytest
from scipy import stats

from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import Record

ME = RecordContext("m", 3, "s")


def test_records_of_an_array_equal_a_loop():
    """Records are those of a loop and nan has none."""
    value = np.random.default_rng(0).normal(size=(2, 3, 2))
    value[1, 0, 1] = np.nan
    low = value - 1
    high = value + 1
    high[0, 2, 0] = np.nan
    n = np.arange(6).reshape(2, 3, 1)
    axes = {("layer", "part"): [(1, "a"), (2, "b")], "head": range(3), "metric": ("semantic", "absolute")}
    expected = [
        Record(
            "s", "m",
            ("kl.semantic", "kl.absolute")[k],
            value[i, j, k], low[i, j, k], None if (i, j, k) == (0, 2, 0) else high[i, j, k],
            unit="nats", seed=3, layer=i + 1, head=j, part="ab"[i], step=5, n=int(n[i, j, 0]),
        )
        for i, j, k in np.ndindex(2, 3, 2)
        if (i, j, k) != (1, 0, 1)
    ]  # fmt: skip
    records = ME.at(5).records("kl.", (value, low, high), axes, n=n)
    assert records == expected
    assert {type(v) for r in records for v in vars(r).values()} <= {str, int, float, type(None)}  # no numbers of numpy


def test_array_axes_must_fit():
    """An array without axes is one record and axes must fit."""
    assert ME.records("loss", (np.array(2.0), *[np.array(np.nan)] * 2), {}, part="a") == [
        Record("s", "m", "loss", 2.0, unit="nats", seed=3, part="a")
    ]
    with pytest.raises(ValueError, match="argument 2 is longer"):
        ME.records("loss", np.zeros((2, 2)), {"layer": range(2)})


def test_records_of_splits_have_the_corrected_interval():
    """Splits are their mean with the corrected interval and each one."""
    values = [0.5, 0.7, 0.6]
    whole, *each = ME.splits("loss", values, 10, [4, 5, 6], 15, layer=2)
    half = (
        stats.t.ppf(0.975, 2) * np.std(values, ddof=1) * np.sqrt(1 / 3 + 2 / 8)
    )  # Nadeau & Bengio: 2 of 10 documents are tested
    assert (whole.value, whole.low, whole.high) == pytest.approx((0.6, 0.6 - half, 0.6 + half)) and whole.n == 15
    assert [(r.value, r.index, r.n, r.layer) for r in each] == [(0.5, 0, 4, 2), (0.7, 1, 5, 2), (0.6, 2, 6, 2)]
    assert ME.splits("loss", [0.5], 10, [4], 15)[0].low is None


def test_files_of_a_model_have_its_name_and_seed():
    assert ME.stem == "m-seed-3" and RecordContext("m").stem == "m"
