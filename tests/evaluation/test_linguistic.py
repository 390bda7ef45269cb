"""Probes of a model: states are those of single texts, a task is done once, figures are those of the predictions."""

import json

import numpy as np
import pytest
import torch
from cli_runner import whatwhere
from foreign_models import KINDS, save
from made_tasks import write_pairs
from made_trees import write_trees

import whatwhere as ww
from whatwhere.analysis.passes import body_of
from whatwhere.corpus import load_tokenizer
from whatwhere.evaluation import linguistic, paragraphs
from whatwhere.evaluation.benchmark import bounded, paired
from whatwhere.evaluation.examples import Row, examples
from whatwhere.evaluation.linguistic import LINGUISTIC, LinguisticConfig
from whatwhere.evaluation.paragraphs import flesch, sentences_of, syllables
from whatwhere.evaluation.word_states import Slot, parts_of, row_states, slot_states
from whatwhere.models.lengths import max_tokens
from whatwhere.models.open import open_model
from whatwhere.records.record import read_records, select
from whatwhere.study import evaluation_run as evaluate
from whatwhere.study.evaluation_run import run_evaluation

TEXTS = ["The river is long.", "An uncharacteristically short song", "It rained."]


@pytest.fixture(scope="module")
def reference():
    return open_model("reference", "masked").model, load_tokenizer(ww.reference())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_pairs(write_trees(tmp_path_factory.mktemp("data")))


@pytest.mark.parametrize("kind", ["ours", *KINDS])
def test_a_place_is_the_mean_of_its_tokens(kind, reference, tmp_path):
    model, tokenizer = reference
    if kind != "ours":
        others = [text.replace("", "e") for text in TEXTS]  # all letters and none of the words
        folder = str(save(kind, tmp_path / kind, others))
        model = open_model(folder).model
        tokenizer = load_tokenizer(folder)
    slots = [Slot(1, 3, 24), Slot(0, 4, 9), Slot(0, 0, 18), Slot(2), Slot(1, 3, 24)]
    layers = [0, model.config.num_hidden_layers]
    how = {"truncation": True, "max_length": max_tokens(model.config), "return_tensors": "pt"}
    for tokens in (12, 10_000):  # a text at a time, and padded
        states, empty = slot_states(model, tokenizer, TEXTS, slots, layers, batch_tokens=tokens)
        assert not empty.any()
        for number, slot in enumerate(slots):
            coded = tokenizer(TEXTS[slot.text], return_offsets_mapping=True, **how)
            where = coded.pop("offset_mapping")[0]
            with torch.no_grad():
                wanted = "block_states" if kind == "ours" else "hidden_states"
                hidden = body_of(model)(input_ids=coded["input_ids"], **{f"output_{wanted}": True})[wanted]
            inside = (where[:, 0] < slot.end) & (where[:, 1] > slot.start) if slot.end >= 0 else where[:, 0] >= 0
            assert number or inside.sum() > 2  # a word of several tokens
            for i, layer in enumerate(layers):
                expected = hidden[layer][0, inside].mean(0).numpy()
                if kind == "ours" and layer:  # nothing trains what the last block adds to the position stream
                    expected[:8] = hidden[layer - 1][0, inside, :8].mean(0).numpy()
                assert states[i, number] == pytest.approx(expected, abs=1e-4)


def test_what_the_model_does_not_read_is_counted(reference):
    model, tokenizer = reference
    text = "river " * 400
    states, empty = slot_states(model, tokenizer, [text], [Slot(0, 0, 5), Slot(0, 2000, 2005)], [4])
    assert empty.tolist() == [False, True] and not states[0, 1].any() and states[0, 0].any()
    first = [Slot(0, 0, 5)]
    _, lacking = row_states(model, tokenizer, [text], [[first, [Slot(0, 2000, 2005)]], [first, first]], [4])
    assert lacking.tolist() == [True, False]


def test_rows_of_two_places_stand_side_by_side(reference):
    model, tokenizer = reference
    text = "The river is long."
    rows = examples([Row(text, ((4, 9), (0, 3)), "a", ""), Row(text, ((0, 3), (0, 3)), "b", "")])
    states, _ = row_states(model, tokenizer, rows.texts, rows.places, [4])
    assert states.shape == (1, 2, 256) and np.array_equal(states[0, 0, 128:], states[0, 1, :128])
    parts = parts_of(model.config, 2)
    assert [int(parts[name].sum()) for name in ("all", "position", "semantic")] == [256, 16, 240]
    assert parts["position"][128:136].all() and not (parts["position"] & parts["semantic"]).any()


