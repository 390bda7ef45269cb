"""SQuAD and Restaurants-8k: files as they were released, protocols as printed, fine-tunings from the command line."""

import json

import numpy as np
import pytest
from cli_runner import whatwhere
from made_tasks import made_up, paragraph, question, squad, write
from transformers import BertConfig, BertForSequenceClassification, BertGenerationConfig, BertGenerationEncoder

import whatwhere as ww
from whatwhere.corpus import load_tokenizer
from whatwhere.evaluation.spans import SpanBatches, answers, best_f1, exact_and_f1, settled, threshold
from whatwhere.evaluation.squad import RECIPES, TASKS, SquadConfig, by_article, read_questions, task_questions
from whatwhere.evaluation.tuning import Recipe, Setting, halves, tune
from whatwhere.models.open import open_config, open_model
from whatwhere.papers import SQUAD
from whatwhere.records.record import read_records, select
from whatwhere.study import evaluation_run as evaluate
from whatwhere.training.loop import Trainer
from whatwhere.training.training_keys import LoopConfig

QUICK = Recipe([Setting(2e-4, 8, 0.01)], epochs=2, warmup=0.1, patience=50, seeds=1, scores=(4, 500))
RUN = "rate-3e-05-batch-16-decay-0.01-seed-0"  # of the recipe `short` at its first rate
TURNS = [
    {
        "userInput": {"text": "5 of us at 18:00"},
        "labels": [
            {"slot": "people", "valueSpan": {"endIndex": 1}},  # as released: no startIndex where it is 0
            {"slot": "time", "valueSpan": {"startIndex": 11, "endIndex": 16}},
        ],
    },
    {
        "userInput": {"text": "Rollo"},
        "context": {"requestedSlots": ["first_name", "time"]},
        "labels": [{"slot": "first_name", "valueSpan": {"endIndex": 5}}],
    },
    {"userInput": {"text": "I like fish."}},
]


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
def test_both_versions_are_read_as_they_were_released(tmp_path, pack):
    write(tmp_path / "squad", squad(paragraph(question(), question("q2", "Whither?", 14, "Rouen"))), pack=pack)
    found = read_questions(TASKS["squad"], tmp_path, "dev")
    assert (found.paragraphs, found.articles, found.version) == (["Rollo came to Rouen."], ["Normans"], 1)
    assert [(q.id, q.text, q.paragraph, q.answers) for q in found.questions] == [
        ("q1", "Who came?", 0, ((0, "Rollo"),)),
        ("q2", "Whither?", 0, ((14, "Rouen"),)),
    ]
    none = {"id": "q3", "question": "Why?", "answers": [], "is_impossible": True, "plausible_answers": [{"text": "x"}]}
    write(tmp_path, squad(paragraph(question(is_impossible=False), none)), "train-v2.0.json", pack)
    found = read_questions(TASKS["squad-2"], tmp_path, "train")
    assert [q.answers for q in found.questions] == [((0, "Rollo"),), ()] and found.version == 2


