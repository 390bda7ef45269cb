"""Values of `evaluate` on an encoder of another package: each from the model's folder to the record by parts that are
not ours."""

import json

import numpy as np
import pytest
from cli_runner import whatwhere
from foreign_models import save
from made_tasks import ROWS, about, lines, made_up, put, write, write_data_set
from made_trees import write_trees
from plain_probes import holmes_score, linguistic_scores, vary
from plain_tunings import RATE, SHORT, SHORT_SQUAD, answered, classified, judged, squad_values
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import AutoModelForMaskedLM

pytestmark = pytest.mark.whole

LONGEST = 32  # tokens that the encoder reads
FAST = 4e-4  # learning rate at which so small a classifier learns, of a model 768 wide
ALL = {"accuracy": accuracy_score, "matthews": matthews_corrcoef, "f1": f1_score}
ALL |= {"pearson": lambda a, b: pearsonr(a, b)[0], "spearman": lambda a, b: spearmanr(a, b)[0]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """BERT with random weights, which reads 32 tokens and knows the words of the tasks."""
    rng = np.random.default_rng(0)
    texts = [about(i % 3, rng) for i in range(60)]
    texts += ["the rivers saw made see make quickly , and . song it is long"] * 9
    texts += ["which year ? who was it ? 1912 1945 1960 john mary henry"] * 9
    return save("bert", tmp_path_factory.mktemp("foreign") / "bert", texts)


@pytest.fixture(autouse=True)
def in_float32(monkeypatch):
    """Trainings in this process and in float32, whatever this machine is faster with."""
    monkeypatch.setattr("whatwhere.study.evaluation_run.parallel_jobs", lambda: 1)
    monkeypatch.setattr("whatwhere.training.setup.is_bf16_faster", lambda device: False)


def records_of(*arguments):
    """Records by (metric, part), of the trained model."""
    done = whatwhere("evaluate", *map(str, arguments), "--json")
    assert done.returncode == 0, done.stderr
    return {(r["metric"], r["part"]): r["value"] for r in json.loads(done.stdout)["records"]}


def pairs(rows, seed):
    """Texts of a topic each, some longer than the model reads together; by their topics they are alike or not."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(3, size=(rows, 2))
    lengths = rng.integers(3, 24, size=(rows, 2))
    texts = [tuple(about(t, rng, n) for t, n in zip(*row, strict=True)) for row in zip(topics, lengths, strict=True)]
    return texts, topics


def release_of(task, data):
    """Write a task of GLUE as released; return rows and labels of training and of each part of development."""
    sizes = {"train": 160, "dev": 41} if task != "mnli" else {"train": 160, "dev_matched": 41, "dev_mismatched": 30}
    parts = {}
    for seed, (split, rows) in enumerate(sizes.items()):
        texts, topics = pairs(rows, seed)
        strange = np.random.default_rng(seed + 9).random(rows) < 0.3
        if task == "cola":
            texts = [(one,) for one, _ in texts]
            labels = np.where(strange, topics[:, 1], topics[:, 0]) == 0
            labels = labels.astype(int)
            table = [("x", label, "", one) for label, (one,) in zip(labels, texts, strict=True)]
        elif task == "sts-b":
            labels = np.float32(2.25 * topics[:, 0] + 0.25 * topics[:, 1])
            table = [(*"1234567", *two, f"{label}") for label, two in zip(labels, texts, strict=True)]
            table = [("index", *"bcdefg", "sentence1", "sentence2", "score"), *table]
        else:
            labels = topics[:, 0]
            names = ["contradiction", "entailment", "neutral"]  # numbered by the alphabet
            table = [(i, *two, names[k]) for i, (k, two) in enumerate(zip(labels, texts, strict=True))]
            table = [("index", "sentence1", "sentence2", "gold_label"), *table]
        put(data / {"cola": "CoLA", "sts-b": "STS-B", "mnli": "MNLI"}[task] / f"{split}.tsv", lines(table))
        parts[split] = (texts, labels)
    return parts


@pytest.mark.parametrize(
    ("task", "classes", "metrics"),
    [("cola", 2, ["matthews"]), ("mnli", 3, ["accuracy"]), ("sts-b", 0, ["pearson", "spearman"])],
)
def test_glue_is_a_plain_training_of_transformers(task, classes, metrics, folder, tmp_path):
    """Scores of a classifier of transformers that AdamW trains in a loop, by scikit-learn's and scipy's metrics."""
    parts = release_of(task, tmp_path / "data")
    train, (dev, labels), *rest = parts.values()
    texts = [dev, *(rows for rows, _ in rest)]
    predictions = classified(folder, train, texts, LONGEST, classes, **SHORT | {"rate": FAST})
    of_dev = [said[0] for said in predictions]
    first = ALL[metrics[0]]
    whole = [first(said, labels) for said in of_dev]
    assert len(set(whole)) > 1 and 0 < max(whole) < 1
    expected = {f"glue.{name}": judged(of_dev, labels, first, ALL[name]) for name in metrics}
    expected |= {"glue.score": expected[f"glue.{metrics[0]}"], "glue.best": max(whole), "glue.median": max(whole)}
    if rest:
        expected["glue.score.mismatched"] = first(predictions[int(np.argmax(whole))][1], rest[0][1])
    order = ("glue", folder, "--tasks", task, "--data", tmp_path / "data", "--seeds", "1", "--rates", FAST)
    found = records_of(*order, "--out", tmp_path / "out")
    assert {name: found[name, task] for name in expected} == pytest.approx(expected, abs=1e-3)


def questions(rows, seed, none):
    """Questions on paragraphs of which most take several windows."""
    rng = np.random.default_rng(seed)
    read = made_up(rows, seed, none=none)
    for paragraph in (paragraph for article in read["data"] for paragraph in article["paragraphs"]):
        before, after = (about(int(rng.integers(3)), rng, int(rng.integers(1, 9))) for _ in range(2))
        paragraph["context"] = f"{before} {paragraph['context']} {after}"
        for answer in paragraph["qas"][0]["answers"]:
            answer["answer_start"] += len(before) + 1
    return read


@pytest.mark.parametrize("task", ["squad", "squad-2"])
def test_squad_is_transformers_head_and_the_script(task, folder, tmp_path):
    """F1 and exact match of transformers' head, trained in a loop on windows that its tokenizer made, as the official
    script counts, with the margin of no answer that it finds."""
    version = 2 if task == "squad-2" else 1
    train, dev = (questions(rows, seed, 0.3 * (version == 2)) for rows, seed in ((60, 0), (31, 1)))
    for name, read in (("train", train), ("dev", dev)):
        write(tmp_path / "data", read, f"{name}-v{version}.{2 - version}.json")
    windows = {"length": 18, "stride": 4}
    answers = answered(folder, train, dev, **windows, **SHORT_SQUAD)
    expected = squad_values(answers, dev, version)
    order = ("squad", folder, "--tasks", task, "--data", tmp_path / "data", "--seeds", "1", "--rates", RATE)
    sizes = [word for name, value in windows.items() for word in (f"--{name}", value)]
    found = records_of(*order, *sizes, "--out", tmp_path / "out")
    assert {name: found[name, task] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert found["squad.score", task] == found["squad.f1", task] and 0 < expected["squad.f1"] < 1


@pytest.mark.parametrize("task", ["pos", "tense"])
def test_linguistic_is_a_probe_of_hidden_states(task, folder, tmp_path):
    """Share right of torch's linear layer on states by `output_hidden_states`; scikit-learn's regression is as good."""
    data = write_trees(tmp_path / "data", {"train": 180, "dev": 60, "test": 180})
    share, f1, regression = linguistic_scores(folder, LONGEST, data, task, 2, 120)
    order = ("linguistic", folder, "--data", data, "--tasks", task, "--seeds", "2", "--limit", "120")
    found = records_of(*order, "--out", tmp_path / "out")
    assert found["linguistic.score", task] == pytest.approx(share)
    assert found["linguistic.f1", task] == pytest.approx(f1)
    assert regression == pytest.approx(share, abs=0.2)


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_holmes_is_a_probe_of_last_states(kind, tmp_path):
    """Macro F1 by scikit-learn and correlation by scipy of torch's linear layer, for every kind of row."""
    folder = save(kind, tmp_path / kind)
    if kind == "bert":  # whose first weights are too small to tell one text from another
        model = AutoModelForMaskedLM.from_pretrained(folder)
        for weights in model.base_model.parameters():
            weights.data.mul_(8 if weights.ndim > 1 else 1)
        model.save_pretrained(folder)
    expected = {}
    for name in ROWS:
        place = write_data_set(tmp_path / "data" / name.lower(), name, 120)
        vary(place)
        expected["holmes.dataset", name.lower()] = holmes_score(folder, LONGEST, place, name, 2)
    place = write_data_set(tmp_path / "data/flesch", "SENTENCE", 120, numbers=True)
    vary(place, numbers=True)
    expected["holmes.dataset", "flesch"] = holmes_score(folder, LONGEST, place, "SENTENCE", 2, numbers=True)
    found = records_of("holmes", folder, "--data", tmp_path / "data", "--seeds", "2", "--out", tmp_path / "out")
    assert {key: found[key] for key in expected} == pytest.approx(expected, abs=1e-4)
    assert len({round(value, 3) for value in expected.values()}) > 2 and max(expected.values()) < 1
