"""BLiMP: every paradigm is read, pseudo-log-likelihoods are those of one sentence and one mask at a time."""

import json
import lzma

import numpy as np
import pytest
import torch
from cli_runner import whatwhere
from transformers import BertConfig, BertForMaskedLM

import whatwhere as ww
from whatwhere.analysis.record_context import RecordContext
from whatwhere.corpus import load_tokenizer
from whatwhere.evaluation.blimp import (
    Acceptability,
    Pair,
    blimp_records,
    pseudo_log_likelihoods,
    read_blimp,
    right,
)
from whatwhere.evaluation.examples import forget_data
from whatwhere.evaluation.linguistic import LINGUISTIC, LinguisticConfig
from whatwhere.evaluation.word_states import Slot
from whatwhere.models.open import open_config, open_model
from whatwhere.records.record import read_records, select

SENTENCES = ["The river is long .", "A", "The album was released in 1998 , and it was the first of the band ."]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def line(good="A river runs .", bad="A river run .", field="morphology", paradigm="agreement", **more):
    return json.dumps({"sentence_good": good, "sentence_bad": bad, "field": field, "UID": paradigm, **more}) + "\n"


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data/blimp"
    folder.mkdir(parents=True)
    text = line() * 3 + line("It is .", "Is it is .", "syntax/semantics", "order") * 2
    (folder / "one.jsonl.xz").write_bytes(lzma.compress(text.encode()))
    (folder / "two.jsonl").write_text(line("We are .", "We is .", "syntax", "number"), encoding="utf-8")
    return tmp_path / "data"


def test_pairs_are_read_from_all_files(data):
    pairs = read_blimp(data)
    assert len(pairs) == 6 and pairs[0] == Pair("A river runs .", "A river run .", "morphology", "agreement")
    assert {p.field for p in pairs} == {"morphology", "syntax_semantics", "syntax"}
    assert [p.paradigm for p in read_blimp(data / "blimp", 1)] == ["agreement", "order", "number"]


def test_terms_are_means_over_paradigms_of_all_fields(tmp_path):
    """DSTG's Table 6 has island effects; the column that has them was not read."""
    islands = {"linguistics_term": "island_effects"}
    rows = [line(paradigm="adjunct", field="syntax", **islands)] * 4
    rows += [line(paradigm="wh", field="syntax/semantics", **islands)] * 2 + [line(paradigm="other")] * 2
    (tmp_path / "a.jsonl").write_text("".join(rows), encoding="utf-8")
    pairs = read_blimp(tmp_path)
    records = blimp_records(RecordContext("m"), pairs, np.array([1, 1, 0, 1, 0, 0.5, 1, 1]))
    (term,) = select(records, metric="blimp.term")
    assert (term.part, term.value, term.n) == ("island_effects", (0.75 + 0.25) / 2, 6)
    of_field = {r.part: (r.value, r.n) for r in select(records, metric="blimp.field")}
    assert of_field == {"syntax": (0.75, 4), "syntax_semantics": (0.25, 2), "morphology": (1.0, 2)}