def test_the_hub_gives_the_same_questions(monkeypatch, tmp_path):
    asked = []

    def load(name, config, split):
        asked.append((name, config, split))
        row = {"id": "q1", "title": "Normans", "context": "Rollo came to Rouen.", "question": "Who came?"}
        return [{**row, "answers": {"text": ["Rollo"], "answer_start": [0]}}, {**row, "id": "q2", "answers": none}]

    none = {"text": [], "answer_start": []}
    monkeypatch.setattr("datasets.load_dataset", load)
    found = read_questions(TASKS["squad-2"], None, "dev")
    write(tmp_path, squad(paragraph(question(), {"id": "q2", "question": "Who came?", "answers": []})), "dev-v2.0.json")
    assert found == read_questions(TASKS["squad-2"], tmp_path, "dev")
    assert asked == [("rajpurkar/squad_v2", None, "validation")]

    def refuse(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr("datasets.load_dataset", refuse)
    with pytest.raises(ValueError, match=r"squad cannot be fetched \(no route.*bring train-v1.1.json .*--data FOLDER"):
        read_questions(TASKS["squad"], None, "train")


def test_unfilled_slots_have_no_answer(tmp_path):
    """Slots are questions and one that is not filled has no answer."""
    write(tmp_path / "span-extraction/restaurant8k", TURNS, "test.json", pack=True)
    found = read_questions(TASKS["restaurants"], tmp_path, "dev")
    assert found.paragraphs == [turn["userInput"]["text"] for turn in TURNS]
    assert [(q.id, q.text, q.answers) for q in found.questions] == [
        ("1-people", "people", ((0, "5"),)),
        ("1-time", "time", ((11, "18:00"),)),
        ("1-first_name", "first name", ()),
        ("2-first_name", "first name; asked for: first name, time", ((0, "Rollo"),)),
        ("2-people", "people; asked for: first name, time", ()),
        ("3-first_name", "first name", ()),
    ]


_ANSWERLESS = {"id": "q1", "question": "Why?", "answers": []}


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (
            squad(paragraph(question(begin=1))),
            r"question q1: the answer 'Rollo' is not in its paragraph at character 1, wh",
        ),
        (
            squad(paragraph(question(begin=-5, answer="ouen"))),
            "question q1: the answer 'ouen' is not in its paragraph",
        ),
        (squad(paragraph(question(), question())), "paragraph 1, question q1: the id occurs twice"),
        (squad(paragraph(question(answer=" "))), "question q1: an empty text in 'text'"),
        (squad(paragraph(question(text=""))), "question q1: an empty text in 'question'"),
        (squad(paragraph(context="")), "article Normans, paragraph 1: an empty text in 'context'"),
        (squad(paragraph(question(text="\ud800?"))), r"half a character \(a lone surrogate\) in 'question'"),
        (squad(paragraph({"id": "q1", "question": "Why?"})), "question q1: no list 'answers'. Bring a complete copy"),
        (squad(paragraph(question(begin="0"))), "question q1: no whole number 'answer_start'"),
        (squad({"context": "Rollo."}), "paragraph 1: no list 'qas'"),
        (squad(title=None), "article 1: no text 'title'"),
        ({"version": "1.1"}, "dev-v1.1.json: no list 'data'"),
        (squad(), "dev-v1.1.json holds no questions"),
        ([], "no list 'data'"),
        (
            squad(paragraph(_ANSWERLESS)),
            "question q1: no answer, which SQuAD 1.1 does not know. For 2.0: --tasks squad-2",
        ),
    ],
)
def test_wrong_files_of_squad_are_refused_in_one_line(tmp_path, read, said):
    with pytest.raises(ValueError, match=said) as caught:
        read_questions(TASKS["squad"], write(tmp_path, read), "dev")
    assert "\n" not in str(caught.value)


def test_missing_and_broken_files_are_named(tmp_path):
    """Missing and broken files are named with the way out."""
    with pytest.raises(
        ValueError, match=r"has no train-v1.1.json \(nor .xz, .gz, .zst\). Bring .* --train-on-dev 0.8; or"
    ):
        read_questions(TASKS["squad"], tmp_path, "train")
    with pytest.raises(ValueError, match=r"restaurants is not on the Hub. Bring test.json \(github.com/PolyAI-LDN"):
        read_questions(TASKS["restaurants"], None, "dev")
    (tmp_path / "dev-v1.1.json").write_text('{"data": [', encoding="utf-8")
    with pytest.raises(ValueError, match="dev-v1.1.json is no complete JSON .*Get the file again"):
        read_questions(TASKS["squad"], tmp_path, "dev")
    far = [{"userInput": {"text": "at 8"}, "labels": [{"slot": "time", "valueSpan": {"startIndex": 3, "endIndex": 9}}]}]
    with pytest.raises(ValueError, match="turn 1: time at 3 to 9 is not in 'at 8'"):
        read_questions(TASKS["restaurants"], write(tmp_path, far, "test.json"), "dev")


