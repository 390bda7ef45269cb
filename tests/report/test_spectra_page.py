"""The page of `whatwhere spectra`: sections, sentences from records, what it says of sources, hostile names, no
file."""

import json

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, ViTConfig, ViTModel

from whatwhere.records.record import write_records
from whatwhere.report import write_report
from whatwhere.report.loaded_run import load_run
from whatwhere.report.page import render_page
from whatwhere.report.pages import spectra_page
from whatwhere.run.manifest import MANIFEST
from whatwhere.study.spectra_run import run_spectra

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A turning table called as a preset of ours, and a tiny BERT with its words."""
    place = tmp_path_factory.mktemp("spectra")
    turn = 2 * np.pi * 5 * np.arange(64)[:, None] / 64
    noise = np.random.default_rng(0).normal(size=(64, 6))
    table = np.concatenate([2 * np.cos(turn), 2 * np.sin(turn)], 1) @ np.linalg.qr(noise.T)[0].T[:2] + 0.02 * noise
    table[63] += 2
    model = BertModel(BertConfig(**SIZES, vocab_size=90, max_position_embeddings=40))
    model.embeddings.position_embeddings.weight.data[:, :6] = torch.tensor(table[:40])
    model.save_pretrained(place / "dstg")
    run_spectra([place / "dstg"], place / "out", words=True)
    return place / "out"


def test_sentences_are_made_of_the_records(folder):
    page = spectra_page(load_run(folder))
    table = load_run(folder).table
    ((_, (said,)),) = page.lead
    share = table.point("n50", "dstg").value
    assert said.startswith(f"`dstg`: half of the variance in {table.point('n50.count', 'dstg').value:.0f} component")
    assert f"({share:.1f}\u202f% of them)" in said and "words need" in said and "with shuffled positions" in said
    assert page.summary == ["1 table of positions", "40 × 16 (positions × width)", "1 table of words"]
    assert [s.id for s in page.sections] == ["dimensions", "path", "waves", "distance"]
    assert page.hero.id == "table-map" and "table-map" not in [f.id for s in page.sections for f in s.figures]


def test_a_name_alone_borrows_no_preset_facts(folder):
    """A model called like a preset gets none of its facts."""
    text = render_page(spectra_page(load_run(folder)))
    assert "the paper" not in text.partition('<script type="application/json"')[0].lower().replace("the papers", "")


def test_lowdim_table_1_has_position_and_word_rows(folder):
    """LOWDIM table 1 has a row for positions and one for words."""
    (table,) = spectra_page(load_run(folder)).sections[0].tables
    assert [[c.text for c in row[:5]] for row in table.rows] == [
        ["dstg", "positions", "40", "16", "16"],
        ["dstg", "words", "90", "16", "16"],
    ]
    assert table.rows[1][10].text == table.rows[1][12].text == "–"


def test_several_tables_begin_with_the_cumulative_spectrum(tmp_path):
    for i in range(8):
        np.save(tmp_path / f"table-{i}.npy", np.random.default_rng(i).normal(size=(12, 4)))
    run_spectra(sorted(tmp_path.glob("*.npy")), tmp_path / "out")
    page = spectra_page(load_run(tmp_path / "out"))
    assert page.hero.id == "table-spectrum" and page.summary[0] == "8 tables of positions"
    assert page.lead[0][1][-1] == "2 more tables below." and len(page.lead[0][1]) == 7


def test_patch_grids_and_left_out_models_are_caveats(folder, tmp_path):
    """A grid of patches and models left out are caveats."""
    ViTModel(ViTConfig(**SIZES, image_size=32, patch_size=8)).save_pretrained(tmp_path / "vit")
    run_spectra([tmp_path / "vit"], tmp_path / "out")
    facts = json.loads((tmp_path / "out/spectra.json").read_text())
    (tmp_path / "out" / MANIFEST).unlink()
    (tmp_path / "out/spectra.json").write_text(json.dumps(facts | {"left_out": ["rope"]}))
    grid, left = spectra_page(load_run(tmp_path / "out")).caveats
    assert "`vit` are patches of a picture" in grid and left.endswith("`rope`.")


def test_names_from_outside_stay_text(tmp_path, hostile_texts):
    np.save(tmp_path / "t.npy", np.random.default_rng(0).normal(size=(12, 4)))
    run_spectra([tmp_path / "t.npy"], tmp_path / "out")
    facts = json.loads((tmp_path / "out/spectra.json").read_text())
    facts["tables"][0]["source"] = hostile_texts[0]
    facts["command"] = hostile_texts[0]
    (tmp_path / "out" / MANIFEST).unlink()
    (tmp_path / "out/spectra.json").write_text(json.dumps(facts))
    page = write_report(tmp_path / "out").read_text(encoding="utf-8")
    assert hostile_texts[0] not in page


def test_missing_and_damaged_folders_are_one_line(folder, tmp_path):
    with pytest.raises(ValueError, match="No records at"):
        load_run(tmp_path)
    write_records(tmp_path / "records.parquet", [])
    (tmp_path / "spectra.json").write_text("{")
    with pytest.raises(ValueError, match="not complete JSON"):
        load_run(tmp_path)
