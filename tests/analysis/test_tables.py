"""Records and arrays of position and word tables."""

import numpy as np
import pytest
import torch
import yaml

from whatwhere.analysis.position_tables import noise_records, table_arrays, table_records, word_records
from whatwhere.analysis.record_context import RecordContext
from whatwhere.claims import CLAIMS, evaluate
from whatwhere.encoder import EncoderForMaskedLM, preset
from whatwhere.geometry import equivariance, inner_products, spectrum
from whatwhere.records.record import Record, select
from whatwhere.training.optimizers import expected_table_walk, learning_rate_factor, make_optimizers
from whatwhere.training.pretrain import SETTINGS_FILE, saved_table_walk
from whatwhere.training.pretrain_settings import PretrainConfig


def circle(n=32, width=16):
    """Two slow waves of unequal size in a wide table, and a little of a fast one."""
    t = np.pi * (np.arange(n) + 0.5) / n
    return (
        np.stack([3 * np.cos(t), 2 * np.cos(2 * t), 0.5 * np.cos(20 * t)], axis=1)
        @ np.linalg.qr(np.random.default_rng(0).normal(size=(width, 3)))[0].T
    )


def test_records_hold_shares_bins_and_n50():
    records, arrays = table_records(circle(), RecordContext("dstg", 1, "s"))
    total = 9 + 4 + 0.25
    np.testing.assert_allclose([r.value for r in select(records, metric="pca.share")], np.array([9, 4, 0.25]) / total)
    assert [r.index for r in select(records, metric="pca.share")] == [0, 1, 2]
    top2 = select(records, metric="pca.top2")[0]
    assert top2.value == pytest.approx(13 / total) and (top2.index, top2.low, top2.layer, top2.part) == (
        None,
        None,
        None,
        None,
    )
    np.testing.assert_allclose([r.value for r in select(records, metric="dct.low4")], [1, 1, 0], atol=1e-12)
    n50 = select(records, metric="n50")[0]
    assert (n50.value, n50.unit) == (pytest.approx(100 / 16), "%")
    assert {(r.study, r.model, r.seed, r.n) for r in records} == {("s", "dstg", 1, 32)}
    assert arrays["scores"].shape == (32, 3) and arrays["dct_power"].shape == (3, 32) and arrays["shares"].shape == (3,)


def test_at_most_ten_shares_and_three_components_are_kept():
    records, arrays = table_records(np.random.default_rng(0).normal(size=(40, 20)), RecordContext("ap", 0, "s"))
    assert len(select(records, metric="pca.share")) == 10 and len(select(records, metric="dct.low4")) == 3
    assert arrays["shares"].shape == (20,) and arrays["scores"].shape == (40, 3)


def test_a_parameter_is_accepted_and_left_alone():
    table = torch.nn.Parameter(torch.tensor(circle(), dtype=torch.float32))
    ours = table_records(table, RecordContext("m", 0, "s"))[0]
    reference = table_records(circle(), RecordContext("m", 0, "s"))[0]
    np.testing.assert_allclose([r.value for r in ours][:3], [r.value for r in reference][:3], atol=1e-6)
    assert table.requires_grad


def test_narrow_tables_give_what_they_have():
    records, arrays = table_records(np.arange(5.0)[:, None], RecordContext("m", 0, "s"))
    assert len(select(records, metric="pca.share")) == 1 and arrays["scores"].shape == (5, 1)
    assert select(records, metric="pca.top2")[0].value == 1


def test_diverged_table_is_an_error():
    table = circle()
    table[3, 4] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        table_records(table, RecordContext("m", 0, "s"))


def turning(n=96, width=24, seed=0):
    """Three and seven turns, the first position elsewhere, a little noise."""
    draw = np.random.default_rng(seed)
    turn = 2 * np.pi * np.arange(n)[:, None] / n
    flat = np.concatenate([3 * np.cos(3 * turn), 3 * np.sin(3 * turn), np.cos(7 * turn), np.sin(7 * turn)], axis=1)
    table = flat @ np.linalg.qr(draw.normal(size=(width, 4)))[0].T + 0.02 * draw.normal(size=(n, width))
    table[0] += 0.7
    return table


