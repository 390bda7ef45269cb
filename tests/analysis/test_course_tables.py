"""Separation of position tables over checkpoints: against naive loops, the numbers of GEOM 6.5, and rows that no text
reaches."""

import itertools

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.analysis.corpus_geometry import CorpusDistances
from whatwhere.analysis.course import PERCENT, checkpoint_tables, low_rank_records, separation_records
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select
from whatwhere.training.checkpoints import write_checkpoint


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with checkpoints 0 and 5 of an `ap` model whose first 10 of 24 rows have moved."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(
        ww.preset("ap", "tiny", vocab_size=40, num_hidden_layers=1, max_position_embeddings=24)
    )
    write_checkpoint(folder / "checkpoints", 0, model, {}, {"cpu": torch.zeros(1)}, {})
    with torch.no_grad():
        model.position_table()[:10] += 0.05 * torch.randn(10, 120)
    write_checkpoint(folder / "checkpoints", 5, model, {}, {"cpu": torch.zeros(1)}, {})
    return folder


def value(records, metric, **columns):
    (found,) = select(records, metric=metric, **columns)
    return found.value


def test_records_equal_naive_loops(run):
    (_, first), (step, table) = checkpoint_tables(run)
    rng = np.random.default_rng(0)
    positions = np.array([0, 1, 3, 4, 7, 20])
    points = rng.normal(size=(6, 2))
    dist = np.linalg.norm(points[:, None] - points, axis=2)
    records = separation_records(
        run, RecordContext("m", 3, "s"), used=10, corpus=CorpusDistances(dist, positions, 2 * dist)
    )
    assert {r.step for r in records} == {0, 5} and {(r.study, r.model, r.seed) for r in records} == {("s", "m", 3)}
    for part, rows in ((None, np.arange(24)), ("used", np.arange(10)), ("corpus", positions + 1)):
        p = table[rows]
        apart = [np.linalg.norm(p[i] - p[j]) for i, j in itertools.combinations(range(len(p)), 2)]
        here = {"part": part, "step": step}
        assert value(records, "separation", **here) == pytest.approx(min(apart))
        assert [value(records, "separation.quantile", index=q, **here) for q in PERCENT] == pytest.approx(
            np.percentile(apart, PERCENT)
        )
        assert value(records, "change", **here) == pytest.approx(
            np.linalg.norm(p - first[rows]) / np.linalg.norm(first[rows])
        )
        assert value(records, "change", part=part, step=0) == 0
        lags = abs(rows[:, None] - rows)
        gaps = np.linalg.norm(p[:, None] - p, axis=2)
        triples = [t for t in itertools.permutations(range(len(p)), 3) if lags[t[0], t[1]] < lags[t[0], t[2]]]
        violated = np.mean([gaps[i, j] > gaps[i, k] for i, j, k in triples])
        assert value(records, "violations", **here) == pytest.approx(violated)
        assert value(records, "n50", **here) == ww.geometry.spectrum(p).n50
    d = np.array([[np.linalg.norm(a - b) for b in table[positions + 1]] for a in table[positions + 1]])
    pairs = np.triu_indices(6, 1)
    best = (d[pairs] * dist[pairs]).sum() / (d[pairs] ** 2).sum()
    for metric, scale in (("stress.raw", 1.0), ("stress.optimal", best)):
        expected = ((scale * d[pairs] - dist[pairs]) ** 2).sum() / (dist[pairs] ** 2).sum()
        assert value(records, metric, part="corpus", step=step) == pytest.approx(expected)
    assert value(records, "stress.optimal.corrected", step=step) == value(records, "stress.optimal", step=step)
    halved = ((d[pairs] / 2 - dist[pairs]) ** 2).sum() / (dist[pairs] ** 2).sum()
    assert value(records, "stress.raw.corrected", step=step) == pytest.approx(halved)
    assert value(records, "correlation", part="corpus", step=step) == pytest.approx(
        np.corrcoef(d[pairs], dist[pairs])[0, 1]
    )


