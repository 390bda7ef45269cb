"""Every encoder through every evaluation: those of other packages, presets of ours, and one that lacks a tokenizer."""

import json

import pytest
import torch
from cli_runner import whatwhere
from foreign_models import KINDS, TEXTS, save
from made_tasks import write_every_task
from transformers import AutoTokenizer

import whatwhere as ww
from whatwhere.encoder import PRESETS
from whatwhere.models.open import open_model

pytestmark = pytest.mark.whole

FAMILIES = {  # verb -> the least that it does
    "glue": ["--tasks", "rte", "--seeds", "1", "--rates", "1e-4"],
    "squad": ["--seeds", "1", "--rates", "1e-4"],
    "linguistic": ["--tasks", "tense", "--seeds", "1", "--limit", "40"],
    "mteb": ["--tasks", "STS12-local"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A few rows for every family; texts of RTE may be longer than the 32 tokens that a model of these reads."""
    return write_every_task(tmp_path_factory.mktemp("data"), TEXTS)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    place = tmp_path_factory.mktemp("foreign")
    return {kind: save(kind, place / kind) for kind in KINDS}


def scores(family, model, data, out):
    """metric -> record of one model's trained self."""
    words = ["evaluate", family, str(model), *FAMILIES[family], "--data", str(data), "--out", str(out)]
    done = whatwhere(*words, "--json")
    assert done.returncode == 0, done.stderr
    return {r["metric"]: r for r in json.loads(done.stdout)["records"] if r["model"] == model.name}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_encoders_of_other_packages_go_through_every_family(kind, family, foreign, data, tmp_path):
    found = scores(family, foreign[kind], data, tmp_path / "o")[f"{family}.score"]
    assert -1 <= found["value"] <= 1 and (tmp_path / "o/report.html").is_file()


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_tokens_as_positions_are_read(kind, foreign):
    """As many tokens are read as there are positions and types where a model has two."""
    opened = open_model(foreign[kind])
    assert opened.cap_length(128) == 32 and opened.token_types == (kind in ("bert", "electra"))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_probed_and_its_streams_alone(name, data, tmp_path):
    torch.manual_seed(0)
    ww.Encoder(ww.preset(name, "tiny", vocab_size=4096, num_hidden_layers=1)).save_pretrained(tmp_path / name)
    AutoTokenizer.from_pretrained(ww.reference()).save_pretrained(tmp_path / name)
    found = scores("linguistic", tmp_path / name, data, tmp_path / "o")
    streams = ["", ".position", ".semantic"] if PRESETS[name].get("streams") == 2 else [""]
    assert sorted(metric for metric in found if metric.startswith("linguistic.score")) == [
        f"linguistic.score{stream}" for stream in streams
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_a_tokenizer_is_refused_first(family, foreign, data, tmp_path):
    """A model without a tokenizer is refused before anything is done."""
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "bare").mkdir(exist_ok=True)
        (tmp_path / "bare" / name).write_bytes((foreign["bert"] / name).read_bytes())
    words = ["evaluate", family, "reference", str(tmp_path / "bare"), *FAMILIES[family], "--data", str(data)]
    done = whatwhere(*words, "--out", str(tmp_path / "o"))
    assert (done.returncode, done.stdout) == (2, "") and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "bare has no tokenizer (tokenizer.json). Save the model's tokenizer there" in done.stderr
    assert not (tmp_path / "o").exists()