def config(data, **more):
    given = {"models": ["reference"], "data": str(data), "tasks": ["pos", "tense"], "seeds": 2, "limit": 120}
    return LinguisticConfig.parse(given | more)


@pytest.mark.whole
def test_probes_read_each_stream_and_beat_their_controls(data, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    out = tmp_path / "out"
    done = run_evaluation(LINGUISTIC, config(data, untrained=True, layers="all", code=True), out, progress=False)
    assert (done["done"], done["unfinished"]) == (4, 0)
    records = read_records(out / "records.parquet")
    of = {(r.metric, r.part, r.step, r.layer): r for r in records}
    for task in ("pos", "tense"):
        with np.load(out / f"runs/reference/{task}/all.npz") as arrays:
            held = {name: arrays[name] for name in arrays.files}
        right = (held["predicted"] == held["labels"]).mean(-1)  # (seeds, parts)
        for p, stream in enumerate(("", ".position", ".semantic")):
            score = of[f"linguistic.score{stream}", task, None, None]
            assert score.value == pytest.approx(right[:, p].mean()) and score.low <= score.value <= score.high
            assert of[f"linguistic.layer{stream}", task, None, 4].value == pytest.approx(score.value)
        assert of["linguistic.score", task, 0, None].value <= 1
        assert of["linguistic.compression", task, None, None].value > 0
    assert {r.layer for r in select(records, metric="linguistic.layer")} == set(range(5))
    with np.load(out / "runs/reference/pos/all.npz") as arrays:
        lead = (arrays["score"][-1, :, 0, 0] - arrays["score"][-1, :, 0, 1]).mean()
    assert of["linguistic.selectivity", "pos", None, None].value == pytest.approx(lead) and lead > 0
    assert ("linguistic.selectivity", "tense", None, None) not in of
    assert of["linguistic.surface", "pos", None, None].value == 1.0  # in this grammar a word has one tag
    difference = of["linguistic.difference", "pos", 0, None]
    score, start = (of["linguistic.score", "pos", step, None].value for step in (None, 0))
    assert difference.value == pytest.approx(start - score) and difference.low <= difference.value <= difference.high


@pytest.mark.whole
def test_the_verb_takes_what_is_there_and_goes_on(data, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    words = ["evaluate", "linguistic", "reference", "--data", str(data), "--limit", "40", "--seeds", "2"]
    words += ["--out", str(tmp_path / "o")]
    done = whatwhere(*words, "--tasks", "length,blimp")
    assert done.returncode == 0 and "blimp" in done.stdout and "length" in done.stdout, done.stderr
    kept = (tmp_path / "o/runs/reference/length/all.json").stat().st_mtime_ns
    again = whatwhere(*words, "--tasks", "object-number", "--json")
    found = json.loads(again.stdout)
    assert found["done"] == 3 and (tmp_path / "o/runs/reference/length/all.json").stat().st_mtime_ns == kept
    assert {r["part"] for r in found["records"] if r["metric"] == "linguistic.score"} == {
        "length",
        "blimp",
        "object-number",
    }
    page = (tmp_path / "o/report.html").read_text(encoding="utf-8")
    assert "What are they good for?" in page and "position stream" in page
    assert "Left out" not in page  # only where everything was asked for
    every = LinguisticConfig.parse({"models": ["reference"], "data": str(data)})
    assert every.tasks[0] == "blimp" and "sentence-order" not in every.tasks and len(every.tasks) == 13
    lacking = "Left out, as the folder has no files of theirs: sentence-order, next-sentence, readability."
    assert LINGUISTIC.notes(every, tmp_path)[-1] == lacking


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "pos,syntax"], "no task 'syntax'. Known: blimp, pos"),
        (["--tasks", "readability"], "holds no wikipedia-en/"),
        (["--layers", "first"], "no choice of layers 'first'. Known: last, all"),
    ],
)
def test_wrong_input_is_one_line(data, words, said, tmp_path):
    done = whatwhere("evaluate", "linguistic", "reference", "--data", str(data), *words, "--out", str(tmp_path / "o"))
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