def test_untouched_rows_hide_what_training_did(run):
    records = separation_records(run, RecordContext("m", 0), used=10)
    assert value(records, "change", part="used", step=5) > 1.5 * value(records, "change", part=None, step=5) > 0


def test_fresh_tables_have_the_separation_that_geom_reports():
    # GEOM 6.5: 0.70 from scratch, "flat". It is the smallest distance of 512 (or 128) rows drawn from N(0, 0.02²) in
    # 768 dimensions.
    model = ww.Encoder(ww.preset("bert-a", num_hidden_layers=1, vocab_size=10))
    assert model.position_table().shape == (512, 768)
    table = model.position_table().detach().double()
    assert torch.pdist(table).min() == pytest.approx(0.70, abs=0.01)
    assert torch.pdist(table[:128]).min() == pytest.approx(0.71, abs=0.02)


def test_what_has_no_table_or_no_checkpoints_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no checkpoints"):
        separation_records(tmp_path, RecordContext("m", 0))
    model = ww.EncoderForMaskedLM(ww.preset("rope", "tiny", vocab_size=40, num_hidden_layers=1))
    write_checkpoint(tmp_path / "checkpoints", 0, model, {}, {"cpu": torch.zeros(1)}, {})
    with pytest.raises(ValueError, match="No position table in .*its scheme, rope"):
        separation_records(tmp_path, RecordContext("m", 0))


def test_positions_beyond_the_table_are_refused(run):
    corpus = CorpusDistances(np.ones((2, 2)) - np.eye(2), np.array([0, 23]))
    with pytest.raises(ValueError, match="position 23, in row 24, but the table has 24 rows. Keep 23 positions"):
        separation_records(run, RecordContext("m", 0), corpus=corpus)


def test_low_rank_tables_are_compared_with_corpus_and_chance():
    """Low rank tables are held against the corpus and random ones."""
    rng = np.random.default_rng(0)
    positions = np.arange(1, 31)
    points = rng.normal(size=(30, 4)) * [5, 3, 2, 1]  # their distances are those of a corpus of rank 4
    dist = np.linalg.norm(points[:, None] - points, axis=2)
    noise = rng.normal(size=(40, 12))
    table = noise.copy()
    table[positions + 1] = 7 * points @ np.linalg.qr(rng.normal(size=(12, 4)))[0].T + 3.0  # turned, moved and scaled
    records = low_rank_records(table, CorpusDistances(dist, positions, 2 * dist), RecordContext("m", 2, "s"))
    assert {r.index for r in records} == {1, 2, 3} and {r.n for r in records} == {30}  # the corpus has four dimensions
    for rank in (1, 2, 3):
        u, s, vt = np.linalg.svd(points - points.mean(0), full_matrices=False)
        d = np.linalg.norm((u[:, None, :rank] - u[None, :, :rank]) * s[:rank], axis=2)
        pairs = np.triu_indices(30, 1)
        for metric, scale in (("raw", 1.0), ("optimal", (d * dist).sum() / (d**2).sum())):
            expected = ((scale * d - dist)[pairs] ** 2).sum() / (dist[pairs] ** 2).sum()
            assert value(records, f"low_rank.stress.{metric}", part="mds", index=rank) == pytest.approx(expected)
        of_table = value(records, "low_rank.stress.optimal", part="table", index=rank)
        assert of_table == pytest.approx(value(records, "low_rank.stress.optimal", part="mds", index=rank))
        assert (
            value(records, "low_rank.closed", index=rank)
            == pytest.approx(1)
            == value(records, "low_rank.closed.corrected", index=rank)
        )
        raw = ((7 * d - dist)[pairs] ** 2).sum() / (dist[pairs] ** 2).sum()
        assert value(records, "low_rank.stress.raw", part="table", index=rank) == pytest.approx(raw)
    fresh = low_rank_records(noise, CorpusDistances(dist, positions), RecordContext("m", 2, "s"))
    assert all(abs(r.value) < 0.6 for r in fresh if r.metric == "low_rank.closed")
    with pytest.raises(ValueError, match="Keep 9 positions"):
        low_rank_records(noise[:10], CorpusDistances(dist, positions), RecordContext("m", 2, "s"))
