"""GLUE: tables as the official release has them, metrics against their equations, protocols as the papers print
them."""

import lzma

import datasets
import numpy as np
import pytest

from whatwhere.evaluation.benchmark import bounded, paired
from whatwhere.evaluation.evaluation_keys import GLUE_TASKS
from whatwhere.evaluation.glue import (
    GLUE,
    HUB,
    METRICS,
    RECIPES,
    TASKS,
    GlueConfig,
    fine_tune,
    glue_records,
    read_task,
    task_texts,
)
from whatwhere.evaluation.grid import trials
from whatwhere.evaluation.tuning import halves
from whatwhere.records.record import select
from whatwhere.run.files import write_arrays, write_json
from whatwhere.run.folder import RunFolder
from whatwhere.run.progress import ignore_progress

# Header and a row of each table as released; CoLA has no header, MRPC's begins with a byte-order mark.
RELEASE = {
    "cola": (None, "gj04\t1\t\tThey made him angry ."),
    "sst-2": ("sentence\tlabel", 'a "fine" film\t1'),
    "mrpc": ("\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t7\t8\tHe said "yes .\tYes , he said .'),
    "sts-b": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\tnews\tf\t2012\t1\tx\ty\tA plane .\tAn aeroplane .\t4.250",
    ),
    "qqp": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t2\t3\tWhat ?\tHow ?\t0"),
    "mnli": (
        "index\tpromptID\tpairID\tgenre\ts1_bp\ts2_bp\ts1_p\ts2_p\tsentence1\tsentence2\tlabel1\tgold_label",
        "0\t1\t2\tfiction\tx\tx\tx\tx\tIt rains .\tIt is wet .\tneutral\tentailment",
    ),
    "qnli": ("index\tquestion\tsentence\tlabel", "0\tWho ?\tShe did .\tentailment"),
    "rte": ("index\tsentence1\tsentence2\tlabel", "0\tIt rains .\tIt is wet .\tnot_entailment"),
    "wnli": ("index\tsentence1\tsentence2\tlabel", "0\tIt rains .\tIt is wet .\t1"),
}


def release(folder, name, *rows, split="train", pack=False):
    """A folder with one table of a task."""
    header, row = RELEASE[name]
    text = "".join(f"{line}\n" for line in ([header] if header else []) + list(rows or [row]))
    path = folder / TASKS[name].folder / f"{split}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    if pack:
        path.with_suffix(".tsv.xz").write_bytes(lzma.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
def test_every_table_is_read_as_it_was_released(tmp_path, pack):
    found = {name: read_task(TASKS[name], release(tmp_path, name, pack=pack), "train") for name in TASKS}
    assert set(RELEASE) == set(TASKS) and set(GLUE_TASKS) == set(TASKS) - {"wnli"}
    assert found["cola"].texts == ["They made him angry ."] and found["cola"].labels == ["1"]
    assert found["sst-2"].texts == ['a "fine" film'] and found["sst-2"].pairs is None
    assert found["mrpc"].texts == ['He said "yes .'] and found["mrpc"].pairs == ["Yes , he said ."]
    assert found["mrpc"].labels == ["1"] and found["sts-b"].labels == ["4.250"]
    assert (found["mnli"].texts, found["mnli"].labels) == (["It rains ."], ["entailment"])
    assert found["qnli"].texts == ["Who ?"] and found["rte"].labels == ["not_entailment"]


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("rte", ["0\tIt rains .\t \tnot_entailment"], "line 2: an empty text"),
        ("rte", ["0\tIt rains ."], "line 2: 2 columns, where 4 are needed"),
        ("rte", ["0\ta\tb\t"], "line 2: no label"),
        ("sts-b", ["0\tn\tf\t2012\t1\tx\ty\tA .\tB .\t5.5"], "the score 5.5 is out of range, from 0 to 5"),
        ("sts-b", ["0\tn\tf\t2012\t1\tx\ty\tA .\tB .\tmuch"], "the score 'much' is no number"),
    ],
)
def test_a_broken_row_is_named(tmp_path, name, rows, said):
    with pytest.raises(ValueError, match=said) as caught:
        read_task(TASKS[name], release(tmp_path, name, *rows), "train")
    assert "\n" not in str(caught.value)