def test_articles_are_parted_and_always_alike(tmp_path):
    read = made_up(40, 0)
    data = read_questions(TASKS["squad"], write(tmp_path, read), "dev")
    train, dev = by_article(data, 0.6)
    titles = [{part.articles[q.paragraph] for q in part.questions} for part in (train, dev)]
    assert list(map(len, titles)) == [3, 2] and not titles[0] & titles[1]
    assert len(train.questions) + len(dev.questions) == 40
    read["data"] = [{"title": "empty", "paragraphs": [paragraph()]}, *reversed(read["data"])]  # nothing is asked of it
    again = by_article(read_questions(TASKS["squad"], write(tmp_path, read), "dev"), 0.6)
    assert {q.id for q in again[0].questions} == {q.id for q in train.questions}
    assert all(len(part.questions) for share in (0.01, 0.99) for part in by_article(data, share))
    with pytest.raises(ValueError, match=r"One article \(Normans\) cannot be parted"):
        by_article(read_questions(TASKS["squad"], write(tmp_path, squad(paragraph(question()))), "dev"), 0.5)
    write(tmp_path, read)
    config = {"models": ["reference"], "data": str(tmp_path), "train_on_dev": 0.6, "limit": 20}
    train, dev = task_questions(SquadConfig.parse(config), "squad")
    assert (len(train.questions), len(dev.questions)) == (20, 16)  # only training questions are limited


def test_protocols_and_values_are_those_printed():
    assert [s.learning_rate for s in RECIPES["dstg"].settings] == [1e-5, 3e-5, 5e-5]
    assert [s.learning_rate for s in RECIPES["short"].settings] == [3e-5, 1e-4] and RECIPES["short"].seeds == 3
    assert SQUAD["squad.exact", "dstg"] == 0.77 and SQUAD["squad.f1", "ap"] == 0.82 and len(SQUAD) == 8


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(ww.reference())


@pytest.mark.whole
def test_a_model_learns_when_to_answer(tmp_path, tokenizer):
    """Training raises F1 above 0.9, which silence at every question cannot reach."""
    for name, n, seed in (("train-v2.0.json", 96, 0), ("dev-v2.0.json", 41, 1)):
        write(tmp_path, made_up(n, seed, none=0.4), name)
    data, dev_data = task_questions(SquadConfig.parse({"models": ["reference"], "data": str(tmp_path)}), "squad-2")
    train, dev = (SpanBatches(rows, tokenizer, 24, 8, 0) for rows in (data, dev_data))
    model = open_model("reference", "answers").model
    start = answers(Trainer(model, LoopConfig(), 1), dev, 8)
    found = tune(model, train, dev, QUICK.settings[0], QUICK, best_f1, predict=answers)
    assert found.scores.shape == (8, 3) and best_f1(start, dev.labels) < 0.6
    assert found.scores[:, 2].max() > 0.9 > dev.labels.mean() + 0.3  # which silence has
    for part, rows in enumerate((*halves(41), np.arange(41))):
        said = found.predicted[part][rows]
        kept = settled(said, dev.labels[rows], threshold(said, dev.labels[rows]))
        assert kept["f1"].mean() == found.scores[:, part].max()


