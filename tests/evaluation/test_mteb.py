"""MTEB: local tasks read their files as released, mteb's scores are those of scipy and scikit-learn on vectors made one
by one, what is finished stays, and SimCSE stands beside the model it began with."""

import json
import shutil
import sys

import datasets
import numpy as np
import pytest
import torch
from cli_runner import sentences, whatwhere
from foreign_models import KINDS, save, sentence_model
from made_tasks import put, write_vectors
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from transformers import AutoModel

import whatwhere as ww
from whatwhere.cli.key_options import names_in
from whatwhere.corpus import build_windows, load_tokenizer, open_source
from whatwhere.evaluation.local_tasks import LOCAL, local_task
from whatwhere.evaluation.mteb import MTEB, MtebConfig, poolings, rank_correlation, run_task, text_encoder, trials
from whatwhere.models.open import open_model
from whatwhere.records.record import read_records, select
from whatwhere.run.folder import RunFolder
from whatwhere.run.progress import ignore_progress
from whatwhere.study import evaluation_run as evaluate
from whatwhere.study.evaluation_run import evaluation_text, run_evaluation

TEXTS = ["The river is long .", "A", "The album was released in 1998 , and it was the first of the band .", ""]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_vectors(tmp_path_factory.mktemp("data"))


def rows(name, data):
    return LOCAL[name].read(LOCAL[name].paths(data))


def test_every_file_is_read_as_it_was_released(data):
    years = [rows(f"STS{year}-local", data)["test"] for year in range(12, 17)]
    whole = rows("STSBenchmark-local", data)["test"]
    assert len(whole["score"]) == 60 and [len(y["score"]) for y in years] == [12] * 5
    assert sorted(text for year in years for text in year["sentence1"]) == sorted(whole["sentence1"])
    assert rows("SICK-R-local", data)["test"]["score"] == [s for i, s in enumerate(whole["score"]) if i % 4 > 1]
    banking = rows("Banking77-local", data)
    assert banking["train"]["text"][0].endswith(', "so"') and banking["test"]["label"][:4] == [2, 0, 1, 2]
    assert rows("MR-local", data)["train"]["label"][:3] == [0, 1, 0]
    assert rows("TwentyNewsgroups-local", data)["test"]["labels"][:3] == ["a", "b", "c"]
    cranfield = rows("Cranfield-local", data)
    assert cranfield["corpus"] == {"id": ["1", "2", "3"], "text": ["river water .\n lake .", "", "music song ."]}
    assert cranfield["queries"] == {"id": ["1", "2"], "text": ["what water\nis there .", "what song ."]}
    assert cranfield["relevant"] == {"1": {"1": 1}, "2": {"3": 1}}  # the queries' places, and code -1 is not relevant