def test_a_limit_takes_rows_of_the_whole_table(tmp_path):
    """A limit takes rows of the whole table and QQP's gaps are left out."""
    rows = [f"{i}\ta{i}\tb{i}\t{i % 2}" for i in range(9)]
    few = read_task(TASKS["rte"], release(tmp_path, "rte", *rows), "train", 3)  # CoLA and STS-B are sorted by source
    assert (few.texts, few.pairs, few.labels) == (["a0", "a4", "a8"], ["b0", "b4", "b8"], ["0", "0", "0"])
    rows = ["1\t2\t3\tWhat ?\tHow ?\t0", "1\t2\t3\tWhat ?\t\t1", "1\t2\tWho ?"]  # as the release has some
    assert read_task(TASKS["qqp"], release(tmp_path, "qqp", *rows), "train").texts == ["What ?"]


def test_strange_labels_and_few_rows_are_refused(tmp_path):
    """A strange label and too few development rows are refused."""
    rows = [f"{i}\ta\tb\t{'not_' * (i % 2)}entailment" for i in range(6)]
    release(tmp_path, "rte", *rows[:3], split="dev")
    with pytest.raises(ValueError, match="rte has 3 rows in dev, 4 are needed for two halves"):
        task_texts(TASKS["rte"], release(tmp_path, "rte", *rows))
    release(tmp_path, "rte", *rows, split="dev")
    with pytest.raises(ValueError, match="rte has 2 labels, its training rows 3: entailment, maybe, not_entailment"):
        task_texts(TASKS["rte"], release(tmp_path, "rte", *rows, "7\ta\tb\tmaybe"))