def test_foreign_encoders_are_read_with_their_types(tokenizer, tmp_path):
    """An encoder of another package is read with its types."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=3, **sizes)).save_pretrained(
        tmp_path / "b"
    )
    data = read_questions(TASKS["squad"], write(tmp_path, made_up(16, 0)), "dev")
    rows = SpanBatches(data, tokenizer, 24, 8, types=True)
    models = [open_model(tmp_path / "b", "answers", untrained=untrained).model for untrained in (False, True)]
    one = Recipe(QUICK.settings, 1, 0.0, 5, 1, scores=(1, 500))
    found = [tune(model, rows, rows, one.settings[0], one, best_f1, predict=answers) for model in models]
    assert [len(each.predicted[2]) for each in found] == [16, 16] and found[0].scores[0, 2] != found[1].scores[0, 2]
    BertGenerationEncoder(BertGenerationConfig(vocab_size=60, **sizes)).save_pretrained(tmp_path / "none")
    with pytest.raises(ValueError, match=r"none \(bert-generation\) has no head for questions"):
        open_config(tmp_path / "none", "answers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write(path, made_up(100, 2))
    for name, n in (("train_0.json", 8), ("test.json", 6)):
        write(path / "restaurant8k", TURNS * n, name)
    return path


def recounted(config, task, out):
    """Exact match and F1 of the answers that are kept, as the official script counts them."""
    given = json.loads((out / f"runs/reference/{task}/{RUN}-answers.json").read_text())
    _, dev = task_questions(config, task)
    assert list(given) == [q.id for q in dev.questions]
    rows = [exact_and_f1(given[q.id], [text for _, text in q.answers], dev.version) for q in dev.questions]
    return tuple(np.mean(rows, axis=0))


def best_of(out, task):
    of = {r.metric: r.value for r in read_records(out / "records.parquet") if (r.part, r.step) == (task, None)}
    return of["squad.best.exact"], of["squad.best"]


@pytest.mark.whole
def test_the_verb_keeps_answers_and_what_is_finished(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    out = tmp_path / "o"
    words = ["evaluate", "squad", "reference", "--data", str(folder), "--train-on-dev", "0.6", "--seeds", "1"]
    words += ["--rates", "3e-5"]
    done = whatwhere(*words, "--out", str(out))
    assert done.returncode == 0 and "squad (F1)" in done.stdout, done.stderr
    run = out / f"runs/reference/squad/{RUN}.json"
    config = SquadConfig.load_saved(out / "squad.yaml")
    assert recounted(config, "squad", out) == pytest.approx(best_of(out, "squad"))
    spans = json.loads(run.with_name(f"{run.stem}-spans.json").read_text())
    given = json.loads(run.with_name(f"{run.stem}-answers.json").read_text())
    assert all(spans[name][0][0] == text for name, text in given.items())  # 1.1 leaves none unanswered
    of = {r.metric: r.value for r in read_records(out / "records.parquet")}
    assert of["squad.score"] == of["squad.f1"] and of["squad.optimism"] == pytest.approx(
        of["squad.best"] - of["squad.f1"]
    )
    kept = run.stat().st_mtime_ns
    again = whatwhere(*words, "--tasks", "restaurants", "--untrained", "--out", str(out), "--json")
    assert again.returncode == 0 and json.loads(again.stdout)["done"] == 4 and run.stat().st_mtime_ns == kept
    records = read_records(out / "records.parquet")
    assert recounted(config, "restaurants", out) == pytest.approx(best_of(out, "restaurants"))
    assert {(r.part, r.step) for r in select(records, metric="squad.score")} == {
        (task, step) for task in ("squad", "restaurants", None) for step in (None, 0)
    }
    (silent,) = {r.value for r in select(records, metric="squad.unanswerable")}
    assert silent == pytest.approx(1 / 2) and {r.step for r in select(records, metric="squad.difference")} == {0}
    assert "F1 and exact match by task and model" in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "has no train-v1.1.json"),
        (["--tasks", "squad,nli"], "no task 'nli'. Known: squad, squad-2, restaurants"),
        (["--recipe", "tupe"], "no recipe 'tupe'. Known: dstg, short"),
        (["--train-on-dev", "1.5"], "--train-on-dev must be less than 1; got '1.5'."),
    ],
)
def test_wrong_input_is_one_line(folder, words, said, tmp_path):
    done = whatwhere("evaluate", "squad", "reference", "--data", str(folder), *words, "--out", str(tmp_path / "o"))
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()
