"""Every verb that takes a model, on trained encoders that are not ours: its values beside sentence-transformers,
transformers, NumPy, scikit-learn and loops."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from cli_runner import sentences, whatwhere
from foreign_models import TEXTS
from made_tasks import put, write_every_task, write_holmes
from plain_probes import holmes_score, linguistic_scores, vary
from plain_tunings import RATE, SHORT, SHORT_SQUAD, answered, classified, judged, squad_values
from safetensors.numpy import load_file
from scipy.stats import spearmanr
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, r2_score
from transformers import AutoModel, AutoTokenizer

import whatwhere as ww
from whatwhere.analysis.matrices import condition_records, scores_of_model
from whatwhere.analysis.passes import choose_windows
from whatwhere.analysis.probes import probe_records
from whatwhere.analysis.record_context import RecordContext
from whatwhere.analysis.texts import text_maps
from whatwhere.evaluation.word_states import Slot, slot_states
from whatwhere.models.open import open_model
from whatwhere.records.record import select
from whatwhere.study.model_windows import model_windows

pytestmark = pytest.mark.network

LINES = [
    "A man is playing a guitar.",
    "The senator denied that she had voted against the bill, although the record says otherwise.",
    "Photosynthesis turns light into sugar " + "and the leaves of the tree take part in it " * 12,
    "ÉCLAIR, naïve café – 日本語 and emoji 🙂",
]
WHO = RecordContext("encoder")


TABLE = "embeddings.position_embeddings.weight"


@dataclass(frozen=True)
class Names:
    """What the two architectures call their maps, and the row of the table that [CLS] has."""

    query: str
    key: str
    first: int


BERT = Names("encoder.layer.{}.attention.self.query.weight", "encoder.layer.{}.attention.self.key.weight", 0)
MPNET = Names("encoder.layer.{}.attention.attn.q.weight", "encoder.layer.{}.attention.attn.k.weight", 2)


@pytest.fixture(scope="module")
def names(encoder):
    return MPNET if "mpnet" in encoder.name else BERT


def done(*arguments):
    result = whatwhere(*map(str, arguments), "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def theirs(encoder):
    """Tokenizer and model as transformers opens them, with attention that gives its weights."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer, AutoModel.from_pretrained(encoder, attn_implementation="eager").eval()


def states(theirs, text):
    """Hidden states (layers + 1, n, width) and attentions (layers, heads, n, n) of one text."""
    tokenizer, model = theirs
    with torch.no_grad():
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        out = model(ids, output_hidden_states=True, output_attentions=True)
    return torch.stack(out.hidden_states)[:, 0].numpy(), torch.stack(out.attentions)[:, 0].numpy()