@pytest.mark.parametrize(
    ("name", "file", "text", "said"),
    [
        ("STSBenchmark-local", "glue/STS-B/sts-test-labelled.tsv", None, "Bring it from the original STS-B release"),
        (
            "STSBenchmark-local",
            "glue/STS-B/sts-test-labelled.tsv",
            "g\tf\ty\t1\tmuch\ta\tb\n",
            "score 'much' is no num",
        ),
        ("STSBenchmark-local", "glue/STS-B/sts-test-labelled.tsv", "g\tf\ty\t1\t6\ta\tb\n", "6 is out of range"),
        (
            "STSBenchmark-local",
            "glue/STS-B/sts-test-labelled.tsv",
            "g\tf\ty\t1\t2\ta\t \n",
            "line 1: an empty sentence",
        ),
        ("SICK-R-local", "sts/SICK.tsv", "split\tsentence_A\n", "no column 'relatedness_score'"),
        ("SICK-R-local", "sts/SICK.tsv", "split\tsentence_A\tsentence_B\trelatedness_score\n", "has 0 pairs of test"),
        ("MR-local", "sentence-classification/MR/dev.tsv", "2\ta film\n", "label '2' does not occur in train.tsv"),
        ("MR-local", "sentence-classification/MR/dev.tsv", "\ta film\n", "line 1: no label"),
        ("TwentyNewsgroups-local", "clustering/20newsgroups.jsonl", '{"group": "a"}\n', "no text in 'subject'"),
        (
            "Cranfield-local",
            "retrieval/cranfield/cranqrel",
            "1 9 2\n",
            "no query 1 in cran.qry, or no document 9",
        ),
        ("Cranfield-local", "retrieval/cranfield/cranqrel", "1 one 2 3\n", "query, document and code are wanted"),
        ("Cranfield-local", "retrieval/cranfield/cran.qry", "what .\n", "text before an entry"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(data, tmp_path, name, file, text, said):
    for each in LOCAL[name].files:
        if each != file:
            put(tmp_path / each, (data / each).read_text() if (data / each).is_file() else "")
    if text is not None:
        put(tmp_path / file, text)
    with pytest.raises(ValueError, match=said) as caught:
        rows(name, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.whole
def test_a_limit_takes_rows_from_everywhere(data):
    few = local_task("STSBenchmark-local", data, 20).dataset["test"]
    whole = rows("STSBenchmark-local", data)["test"]
    assert few["score"][0] == whole["score"][0] and few["score"][19] == whole["score"][59] and len(few) == 20
    assert len(local_task("MR-local", data, 20).dataset["train"]) == 80  # mteb draws of these itself


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return str(save("bert", tmp_path_factory.mktemp("foreign") / "bert"))


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["ours", *KINDS])
def test_vectors_are_those_of_one_text_at_a_time(kind, tmp_path):
    source = ww.reference() if kind == "ours" else str(save(kind, tmp_path / kind))
    tokenizer = load_tokenizer(source)
    theirs = AutoModel.from_pretrained(source, dtype=torch.float32).eval()
    opened = open_model(source)
    columns = {"mean": slice(None), "cls": slice(None)}
    columns |= {"semantic": slice(8, None), "position": slice(8)} if kind == "ours" else {}
    for pooling, of in columns.items():
        expected = []
        for text in TEXTS:
            ids = tokenizer(text)["input_ids"]
            ids = ids if len(ids) <= 12 else [*ids[:11], tokenizer.sep_token_id]
            with torch.no_grad():
                output = theirs(torch.tensor([ids]), output_hidden_states=True)
            # Of the position stream nothing trains what the last block adds.
            hidden = (output.hidden_states[-2] if pooling == "position" else output.last_hidden_state)[0]
            expected.append((hidden[0] if pooling == "cls" else hidden.mean(0))[of].numpy())
        for texts in (1, 3, 100):  # one, a few, all of a batch: padding changes nothing
            found = text_encoder(opened, pooling, 12).encode(TEXTS, batch_size=texts)
            np.testing.assert_allclose(found, np.array(expected), atol=2e-5)


def test_ranks_correlate_as_spearmans_do():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a = rng.integers(12, size=50)
        b = rng.integers(30, size=50)
        drawn = rng.integers(50, size=50)
        for x, y in ((a, b), (a[drawn], b[drawn])):
            assert rank_correlation(x, y) == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert rank_correlation(np.zeros(5, int), np.arange(5)) == 0.0  # not nan


def config(data, **more):
    tasks = ["STSBenchmark-local", "Banking77-local", "Cranfield-local", "TwentyNewsgroups-local"]
    return MtebConfig.parse({"models": ["reference"], "tasks": tasks, "data": str(data), **more})


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """One run of four kinds of tasks, and what it printed."""
    out = tmp_path_factory.mktemp("runs") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "parallel_jobs", lambda: 1)
        found = run_evaluation(MTEB, config(data), out, progress=False)
    return out, evaluation_text(MTEB, found)


def vectors(texts):
    return text_encoder(open_model("reference"), "mean", 128).encode(list(texts))


def cosines(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


@pytest.mark.whole
def test_scores_are_those_of_scipy_and_scikit_learn(data, run):
    of = {r.part: r for r in read_records(run[0] / "records.parquet") if r.metric == "mteb.score"}
    pairs = rows("STSBenchmark-local", data)["test"]
    near = cosines(vectors(pairs["sentence1"]), vectors(pairs["sentence2"]))
    assert of["STSBenchmark-local"].value == pytest.approx(spearmanr(near, pairs["score"]).statistic, abs=1e-5)
    assert of["STSBenchmark-local"].n == 60 and of["STSBenchmark-local"].low < of["STSBenchmark-local"].value
    # mteb: ten shuffles, each of the one before, by a generator that begins anew; the first eight of each class.
    texts = rows("Banking77-local", data)
    train, test = (np.array(texts[split]["label"]) for split in ("train", "test"))
    x = vectors(texts["train"]["text"])
    y = vectors(texts["test"]["text"])
    order = list(range(30))
    right = []
    for _ in range(10):
        np.random.RandomState(42).shuffle(order)
        few = [i for at, i in enumerate(order) if sum(train[j] == train[i] for j in order[:at]) < 8]
        model = LogisticRegression(max_iter=100, random_state=42).fit(x[few], train[few])
        right.append((model.predict(y) == test).mean())
    assert of["Banking77-local"].value == pytest.approx(np.mean(right), abs=1e-5) and of["Banking77-local"].n == 12
    found = rows("Cranfield-local", data)
    documents = vectors(found["corpus"]["text"])
    gains = []
    for name, text in zip(*found["queries"].values(), strict=True):
        ranked = np.argsort(-cosines(vectors([text])[0], documents))
        place = [found["corpus"]["id"][i] for i in ranked].index(next(iter(found["relevant"][name])))
        gains.append(1 / np.log2(place + 2))
    assert of["Cranfield-local"].value == pytest.approx(np.mean(gains), abs=1e-4) and of["Cranfield-local"].n == 2
    clusters = of["TwentyNewsgroups-local"]
    assert 0 <= clusters.value <= 1 and clusters.n is None and clusters.low is None  # no interval is honest there


@pytest.mark.whole
def test_results_are_in_mtebs_own_format(run):
    import mteb  # seconds: as `sentence_model`

    out, printed = run
    result = mteb.TaskResult.from_disk(out / "runs/reference/STSBenchmark-local/mean.json")
    records = read_records(out / "records.parquet")
    (record,) = select(records, metric="mteb.score", part="STSBenchmark-local")
    assert result.get_score() == record.value and result.dataset_revision.startswith("sha256:")
    assert {r.part for r in select(records, metric="mteb.type")} == {
        "STS",
        "Classification",
        "Retrieval",
        "Clustering",
    }
    assert "STSBenchmark-local" in printed and "report.html" in printed
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Score of text vectors by task and model" in page and "not mteb" in page


@pytest.mark.long
def test_finished_work_stays_when_more_is_added(data, run, bert, tmp_path, monkeypatch):
    """What is finished stays and poolings models and SimCSE are added."""
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    monkeypatch.setattr("whatwhere.training.contrastive.LENGTH", 8)
    put(tmp_path / "text.txt", sentences(60))
    kept = run[0] / "runs/reference/STSBenchmark-local/mean.json"
    before = kept.stat().st_mtime_ns, (run[0] / "mteb.yaml").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="was started with steps=250, this command has steps=3"):
        run_evaluation(MTEB, config(data, steps=3), run[0], progress=False)
    out = tmp_path / "out"
    more = {"tasks": ["STSBenchmark-local"], "corpus": str(tmp_path / "text.txt"), "steps": 2, "untrained": True}
    run_evaluation(MTEB, config(data, **more), out, progress=False)
    first = (out / "runs/reference/STSBenchmark-local/mean.json").stat().st_mtime_ns
    more |= {"models": ["reference", bert], "pooling": ["semantic", "mean"], "contrastive": True, "seeds": 2}
    found = run_evaluation(MTEB, config(data, **more), out, progress=False)
    assert (out / "runs/reference/STSBenchmark-local/mean.json").stat().st_mtime_ns == first
    assert before == (kept.stat().st_mtime_ns, (run[0] / "mteb.yaml").read_text(encoding="utf-8"))
    records = read_records(out / "records.parquet")
    models = {"reference", "bert", "reference+simcse", "bert+simcse"}
    assert {(r.model, r.step) for r in select(records, metric="mteb.score")} == {
        (m, s) for m in models for s in (0, None)
    }
    assert {r.model for r in select(records, metric="mteb.score.semantic")} == {"reference", "reference+simcse"}
    beside = select(records, metric="mteb.difference", model="reference+simcse", step=None)[0]
    scores = {(r.model, r.seed): r.value for r in select(records, metric="mteb.score", step=None)}
    tuned = [scores["reference+simcse", seed] for seed in (0, 1)]  # both begin with the model and part at chance
    assert beside.value == pytest.approx(np.mean(tuned) - scores["reference", None], abs=1e-5) and len(scores) == 6
    assert beside.low <= beside.value <= beside.high and len({*tuned, scores["reference", None]}) == 3
    printed = evaluation_text(MTEB, found)
    assert "reference+simcse, semantic, untrained" in printed
    facts = json.loads((out / "models/reference+simcse/seed-0/training.json").read_text(encoding="utf-8"))
    assert facts["dropout_switched_on"] == ["dropout"] and facts["pooling"] == "mean"  # what the folder began with
    assert AutoModel.from_pretrained(out / "models/reference+simcse/seed-0").config.dropout == 0.0
    model = sentence_model(out / "models/bert+simcse/seed-0")
    assert model.encode(["ba lo ti"]).shape == (1, 16)
    notes = json.loads((out / "study.json").read_text(encoding="utf-8"))["notes"]
    assert any("bert has one stream, so it has no vectors pooled as semantic" in note for note in notes)


def test_simcse_is_done_before_what_needs_it(data):
    todo = trials(config(data, contrastive=True, untrained=True, pooling=["cls", "mean"]))
    assert [(p.task, p.stage) for p in todo[:3]] == [("simcse", 0), ("simcse", 0), ("STSBenchmark-local", 1)]
    parts = list(evaluate._plan_rounds(todo, None, 1))
    assert [len(part) for part in parts] == [2, 4 * 4 * 2] and {p.stage for p in parts[0]} == {0}
    assert poolings(config(data, pooling=["position"]), "reference") == ["position"]


def test_a_folder_keeps_the_trainings_that_it_has(data):
    """A later call without --contrastive left what is after SimCSE out of the records."""
    began = config(data, contrastive=True, seeds=3)
    kept = config(data, pooling=["cls"]).add_saved_entries(began)
    assert (kept.contrastive, kept.seeds, kept.pooling) == (True, 3, ["mean", "cls"])
    assert config(data, contrastive=True, seeds=4).add_saved_entries(began).seeds == 4


@pytest.mark.whole
def test_mtebs_own_tasks_run_by_name(data, tmp_path, monkeypatch):
    import mteb

    pairs = datasets.Dataset.from_dict(rows("STSBenchmark-local", data)["test"])
    asked = []
    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda path, revision: asked.append(path))
    monkeypatch.setattr(mteb.abstasks.abstask, "load_dataset", lambda **_: datasets.DatasetDict({"test": pairs}))
    found = MtebConfig.parse({"models": ["reference"], "tasks": ["STSBenchmark"]})
    run_evaluation(MTEB, found, tmp_path / "out", progress=False)
    (record,) = select(read_records(tmp_path / "out/records.parquet"), metric="mteb.score")
    near = cosines(*(vectors(pairs[name]) for name in ("sentence1", "sentence2")))
    assert record.part == "STSBenchmark" and asked == ["mteb/stsbenchmark-sts"]
    assert record.value == pytest.approx(spearmanr(near, pairs["score"]).statistic, abs=1e-5) and record.n == 60


def test_simcse_reads_the_models_training_windows(data, bert, tmp_path, monkeypatch):
    """SimCSE reads the training windows of the models own run or else Python docs."""
    put(tmp_path / "docs.txt", sentences(60, seed=1))
    put(tmp_path / "text.txt", sentences(60))
    monkeypatch.setattr("whatwhere.evaluation.mteb.PythonDocs", lambda files: open_source(tmp_path / "docs.txt"))
    windows = tmp_path / "study/corpus"
    text = open_source(tmp_path / "text.txt")
    build_windows(text, load_tokenizer(bert), windows, length=32, progress=False)
    inside = tmp_path / "study/models/inside/seed-0"
    outside = tmp_path / "outside"
    for folder in (inside, outside):
        shutil.copytree(bert, folder)

    def tuned(out, *models, corpus=None):
        more = {"models": list(map(str, models)), "contrastive": True, "steps": 1, "corpus": corpus and str(corpus)}
        (tmp_path / out).mkdir()
        config(data, **more).save_in(RunFolder.at(tmp_path / out), MTEB.file)
        for trial in trials(config(data, **more))[: len(models)]:  # SimCSE comes first
            run_task(str(tmp_path / out), trial, ignore_progress)
        return [path.read_bytes() for path in sorted((tmp_path / out).glob("models/*/*/model.safetensors"))]

    of_run, of_docs = tuned("unsaid", inside, outside)
    assert [of_run] == tuned("windows", outside, corpus=windows)
    assert [of_docs] == tuned("docs", inside, corpus=tmp_path / "docs.txt") and of_docs != of_run


def test_a_benchmark_is_its_tasks(monkeypatch):
    for place in (torch, torch.cuda):  # mteb seeds them for each of its 2,000 tasks, with the stack of each call
        monkeypatch.setattr(place, "manual_seed" if place is torch else "manual_seed_all", lambda seed: None)
    assert MtebConfig.parse({"models": ["reference"]}).tasks == ["MTEB(eng, v2)"]
    assert MtebConfig.parse({"models": ["reference"], "data": "."}).tasks == list(LOCAL)
    todo = trials(MtebConfig.parse({"models": ["reference"]}))
    assert len(todo) == 41 and "ArguAna" in {trial.task for trial in todo}
    assert names_in("MTEB(eng, v2), STS12-local,MR-local") == ["MTEB(eng, v2)", "STS12-local", "MR-local"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "STS12-lokal"], "No task or benchmark 'STS12-lokal'. Did you mean STS12-local?"),
        (["--tasks", "STSBenchmrk"], "Did you mean STSBenchmark"),
        (["--tasks", "STSB-local"], "No task or benchmark 'STSB-local'. Did you mean STSBenchmark-local?"),
        (["--tasks", "STS12-local"], "STS12-local is read from files: give their folder, --data FOLDER"),
        (
            ["--tasks", "STS12"],
            "STS12 cannot be fetched from the Hub (no route to host). Where there is no network, bring the Hub's cache "
            "(HF_HOME) with it, or take local tasks: --tasks NAME-local --data FOLDER.\n",
        ),
        (["--tasks", "STS12", "--limit", "20"], "limit is of local tasks, mteb's own are whole; tasks has STS12"),
        (["--tasks", "CIFAR10"], "CIFAR10 is of image; these encoders read text alone"),
        (["--tasks", "MR-local", "--data", "."], "needs sentence-classification/MR/train.tsv"),
        (["--tasks", "MR-local", "--data", "nowhere"], "there is no such folder"),
        (["--seeds", "2"], "seeds are of SimCSE, all else has none; got 2. Add --contrastive"),
        (["--pooling", "max"], "no pooling 'max'. Known: mean, cls, semantic, position.\n"),
        (["--data", "DATA", "--tasks", "MR-local", "--contrastive", "--corpus", "no.txt"], "no.txt"),
    ],
)
def test_wrong_input_is_one_line(words, said, data, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(datasets, "get_dataset_config_names", refuse)
    words = [str(data) if word == "DATA" else word for word in words]
    done = whatwhere("evaluate", "mteb", "reference", *words, "--out", str(tmp_path / "o"))
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "o").exists()