def test_records_hold_turns_rotations_equivariance_and_outliers():
    table = turning()
    records, arrays = table_records(table, RecordContext("m", run_name="s"))
    s = spectrum(table)
    for k in (3, 5, 10):
        assert select(records, metric=f"pca.top{k}")[0].value == pytest.approx(s.shares[:k].sum())
    (count,) = select(records, metric="n50.count")
    assert (count.value, count.unit) == (2, "components")  # one of the two large ones holds 45 % of the variance
    assert [r.value for r in select(records, metric="fft.turns")][:4] == [3, 3, 7, 7]
    assert {r.value for r in select(records, metric="fft.peak")} >= {3, 7}
    assert [(r.part, r.index, r.value, r.unit) for r in select(records, metric="rotation.turns")] == [
        ("1+2", 0, 3, "turns"),
        ("3+4", 1, 7, "turns"),
    ]
    for metric in ("rotation.strength", "rotation.shift", "rotation.share"):
        assert [r.part for r in select(records, metric=metric)] == ["1+2", "3+4"]
    assert select(records, metric="equivariance")[0].value == equivariance(table)
    (null,) = select(records, metric="equivariance.null")
    assert null.low < null.value < null.high < equivariance(table)
    assert [r.index for r in select(records, metric="equivariance.first")] == [1, 2, 3, 5, 10, 20]
    assert [r.index for r in select(records, metric="outlier")] == [0] and arrays["outliers"].tolist() == [0]
    assert select(records, metric="outlier")[0].value > 3


def test_word_tables_have_shares_and_n50():
    """A word table has shares and n50 under its own part."""
    words = np.random.default_rng(0).normal(size=(500, 12)) * np.linspace(2, 1, 12)
    records, arrays = word_records(words, RecordContext("m", run_name="s"))
    assert {r.part for r in records} == {"words"} and {r.n for r in records} == {500}
    assert {r.metric for r in records} == {
        "pca.share",
        "pca.top2",
        "pca.top3",
        "pca.top5",
        "pca.top10",
        "n50",
        "n50.count",
    }
    np.testing.assert_allclose(arrays["shares"], spectrum(words).shares, atol=1e-13)
    assert select(records, metric="n50")[0].value == pytest.approx(
        100 * select(records, metric="n50.count")[0].value / 12
    )


def test_arrays_for_figures_are_pictures_of_the_table():
    table = turning(n=200)
    arrays = table_arrays(table)
    assert arrays["scores"].shape == (200, 24) and arrays["magnitudes"].shape == (10, 101)
    np.testing.assert_allclose(arrays["magnitude_sum"], spectrum(table).magnitudes.sum(0))
    rows = arrays["rows"]
    assert rows.tolist() == list(range(0, 200, 3)) and arrays["products_of"].tolist() == [2, 5, 10, 24]
    for picture, k in zip(arrays["products"], (2, 5, 10, None), strict=True):
        np.testing.assert_allclose(picture, inner_products(table, k)[np.ix_(rows, rows)], atol=1e-12)
    small = table_arrays(np.arange(6.0).reshape(3, 2) ** 2)
    assert small["products_of"].tolist() == [2] and small["products"].shape == (1, 3, 3)


def idle(config, steps):
    """A table before and after a training in which its gradient is tiny noise, so that no row learns anything."""
    torch.manual_seed(0)
    model = EncoderForMaskedLM(preset("dstg", "tiny", vocab_size=50, num_hidden_layers=1, max_position_embeddings=128))
    table = model.position_table()
    start = table.detach().clone()
    (adamw, *_) = make_optimizers(model, config, steps)
    for step in range(steps):
        for group in adamw.param_groups:
            group["lr"] = group["peak"] * learning_rate_factor(step, config, steps)
        table.grad = 1e-4 * torch.randn_like(table)
        adamw.step()
    return start, table.detach()