def test_the_hub_gives_the_same_pairs(data, tmp_path, monkeypatch):
    rows = {p: [json.loads(line(good=f"A {p} runs {i} .", paradigm=p)) for i in range(10)] for p in ("one", "two")}
    asked = []

    def load(name, config, split):
        asked.append((name, config, split))
        return rows[config]

    monkeypatch.setattr("datasets.get_dataset_config_names", lambda name: list(rows))
    monkeypatch.setattr("datasets.load_dataset", load)
    forget_data()
    folder = tmp_path / "files"
    folder.mkdir()
    text = "".join(json.dumps(row) + "\n" for paradigm in rows.values() for row in paradigm)
    (folder / "all.jsonl").write_text(text, encoding="utf-8")
    assert read_blimp(None, 3) == read_blimp(folder, 3)
    assert asked == [("nyu-mll/blimp", p, "train") for p in rows] and read_blimp(None) and len(asked) == 2  # kept
    monkeypatch.setattr("whatwhere.study.evaluation_run.parallel_jobs", lambda: 1)
    words = ["evaluate", "linguistic", "reference", "--out", str(tmp_path / "o")]
    done = whatwhere(*words, "--seeds", "1", "--limit", "20")
    assert done.returncode == 0 and "as the Hub has no data of theirs: pos, " in done.stdout, done.stderr
    parts = {r.part for r in select(read_records(tmp_path / "o/records.parquet"), metric="linguistic.score")}
    assert parts == {"blimp", "acceptability"}
    wrong = whatwhere(*words, "--tasks", "blimp,pos")
    assert wrong.returncode == 2 and "pos is read from files. Give the folder that holds ud-ewt/" in wrong.stderr

    def refuse(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr("datasets.get_dataset_config_names", refuse)
    forget_data()
    wrong = whatwhere("evaluate", "linguistic", "reference", "--tasks", "blimp", "--out", str(tmp_path / "p"))
    way_out = "Without a network: Bring its data/*.jsonl (github.com/alexwarstadt/blimp) and give the folder: --data"
    assert f"nyu-mll/blimp cannot be fetched (no route to host). {way_out} FOLDER.\n" in wrong.stderr
    assert wrong.returncode == 2 and not (tmp_path / "p").exists()


def test_missing_files_and_texts_of_blimp_are_named(data, tmp_path):
    with pytest.raises(ValueError, match="holds no BLiMP: .* Bring its data"):
        read_blimp(tmp_path / "nowhere")
    (data / "blimp/two.jsonl").write_text(line(bad=" "), encoding="utf-8")
    with pytest.raises(ValueError, match=r"two.jsonl, line 1: no text in 'sentence_bad'"):
        read_blimp(data)


def test_pairs_of_a_probe_stay_in_one_part(tmp_path):
    words = [(f"p{k}", i) for k in range(3) for i in range(20)]
    text = "".join(line(f"good {p} {i}", f"bad {p} {i}", "syntax", p) for p, i in words)
    (tmp_path / "all.jsonl").write_text(text, encoding="utf-8")
    rows = {split: Acceptability().examples(tmp_path, split, None) for split in ("train", "dev", "test")}
    assert {split: len(each) for split, each in rows.items()} == {"train": 96, "dev": 12, "test": 12}
    pairs = {split: {text.split(" ", 1)[1] for text in each.texts} for split, each in rows.items()}
    assert len(set.union(*pairs.values())) == 60 == sum(map(len, pairs.values()))
    assert all(text.split()[0] == label for text, label in zip(rows["test"].texts, rows["test"].labels, strict=True))
    # a limit takes as many of every paradigm, whose number says nothing of the label
    few = Acceptability().examples(tmp_path, "train", 12)
    assert {(key, label) for key, label in zip(few.keys, few.labels, strict=True)} == {
        (f"p{k}", label) for k in range(3) for label in ("good", "bad")
    }
    assert few.places[0] == [[Slot(0)]]
    (tmp_path / "all.jsonl").write_text(line() * 9, encoding="utf-8")
    with pytest.raises(ValueError, match="agreement has 9 pairs; a probe needs 10"):
        Acceptability().check(tmp_path)


def one_by_one(model, tokenizer, sentence):
    """Sum of log-probabilities of each token masked alone, one forward pass each."""
    ids = tokenizer(sentence)["input_ids"]
    total = 0.0
    for place in range(1, len(ids) - 1):
        masked = torch.tensor([ids])
        masked[0, place] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(input_ids=masked).logits[0, place].double()
        total += float(torch.log_softmax(logits, -1)[ids[place]])
    return total


@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_likelihoods_are_those_of_one_mask_at_a_time(kind, tmp_path):
    tokenizer = load_tokenizer(ww.reference())
    if kind == "ours":
        model = open_model("reference", "masked").model
    else:
        torch.manual_seed(0)
        BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(tmp_path)
        model = open_model(tmp_path, "masked").model
    expected = [one_by_one(model, tokenizer, sentence) for sentence in SENTENCES]
    for tokens in (20, 64, 100_000):  # a row, a few, all of a length
        found = pseudo_log_likelihoods(model, tokenizer, SENTENCES, batch_tokens=tokens)
        assert found == pytest.approx(expected, abs=2e-3)


def test_equal_sentences_are_half_right(monkeypatch):
    monkeypatch.setattr("whatwhere.evaluation.blimp.pseudo_log_likelihoods", lambda *_: np.array([1, 1, 3, 2, 2, 3.0]))
    assert right(None, None, [Pair("", "", "", "")] * 3).tolist() == [0.5, 1.0, 0.0]


@pytest.mark.whole
def test_the_verb_judges_each_model_once_and_its_control(data, tmp_path, monkeypatch):
    monkeypatch.setattr("whatwhere.study.evaluation_run.parallel_jobs", lambda: 1)
    words = ["evaluate", "linguistic", ww.reference(), "--data", str(data), "--out", str(tmp_path / "o")]
    words += ["--tasks", "blimp"]
    done = whatwhere(*words)
    assert done.returncode == 0 and "blimp" in done.stdout, done.stderr
    records = read_records(tmp_path / "o/records.parquet")
    of = {(r.metric, r.part): r.value for r in records}
    assert of["blimp", None] == pytest.approx(
        np.mean([of["blimp.paradigm", p] for p in ("agreement", "order", "number")])
    )
    kept = (tmp_path / "o/runs/reference/blimp/all.json").stat().st_mtime_ns
    again = whatwhere(*words, "--untrained", "--json")
    assert again.returncode == 0 and (tmp_path / "o/runs/reference/blimp/all.json").stat().st_mtime_ns == kept
    records = read_records(tmp_path / "o/records.parquet")
    assert {r.step for r in select(records, metric="blimp")} == {None, 0}
    assert {r.part for r in select(records, metric="blimp.field")} == {"syntax", "morphology", "syntax_semantics"}
    (difference,) = select(records, metric="linguistic.difference")
    start, score = (select(records, metric="blimp", step=step)[0].value for step in (0, None))
    assert difference.value == pytest.approx(start - score) and difference.low <= difference.value <= difference.high
    assert "What are they good for?" in (tmp_path / "o/report.html").read_text(encoding="utf-8")
    wrong = whatwhere("evaluate", "linguistic", "reference", "--data", str(tmp_path), "--out", str(tmp_path / "p"))
    assert wrong.returncode == 2 and "holds no task: none of blimp/" in wrong.stderr and not (tmp_path / "p").exists()


def test_a_model_without_its_head_is_refused(data, tmp_path):
    """transformers draws a head that a folder lacks: a sentence encoder had 0.50 without a word."""
    model = BertForMaskedLM(BertConfig(vocab_size=4096, **SIZES)).bert
    model.save_pretrained(tmp_path / "bare")
    load_tokenizer(ww.reference()).save_pretrained(tmp_path / "bare")
    words = ["evaluate", "linguistic", str(tmp_path / "bare"), "--data", str(data), "--tasks", "blimp"]
    done = whatwhere(*words, "--out", str(tmp_path / "o"))
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "bare (BertModel) was saved without a masked-language head" in done.stderr
    # Where no task is named, the probes are measured and the page says why BLiMP is not.
    every = {"data": str(data), "tasks": []}
    config = LinguisticConfig.parse({**every, "models": [str(tmp_path / "bare")]})
    assert "blimp" not in config.tasks and "blimp" in LinguisticConfig.parse({**every, "models": ["reference"]}).tasks
    (note,) = (note for note in LINGUISTIC.notes(config, tmp_path) if note.startswith("BLiMP was left out."))
    assert "was saved without a masked-language head" in note
    with pytest.raises(ValueError, match="no head"):
        (tmp_path / "bare" / "config.json").write_text('{"model_type": "bert"}')
        open_config(tmp_path / "bare", "masked")
