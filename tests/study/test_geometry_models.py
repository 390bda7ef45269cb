"""Conditions H1 and H3 of GEOM over the checkpoints of a training."""

import numpy as np
import pytest
import torch
from cli_runner import sentences
from transformers import AutoTokenizer

import whatwhere as ww
from whatwhere.records.record import read_records, select
from whatwhere.study.geometry_run import GeometryConfig, run_geometry
from whatwhere.training.checkpoints import write_checkpoint


@pytest.mark.whole
def test_h1_is_measured_at_every_checkpoint(tmp_path):
    """Word vectors that triple between two checkpoints triple the distances of mean words; h3 grows by the same factor,
    and the sentence names where both began."""
    (tmp_path / "text.txt").write_text(sentences(400), encoding="utf-8")
    torch.manual_seed(0)
    model = ww.Encoder(ww.preset("ap", "tiny", vocab_size=4096))
    folder = tmp_path / "ap"
    for step in (0, 7):
        write_checkpoint(folder / "checkpoints", step, model, {}, {"cpu": torch.zeros(1)}, {})
        with torch.no_grad():
            model.word_embeddings.weight.mul_(3.0)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(ww.reference()).save_pretrained(folder)
    options = {"corpora": [str(tmp_path / "text.txt")], "tokenizer": "reference", "positions": 8, "min_support": 1}
    config = GeometryConfig(models=[str(folder)], intervals=False, smacof=False, **options)
    made = run_geometry(config, tmp_path / "out", progress=False)
    records = read_records(tmp_path / "out/records.parquet")
    for metric, places in (("h1", {}), ("h3", {"layer": 1, "head": 1, "part": "M"}), ("h1.floor", {})):
        values = [select(records, metric=metric, step=step, **places)[0].value for step in (0, 7, None)]
        assert np.diff(np.log(values)) == pytest.approx(np.log([3.0, 3.0]), rel=1e-5)
    (first,) = select(records, metric="h1", step=0)
    assert f"({first.value:.3g} at step 0)" in made["models"][0]["summary"][1]
    assert "Smallest at step 0" in (tmp_path / "out/report.html").read_text("utf-8")