def test_one_stream_alone_is_refused_what_needs_two(data, bert, tmp_path):
    words = ["--data", str(data), "--tasks", "MR-local", "--pooling", "mean,position", "--out", str(tmp_path / "o")]
    done = whatwhere("evaluate", "mteb", bert, *words)
    assert done.returncode == 2 and "No model here has two streams, which the pooling 'position' needs" in done.stderr


def test_without_mteb_it_says_how_to_get_it(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    done = whatwhere("evaluate", "mteb", "reference", "--data", str(data), "--out", str(tmp_path / "o"))
    assert done.returncode == 2 and done.stderr.strip().endswith("not installed: pip install 'whatwhere[mteb]'.")
    assert not (tmp_path / "o").exists()


def test_the_verb_prints_scores_of_each_pooling(data, tmp_path):
    words = ["--data", str(data), "--tasks", "STS12-local", "--pooling", "cls", "--limit", "20"]
    done = whatwhere("evaluate", "mteb", "reference", *words, "--out", str(tmp_path / "o"))
    assert done.returncode == 0 and "reference, cls" in done.stdout and "STS12-local" in done.stdout, done.stderr
    again = json.loads(
        whatwhere("evaluate", "mteb", "reference", *words, "--out", str(tmp_path / "o"), "--json").stdout
    )
    assert {r["metric"] for r in again["records"]} == {"mteb.score.cls", "mteb.type.cls"}