def test_missing_files_of_glue_are_named(tmp_path, monkeypatch):
    """A missing file or column, and a Hub without a network, are named with the way out."""
    with pytest.raises(ValueError, match=r"RTE has no dev.tsv \(nor .xz, .gz, .zst\). Bring GLUE's release there"):
        task_texts(TASKS["rte"], release(tmp_path, "rte", "0\ta\tb\t0", "1\tc\td\t1"))
    (tmp_path / "RTE/dev.tsv").write_text("index\tsentence1\tlabel\n0\ta\t1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no column 'sentence2'. Its columns: index, sentence1, label"):
        read_task(TASKS["rte"], tmp_path, "dev")

    def refuse(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr("datasets.load_dataset", refuse)
    with pytest.raises(ValueError, match=r"no route to host.*bring the file RTE/train.tsv .*--data FOLDER"):
        read_task(TASKS["rte"], None, "train")


# Columns of texts of each task on the Hub, and its classes in the order of their numbers; STS-B has scores.
ON_THE_HUB = {
    "cola": (["sentence"], ["unacceptable", "acceptable"]),
    "sst-2": (["sentence"], ["negative", "positive"]),
    "mrpc": (["sentence1", "sentence2"], ["not_equivalent", "equivalent"]),
    "sts-b": (["sentence1", "sentence2"], None),
    "qqp": (["question1", "question2"], ["not_duplicate", "duplicate"]),
    "mnli": (["premise", "hypothesis"], ["entailment", "neutral", "contradiction"]),
    "qnli": (["question", "sentence"], ["entailment", "not_entailment"]),
    "rte": (["sentence1", "sentence2"], ["entailment", "not_entailment"]),
    "wnli": (["sentence1", "sentence2"], ["not_entailment", "entailment"]),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_hub_gives_the_same_rows(name, tmp_path, monkeypatch):
    # The Hub numbers MNLI's classes in another order than that of the words: heads were others, and so were labels.
    task = TASKS[name]
    (columns, classes) = ON_THE_HUB[name]
    right = range(len(classes)) if classes else [4.25, 0.2, 5.0]
    kind = datasets.ClassLabel(names=classes) if classes else datasets.Value("float32")
    features = datasets.Features({**dict.fromkeys(columns, datasets.Value("string")), "label": kind})
    header, row = RELEASE[name]
    heads = (header or "").lstrip("\ufeff").split("\t")
    places = [each if isinstance(each, int) else heads.index(each) for each in (*task.texts, task.label)]
    on_hub = []
    released = []
    for number in right:
        texts = [f"{column} of {number}" for column in columns]
        fields = row.split("\t")
        on_hub.append({**dict(zip(columns, texts, strict=True)), "label": number})
        label = classes[number] if classes and name in ("mnli", "qnli", "rte") else str(number)
        for place, value in zip(places, [*texts, label], strict=True):
            fields[place] = value
        released.append("\t".join(fields))
    asked = []
    split = task.splits[-1]

    def load(*what, split):
        asked.append((*what, split))
        return datasets.Dataset.from_list(on_hub, features=features)

    monkeypatch.setattr("datasets.load_dataset", load)
    theirs = read_task(task, None, split)
    mine = read_task(task, release(tmp_path, name, *released, split=split), split)
    assert (theirs.texts, theirs.pairs) == (mine.texts, mine.pairs) and len(mine.texts) == len(right)
    as_read = np.float32 if task.regression else str
    assert list(map(as_read, theirs.labels)) == list(map(as_read, mine.labels))
    assert asked == [(HUB, task.hub, "validation_mismatched" if name == "mnli" else "validation")]


def test_glue_metrics_equal_their_equations():
    rng = np.random.default_rng(0)
    right = rng.integers(2, size=200)
    said = rng.integers(2, size=200)
    tp = np.sum((said == 1) & (right == 1))
    tn = np.sum((said == 0) & (right == 0))
    fp = np.sum((said == 1) & (right == 0))
    fn = np.sum((said == 0) & (right == 1))
    assert METRICS["accuracy"](said, right) == pytest.approx((tp + tn) / 200)
    assert METRICS["f1"](said, right) == pytest.approx(2 * tp / (2 * tp + fp + fn))
    root = np.sqrt(float((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))
    assert METRICS["matthews"](said, right) == pytest.approx((tp * tn - fp * fn) / root)
    x = rng.normal(size=50)
    y = rng.normal(size=50)
    assert METRICS["pearson"](x, y) == pytest.approx(np.corrcoef(x, y)[0, 1])
    ranks = [np.argsort(np.argsort(v)) for v in (x, y)]
    assert METRICS["spearman"](x, y) == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert METRICS["pearson"](np.ones(50), y) == METRICS["spearman"](np.ones(50), y) == 0.0  # not nan
    assert METRICS["f1"](np.zeros(50), np.ones(50)) == METRICS["matthews"](np.zeros(200), right) == 0.0


def test_protocols_are_those_printed():
    dstg = RECIPES["dstg"]
    tupe = RECIPES["tupe"]
    assert len(dstg.settings) == 18 and {s.learning_rate for s in dstg.settings} == {6e-6, 5e-6, 2e-5}
    assert {s.batch_size for s in dstg.settings} == {4, 16, 32} and {s.weight_decay for s in dstg.settings} == {
        1e-2,
        1e-5,
    }
    assert (dstg.epochs, dstg.patience) == (10, 15)
    assert [dstg.every(steps) for steps in (5, 155, 4999, 50_000)] == [1, 15, 499, 500]
    assert [s.learning_rate for s in tupe.settings] == [2e-5, 3e-5, 4e-5, 5e-5]
    assert (tupe.seeds, tupe.warmup, {s.batch_size for s in tupe.settings}) == (5, 0.06, {32})


def test_halves_are_equal_for_all_and_disjoint():
    """Halves are the same for all and share no row."""
    one, two = halves(277)
    assert sorted([*one, *two]) == list(range(277)) and abs(len(one) - len(two)) == 1
    assert all(np.array_equal(a, b) for a, b in zip(halves(277), (one, two), strict=True))


def test_tupe_median_is_of_best_scores_per_seed(tmp_path):
    """The median of TUPE is that of the seeds best scores at the best rate."""
    rng = np.random.default_rng(0)
    out = tmp_path
    config = GlueConfig.parse({"models": ["reference"], "tasks": ["cola"], "recipe": "tupe"})
    labels = rng.integers(2, size=40)
    best = {setting.name: [] for setting in config.settings}
    for trial in trials(config):
        said = np.where(rng.random((3, 40)) < 0.3, 1 - labels, labels)  # three evaluations
        of_rows = [
            [METRICS["matthews"](each[rows], labels[rows]) for rows in (*halves(40), slice(None))] for each in said
        ]
        best[trial.setting.name].append(max(scores[2] for scores in of_rows))
        predicted = said[np.argmax(of_rows, axis=0)]
        write_arrays(trial.file(out, ".npz"), {"predicted": predicted, "labels.dev": labels})
        write_json(trial.file(out), {"scores": of_rows})
    (found,) = select(glue_records(config, out), metric="glue.median")
    assert [len(scores) for scores in best.values()] == [5] * 4 and (found.part, found.seed, found.n) == (
        "cola",
        None,
        5,
    )
    assert found.value == max(np.median(scores) for scores in best.values())
    single = select(glue_records(config, out), metric="glue.best")
    assert found.value != np.median([r.value for r in single])  # of each seed's own best rate


def test_given_rates_replace_the_recipes():
    """Rates that are given stand in place of the recipe s."""

    def grid(**given):
        return GlueConfig.parse({"models": ["reference"], "tasks": ["rte"], **given})

    assert grid(recipe="dstg").settings == RECIPES["dstg"].settings
    assert [s.learning_rate for s in grid(rates=["1e-4", "0.001"]).settings] == [1e-4, 1e-3]
    of_dstg = grid(recipe="dstg", rates=[1e-3])
    assert len(of_dstg.settings) == len({s.name for s in of_dstg.settings}) == 6  # batch sizes and decays, once each
    assert {s.learning_rate for s in of_dstg.settings} == {1e-3}
    assert of_dstg.protocol() == "the recipe `dstg` at rates 0.001 × 768 / width: 6 settings"
    assert len(trials(grid(rates=[1e-4, 1e-3], seeds=2))) == 4
    for wrong in (0.0, -1e-4, "fast"):
        with pytest.raises(ValueError, match="rates"):
            grid(rates=[wrong])


def test_the_interval_of_a_difference_is_over_seeds_too():
    # Rows alone made a difference of three fine-tunings separable whose signs parted by seed.
    right = np.ones(40)
    all_right = np.ones(40)
    all_wrong = np.zeros(40)
    pairs = [(all_right, all_wrong), (all_wrong, all_right), (all_right, all_right)]
    assert bounded(paired(METRICS["accuracy"], pairs[:1], right)) == (1.0, 1.0, 1.0)
    middle, low, high = bounded(paired(METRICS["accuracy"], pairs, right))
    assert middle == 0 and low == pytest.approx(-1) and high == pytest.approx(1)


def test_a_regression_predicts_scores_and_not_their_mean_alone(tmp_path):
    # From raw scores a head at 0 learned little but their mean, which bfloat16 rounds to 1/64: one value for all rows.
    rng = np.random.default_rng(0)
    words = ["river", "water", "music", "song", "band", "lake"]
    for split, n in (("train", 40), ("dev", 40)):
        texts = [" ".join(rng.choice(words, 4)) for _ in range(n)]
        rows = (f"{i}" + "\tx" * 6 + f"\t{t}\t{t}\t{2 + i % 4}" for i, t in enumerate(texts))
        release(tmp_path / "glue", "sts-b", *rows, split=split)
    out = tmp_path / "o"
    out.mkdir()
    config = GlueConfig.parse({"models": ["reference"], "tasks": ["sts-b"], "data": str(tmp_path), "rates": [2e-5]})
    config.save_in(RunFolder.at(out), GLUE.file)
    (trial, *_) = trials(config)
    fine_tune(str(out), trial, ignore_progress)
    said = trial.arrays(out)
    assert said["labels.dev"].tolist() == [2 + i % 4 for i in range(40)]
    assert len(np.unique(said["predicted"][2])) > 20 and abs(said["predicted"][2].mean() - 3.5) < 0.5