@pytest.mark.parametrize("decay", [0.0, 1.0])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_table_without_gradient_walks_as_scheduled(scale, decay):
    """A table without a gradient walks as far as the schedule says."""
    config = PretrainConfig(preset="dstg", table_learning_rate_scale=scale, table_weight_decay=decay)
    start, end = idle(config, 400)
    gone = end - start * np.prod([1 - 4e-3 * scale * decay * learning_rate_factor(t, config, 400) for t in range(400)])
    assert float(gone.square().mean().sqrt()) == pytest.approx(expected_table_walk(config, 400), rel=0.05)
    # At one rate throughout it is rate · √steps: 0.089 after 500 steps of 4e-3.
    even = PretrainConfig(preset="dstg", warmup_steps=0, minimum_learning_rate_ratio=1.0)
    assert expected_table_walk(even, 500) == pytest.approx(4e-3 * 500**0.5) == pytest.approx(0.089, abs=5e-4)


def test_an_idle_walk_is_not_training(tmp_path):
    """The walk of an idle table is not what training made of it."""
    # A gate at once the first size took white noise at several times the start for a learned table.
    config = PretrainConfig(preset="dstg", steps=1100)
    start, end = idle(config, 1100)
    assert float((end - start).norm() / start.norm()) > 4
    (tmp_path / SETTINGS_FILE).write_text(yaml.safe_dump(config.model_dump(mode="json")))

    def row(table):
        context = RecordContext("dstg", 0, "s")
        slow = [context.record("dct.low4", 0.95, index=i) for i in (0, 1)]
        change = Record("s", "dstg", "change", 4.4, step=1100, seed=0)
        found = [*slow, change, *noise_records(table, context, start, saved_table_walk(tmp_path))]
        return evaluate(found, [c for c in CLAIMS if c.id == "dstg-low-frequency"])[0], found

    found, records = row(end)
    assert found["verdict"] == "not testable here" and "is white noise, 1.0 times AdamW's random walk" in found["scale"]
    (walk,) = select(records, metric="table.walk")
    (gone,) = select(records, metric="table.rms", part="change")
    assert gone.value == pytest.approx(walk.value, rel=0.05) and walk.value == pytest.approx(
        expected_table_walk(config, 1100)
    )
    # As much of a slow wave beside the noise stands above it, and so does noise twice as large as the walk.
    wave = torch.cos(torch.pi * (torch.arange(128.0) + 0.5) / 128)[:, None]
    for learned in (end + 0.12 * wave, start + 2 * (end - start)):
        found, _ = row(learned)
        assert found["verdict"] == "holds here" and "table.floor dstg" in " ".join(found["records"])


def test_tables_of_unknown_start_have_their_own_floor(tmp_path):
    """A table of unknown start is held against its own floor."""
    noise = np.random.default_rng(0).normal(size=(64, 16))
    for table, floor in ((noise, 0.95), (noise + 5 * circle(64), 0.15)):
        records = noise_records(table, RecordContext("bert"))
        assert [r.metric for r in records] == ["table.rms", "table.floor"] and all(r.part is None for r in records)
        assert records[1].value == pytest.approx(floor, abs=0.1)
    assert [r.metric for r in noise_records(noise[:5], RecordContext("bert"))] == ["table.rms"]
    # A table that nothing moved, with no settings in the folder of its training.
    still = noise_records(noise, RecordContext("ap", 0), noise, saved_table_walk(tmp_path))[2:]
    assert [(r.metric, r.part, r.value) for r in still] == [("table.rms", "change", 0), ("table.floor", "change", 1)]


def test_damaged_settings_of_a_training_are_refused(tmp_path):
    """Settings that are a list gave an AttributeError."""
    (tmp_path / SETTINGS_FILE).write_text("- 1\n")
    with pytest.raises(ValueError, match=r"pretrain.yaml must hold `key: value` lines; got list\."):
        saved_table_walk(tmp_path)