def test_a_task_without_rows_or_classes_is_named(data):
    rows = {split: examples([Row("A river.", ((0, 8),), "one", "")]) for split in ("train", "dev", "test")}
    with pytest.raises(ValueError, match="All training rows are 'one'"):
        linguistic.task_labels(linguistic.TASKS["pos"], rows)
    with pytest.raises(ValueError, match="No row of the dev part"):
        linguistic.task_labels(linguistic.TASKS["pos"], rows | {"dev": examples([])})


def test_rows_are_drawn_within_their_strata():
    rng = np.random.default_rng(0)
    strata = np.repeat([0, 1], [10, 90])[rng.permutation(100)]
    a = strata.astype(float)  # one model is right in one stratum alone: its share never moves
    b = np.zeros(100)
    value, low, high = bounded(paired(lambda said, right: float(said.mean()), [(a, b)], strata, strata))
    assert (value, low, high) == pytest.approx((0.9, 0.9, 0.9))
    assert bounded(paired(lambda said, right: float(said.mean()), [(a, b)], strata))[1] < 0.9


def test_reading_ease_is_that_of_the_formula():
    # 1 sentence, 6 words, 6 syllables; and Flesch's own terms for longer words.
    assert flesch(["The cat sat on the mat."]) == pytest.approx(206.835 - 1.015 * 6 - 84.6)
    assert [syllables(w) for w in ("make", "river", "table", "the", "readability", "rhythm")] == [1, 2, 2, 1, 5, 1]
    with pytest.raises(ValueError, match="without words"):
        flesch(["12 !"])
    assert sentences_of("He met Dr. Smith of (St. Paul). J. Doe left. ") == [
        "He met Dr. Smith of (St. Paul).",
        "J. Doe left.",
    ]
    assert sentences_of(" ") == []
    assert sentences_of("It rained. He left at 3.5 p.m. today! Why?") == [
        "It rained.",
        "He left at 3.5 p.m. today!",
        "Why?",
    ]


@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_a_file_without_headings_is_one_article(gap, tmp_path):
    """Every line counted as an article, so that paragraphs of one stood in training and in the test."""
    folder = tmp_path / "wikipedia-en"
    folder.mkdir()
    for article in range(12):
        lines = [f"In {1900 + i} the river was long. It ran to the sea in {article} days." for i in range(5)]
        (folder / f"{article:02}.txt").write_text(gap.join(lines), encoding="utf-8")
    found = paragraphs.read_paragraphs(tmp_path)
    assert [number for number, _ in found] == [n for n in range(12) for _ in range(5)]
    assert all(sentences[1].split()[-2] == str(11 - number) for number, sentences in found)
    for path in list(folder.iterdir())[1:]:
        path.unlink()
    with pytest.raises(ValueError, match="has no article for the test part, which takes one of ten"):
        paragraphs.TASKS["readability"].examples(tmp_path, "test", None)


def test_paragraphs_of_one_article_are_in_one_split(tmp_path):
    folder = tmp_path / "wikipedia-en"
    folder.mkdir()
    articles = [
        f"= Title {i} =\nIn {1900 + i} the river was long. It ran to the sea in {i} days.\nShort. No.\n"
        for i in range(40)
    ]
    (folder / "AA.txt").write_text("\n".join(articles), encoding="utf-8")
    for name, task in paragraphs.TASKS.items():
        task.check(tmp_path)
        splits = [task.examples(tmp_path, split, None) for split in ("train", "dev", "test")]
        assert [len(each) for each in splits] == [32, 4, 4], name
    order = paragraphs.TASKS["sentence-order"].examples(tmp_path, "train", None)
    assert all(
        (order.texts[row[0][0].text].startswith("In ")) == (label == "as it was")
        for row, label in zip(order.places, order.labels, strict=True)
    )
    follows = paragraphs.TASKS["next-sentence"].examples(tmp_path, "train", None)
    for row, label in zip(follows.places, follows.labels, strict=True):
        first, second = (follows.texts[s.text][s.start : s.end] for (s,) in row)
        assert (int(first[5:7]) == int(second.split()[-2])) == (label == "follows")
    with pytest.raises(ValueError, match="holds no wikipedia-en/"):
        paragraphs.read_paragraphs(tmp_path / "nowhere")