def test_predict_gives_the_vectors_of_sentence_transformers(encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

    expected = SentenceTransformer(str(encoder), device="cpu").encode(LINES, normalize_embeddings=True)
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    done("predict", encoder, "--file", file, "--out", tmp_path / "vectors.npy")
    found = np.load(tmp_path / "vectors.npy")
    found = found / np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_attention_is_that_of_the_model(encoder, theirs, tmp_path):
    """The weights of the page are those of `output_attentions`; `heads` gives their means."""
    tokenizer, model = theirs
    ids = np.array(tokenizer(LINES[1])["input_ids"])
    maps = text_maps(model, ids, [str(i) for i in ids])
    np.testing.assert_allclose(maps.weights["total"], states(theirs, LINES[1])[1], atol=1e-6)
    page = done("attention", encoder, "--text", LINES[1], "--out", tmp_path / "page.html")
    assert page["tokens"] == len(ids)


def test_heads_look_where_loops_say(encoder, theirs, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(sentences(150), encoding="utf-8")
    found = done("heads", encoder, "--corpus", text, "--windows", "10", "--length", "32")
    model = open_model(encoder, attention="eager")
    with model_windows(model.model, model.tokenizer, encoder, str(text), "text", 10, False, 32) as (windows, _):
        windows = choose_windows(windows["held_out"], 10)
    weights = []
    for row in windows.input_ids:
        with torch.no_grad():
            out = theirs[1](torch.from_numpy(row)[None], output_attentions=True)
        weights.append(torch.stack(out.attentions)[:, 0].numpy())
    for layer, head in ((0, 2), (2, 5), (5, 11)):
        expected = []
        for row, of_text in zip(windows.regular, weights, strict=True):
            queries = [q for q in range(1, len(row)) if row[q]]
            expected.append(np.mean([of_text[layer, head, q, q - 1] for q in queries]))
        place = {"metric": "attention.previous", "layer": layer + 1, "head": head}
        (value,) = (r["value"] for r in found["records"] if all(r[key] == v for key, v in place.items()))
        assert value == pytest.approx(np.mean(expected), abs=1e-5)


def test_probes_are_ridge_regressions(encoder, theirs, tmp_path):
    """R² equals scikit-learn's Ridge and r2_score on the same documents, split by split."""
    text = tmp_path / "text.txt"
    text.write_text(sentences(200), encoding="utf-8")
    opened = open_model(encoder)
    with model_windows(opened.model, opened.tokenizer, encoder, str(text), "text", 20, False, 48) as (windows, _):
        held_out = windows["held_out"]
        records = probe_records(opened.model, held_out, WHO, windows=20, splits=2)
        windows = choose_windows(held_out, 20)
    hidden = []
    for row in windows.input_ids:
        with torch.no_grad():
            out = theirs[1](torch.from_numpy(row)[None], output_hidden_states=True)
        hidden.append(torch.stack(out.hidden_states)[:, 0].double().numpy())
    which = windows.which()
    for split, layer in ((0, 0), (1, 3), (0, 6)):
        order = np.random.default_rng(split).permutation(which.max() + 1)
        test = np.isin(which, order[: round(len(order) / 5)])
        x = ([], [])
        y = ([], [])
        for window, of_text in enumerate(hidden):
            rows = windows.regular[window]
            x[int(test[window])].append(of_text[layer][rows])
            y[int(test[window])].append(np.arange(len(rows))[rows] / len(rows))
        (train, held) = map(np.concatenate, x)
        (target, truth) = map(np.concatenate, y)
        expected = r2_score(truth, Ridge(alpha=1.0).fit(train, target).predict(held))
        (found,) = select(records, metric="r2.token", part="all", layer=layer, index=split)
        assert found.value == pytest.approx(expected, abs=1e-3)


def test_spectra_are_those_of_numpy(encoder, names):
    table = load_file(encoder / "model.safetensors")[TABLE].astype(float)[names.first :]
    shares = np.linalg.svd(table - table.mean(0), compute_uv=False) ** 2
    shares /= shares.sum()
    found = {(r["metric"], r["index"]): r["value"] for r in done("spectra", encoder)["records"] if r["part"] is None}
    for k in (2, 3, 5, 10):
        assert found[f"pca.top{k}", None] == pytest.approx(shares[:k].sum(), abs=1e-12)
    assert found["n50.count", None] == np.argmax(np.cumsum(shares) >= 0.5) + 1


def test_geometry_conditions_are_those_of_loops(encoder, theirs, names, tmp_path):
    """H1 and H3 of the third block's fifth head, by the weights as they lie in the file."""
    p = np.random.default_rng(0).dirichlet(np.full(theirs[1].config.vocab_size, 0.01), size=4)
    records = condition_records(scores_of_model(open_model(encoder).model), p, WHO)
    weights = load_file(encoder / "model.safetensors")
    means = p @ weights["embeddings.word_embeddings.weight"].astype(float)
    size = theirs[1].config.hidden_size // 12
    rows = slice(4 * size, 5 * size)
    w_q, w_k = (weights[name.format(2)].astype(float)[rows].T for name in (names.query, names.key))

    def smallest(rows):
        return min(np.linalg.norm(a - b) for i, a in enumerate(rows) for b in rows[:i])

    (h1,) = select(records, metric="h1")
    (h3,) = select(records, metric="h3", layer=2, head=4, part="M")
    assert h1.value == pytest.approx(smallest(means)) and h3.value == pytest.approx(
        smallest([w_q @ w_k.T @ mean for mean in means])
    )
    text = tmp_path / "text.txt"
    text.write_text(sentences(400), encoding="utf-8")
    quick = ("--positions", "12", "--no-intervals", "--no-smacof", "--set", "min_support=20", "--set", "width=64")
    found = done(
        "geometry", "--corpus", text, "--model", encoder, "--table", encoder, "--out", tmp_path / "out", *quick
    )
    assert "(H1)" in found["models"][0]["summary"][0]


def test_an_exported_graph_gives_predicts_vectors(encoder, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    done("export", encoder, "--out", tmp_path / "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx/model.onnx"), providers=["CPUExecutionProvider"])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "onnx")
    for line, expected in zip(LINES, ww.predict(encoder, LINES, what="vectors"), strict=True):
        ids = np.array([tokenizer(line, padding=False, truncation=False)["input_ids"]], np.int64)
        known = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        inputs = {of_graph.name: known[of_graph.name] for of_graph in session.get_inputs()}
        (found,) = session.run(None, inputs)
        cosine = found[0] @ expected / np.linalg.norm(found[0]) / np.linalg.norm(expected)
        assert cosine == pytest.approx(1.0, abs=1e-5)


def test_a_longer_copy_keeps_short_texts_and_continues_rows(encoder, names, tmp_path):
    """By eq. 4 of the notes on SPLIT: row i mod L and ⌊i/L⌋ mean steps, behind the row of [CLS] and those before."""
    done("extrapolate", encoder, "--out", tmp_path / "long", "--length", "1024")
    before, after = (
        load_file(folder / "model.safetensors")[TABLE].astype(float) for folder in (encoder, tmp_path / "long")
    )
    kept = before[: names.first + 1]
    table = before[names.first + 1 :]
    step = (table[-1] - table[0]) / 510
    expected = [*kept, *(table[i % 511] + (i // 511) * step for i in range(1023))]
    np.testing.assert_allclose(after, expected, atol=1e-7)
    copy = AutoModel.from_pretrained(tmp_path / "long").eval()
    original = AutoModel.from_pretrained(encoder).eval()
    ids = torch.from_numpy(np.random.default_rng(0).integers(1000, 30000, (1, 1024)))
    with torch.no_grad():
        assert torch.equal(copy(ids[:, :200]).last_hidden_state, original(ids[:, :200]).last_hidden_state)
        assert copy(ids).last_hidden_state.isfinite().all()


def test_finetune_reports_what_predict_counts(encoder, tmp_path):
    """The accuracy on the development rows is that of the labels which the saved model gives them."""
    rows = [(f"{'bad dull poor' if i % 2 else 'good bright fine'} film {i}", i % 2) for i in range(48)]
    for name, part in (("train", rows[:32]), ("dev", rows[32:])):
        put(tmp_path / f"{name}.tsv", "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in part))
    files = ("--data", tmp_path / "train.tsv", "--dev", tmp_path / "dev.tsv")
    small = ("--set", "batch_size=8", "--set", "length=16")
    found = done("finetune", encoder, "--out", tmp_path / "tuned", *files, "--steps", "6", *small)
    labels = ww.predict(tmp_path / "tuned", [text for text, _ in rows[32:]])
    right = [next(iter(of_text)) == str(label) for of_text, (_, label) in zip(labels, rows[32:], strict=True)]
    assert found["validation_accuracy"] == pytest.approx(np.mean(right))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small data of every family of evaluations."""
    return write_every_task(tmp_path_factory.mktemp("data"), TEXTS)


def test_mteb_is_spearman_of_cosines(encoder, data, tmp_path):
    """The score of a similarity task by sentence-transformers' vectors and scipy."""
    from sentence_transformers import SentenceTransformer

    pytest.importorskip("mteb")
    order = ("evaluate", "mteb", encoder, "--tasks", "SICK-R-local", "--data", data, "--out", tmp_path / "out")
    (score,) = (r["value"] for r in done(*order)["records"] if r["metric"] == "mteb.score")
    rows = [line.split("\t") for line in (data / "sts/SICK.tsv").read_text("utf-8").splitlines()[1:]]
    test = [row for row in rows if row[0] == "test"]
    model = SentenceTransformer(str(encoder), device="cpu")
    one, two = (model.encode([row[i] for row in test], normalize_embeddings=True) for i in (2, 3))
    assert score == pytest.approx(spearmanr(np.sum(one * two, axis=1), [float(row[4]) for row in test])[0], abs=1e-4)


def test_probed_states_are_those_of_the_model(encoder, theirs):
    """Words as `evaluate linguistic` and `holmes` read them: means over the tokens of a place."""
    opened = open_model(encoder)
    begin = LINES[1].index("senator")
    end = LINES[1].index("although")
    slots = [Slot(1, begin, end), Slot(0)]
    found, _ = slot_states(opened.model, opened.tokenizer, LINES[:2], slots, [2, 6])
    offsets = theirs[0](LINES[1], return_offsets_mapping=True)["offset_mapping"]
    tokens = [i for i, (a, b) in enumerate(offsets) if a < end and b > begin and b > a]
    for place, layer in enumerate((2, 6)):
        np.testing.assert_allclose(found[place, 0], states(theirs, LINES[1])[0][layer][tokens].mean(0), atol=1e-5)
        np.testing.assert_allclose(found[place, 1], states(theirs, LINES[0])[0][layer].mean(0), atol=1e-5)


@pytest.fixture
def in_float32(monkeypatch):
    """Trainings in this process and in float32, whatever this machine is faster with."""
    monkeypatch.setattr("whatwhere.study.evaluation_run.parallel_jobs", lambda: 1)
    monkeypatch.setattr("whatwhere.training.setup.is_bf16_faster", lambda device: False)


def test_linguistic_is_a_probe_of_hidden_states(encoder, data, tmp_path):
    """Share right of torch's linear layer on states by `output_hidden_states`."""
    share, f1, _ = linguistic_scores(encoder, 512, data, "pos", 1, 120)
    order = ("evaluate", "linguistic", encoder, "--tasks", "pos", "--data", data, "--seeds", "1", "--limit", "120")
    found = {r["metric"]: r["value"] for r in done(*order, "--out", tmp_path / "out")["records"]}
    assert found["linguistic.score"] == pytest.approx(share) and found["linguistic.f1"] == pytest.approx(f1)


def test_holmes_is_a_probe_of_last_states(encoder, tmp_path):
    """Macro F1 and correlation of torch's linear layer, for every kind of row."""
    flash = write_holmes(tmp_path)
    expected = {}
    for place in sorted(flash.iterdir()):
        numbers = place.name == "flesch"
        vary(place, numbers)
        kind = "SENTENCE" if numbers else place.name.upper()
        expected[place.name] = holmes_score(encoder, 512, place, kind, 1, numbers)
    order = ("evaluate", "holmes", encoder, "--data", flash, "--table", tmp_path / "leaderboards/flash-holmes.csv")
    found = done(*order, "--seeds", "1", "--out", tmp_path / "out")["records"]
    assert {r["part"]: r["value"] for r in found if r["metric"] == "holmes.dataset"} == pytest.approx(
        expected, abs=1e-4
    )


def test_glue_is_a_plain_training_of_transformers(encoder, data, in_float32, tmp_path):
    """Scores of transformers' classifier, trained by AdamW in a loop, on the half that did not choose and on all."""
    texts = []
    labels = []
    for split in ("train", "dev"):
        rows = [line.split("\t") for line in (data / f"glue/RTE/{split}.tsv").read_text("utf-8").splitlines()[1:]]
        texts.append([(one, two) for _, one, two, _ in rows])
        labels.append(np.array([label == "not_entailment" for *_, label in rows]).astype(int))
    recipe = SHORT | {"batch_size": len(texts[0])}
    predictions = [said for (said,) in classified(encoder, (texts[0], labels[0]), texts[1:], 128, 2, **recipe)]
    best = max(accuracy_score(labels[1], said) for said in predictions)
    order = ("evaluate", "glue", encoder, "--tasks", "rte", "--seeds", "1", "--rates", RATE, "--data", data)
    found = {r["metric"]: r["value"] for r in done(*order, "--out", tmp_path / "out")["records"]}
    score = judged(predictions, labels[1], accuracy_score, accuracy_score)
    assert (found["glue.score"], found["glue.best"]) == pytest.approx((score, best))


def test_squad_is_transformers_head_and_the_script(encoder, data, in_float32, tmp_path):
    """F1 and exact match of transformers' head, trained in a loop, as the official script counts."""
    train, dev = (json.loads((data / f"squad/{split}-v1.1.json").read_text("utf-8")) for split in ("train", "dev"))
    recipe = SHORT_SQUAD | {"batch_size": 12}  # as many as there are windows
    expected = squad_values(answered(encoder, train, dev, 384, 128, **recipe), dev, 1)
    order = ("evaluate", "squad", encoder, "--seeds", "1", "--rates", RATE, "--data", data, "--out", tmp_path / "out")
    found = {r["metric"]: r["value"] for r in done(*order)["records"]}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)
