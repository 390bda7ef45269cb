"""Texts longer than those of the training: losses are those of single passes, pieces those of pieces read alone."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from cli_runner import sentences, whatwhere
from tokenizers import pre_tokenizers
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM

import whatwhere as ww
from whatwhere.analysis.passes import ChosenWindows
from whatwhere.analysis.record_context import RecordContext
from whatwhere.corpus import load_tokenizer, open_source
from whatwhere.length import measures as length
from whatwhere.length.extension import Continued, adapt, extend
from whatwhere.length.long_documents import _excerpts, long_texts
from whatwhere.length.longer_texts import LONG_TEXTS, LengthConfig, _trials, about, chosen_gains, length_records
from whatwhere.models.open import open_model
from whatwhere.records.record import read_records
from whatwhere.run.folder import RunFolder
from whatwhere.study import evaluation_run as evaluate

N = 96
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Eighteen long documents and two short ones."""
    path = tmp_path_factory.mktemp("long") / "long.txt"
    text = sentences(400).split("\n\n")
    blocks = ["\n".join(text[i : i + 20]) for i in range(0, 360, 20)]
    path.write_text("\n\n".join([blocks[0], "Short.", *blocks[1:], "Short too."]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(ww.reference())


@pytest.fixture(scope="module")
def texts(corpus, tokenizer):
    return long_texts(open_source(corpus, document="blank-line"), tokenizer, N, 12, 400)


def small(preset, **fields):
    torch.manual_seed(0)
    config = ww.preset(preset, size="tiny", vocab_size=4096, num_hidden_layers=2, **fields)
    return ww.EncoderForMaskedLM(config).double().eval()


def bert():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=4096, max_position_embeddings=128, pad_token_id=0, **SMALL)
    return BertForMaskedLM(config).double().eval()


def test_excerpts_begin_behind_the_first_quarter(corpus, tokenizer, texts):
    """Excerpts are of long documents from a line behind the first quarter."""
    measured, others = texts
    assert len(measured) == 12 and measured.document_numbers().tolist() == [0, *range(2, 13)]  # document 1 is short
    assert set(others.document_numbers()) == set(range(13, 19)) and len(others) > 12
    documents = corpus.read_text(encoding="utf-8").split("\n\n")
    for row, number in enumerate(measured.document_numbers()):
        window = measured[row]
        text = documents[number]
        begin = text.index("\n", len(text) // 4) + 1
        ids = tokenizer(text[begin:], add_special_tokens=False).input_ids[: N - 2]
        assert window.input_ids.tolist() == [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]
        assert (window.segments[[0, -1]] == -1).all() and (np.diff(window.segments[1:-1]) >= 0).all()


def test_a_late_line_break_costs_no_document(tokenizer):
    """A text whose only break comes late was passed over, though it is long enough."""
    words = "word " * 400
    for text in (f"{words} {words} end", f"{words} {words}\nend"):
        assert len(list(_excerpts(text, tokenizer, N, 1))) == 1


def test_all_methods_are_not_lost_when_work_is_added():
    """An empty list, which stands for all, was taken for nothing beside names."""
    every, one = (LengthConfig.parse({"models": ["reference"], "to": 300, "methods": m}) for m in ([], ["cyclic"]))
    assert one.add_saved_entries(every).methods == every.add_saved_entries(one).methods == []
    assert one.add_saved_entries(one).methods == ["cyclic"]
    twice = LengthConfig.parse({"models": ["reference"], "to": 300, "methods": ["cyclic", "cyclic"]})
    assert twice.methods == ["cyclic"]


def test_every_word_is_hidden_once(texts):
    """Every word is hidden once and alone ones are far apart."""
    windows = length.whole(texts[0])
    hidden = length.hidden_in(windows)
    alone = length.alone_in(windows)
    assert ((hidden >= 0) == windows.regular).all() and set(np.unique(hidden)) == {-1, *range(length.PARTS)}
    for number in range(length.PASSES):
        at = [np.flatnonzero(row == number) for row in alone]
        assert all((np.diff(places) == length.ALONE).all() for places in at)
    assert 0.8 < (alone >= 0).mean() * length.ALONE / length.PASSES < 1.1


@pytest.mark.parametrize("make", [lambda: small("dstg"), lambda: small("rope"), bert])
def test_losses_are_those_of_one_pass_after_the_other(make, texts, tokenizer):
    model = make()
    documents = length.whole(texts[0])
    hidden = length.hidden_in(documents)
    found = length.token_losses(model, documents, hidden, tokenizer.mask_token_id)
    assert (np.isnan(found) == (hidden < 0)).all()
    for row in (0, 5):
        for number in range(length.PARTS):
            ids = torch.from_numpy(documents.input_ids[row : row + 1]).clone()
            at = torch.from_numpy(hidden[row] == number)
            right, ids[0, at] = ids[0, at].clone(), tokenizer.mask_token_id
            with torch.no_grad():
                expected = F.cross_entropy(model(input_ids=ids).logits[0, at], right, reduction="none")
            assert found[row][hidden[row] == number] == pytest.approx(expected.numpy(), rel=1e-4)


@pytest.mark.whole
@pytest.mark.parametrize("make", [lambda: small("dstg"), lambda: small("rp"), bert])
def test_pieces_are_read_alone_to_the_texts_end(make, texts, tokenizer):
    """Pieces are read alone and the last ends with the text."""
    model = make()
    documents = length.whole(texts[0])
    hidden = length.hidden_in(documents)
    size = 40
    found = length.piece_losses(model, documents, hidden, size, tokenizer)
    assert (np.isnan(found) == (hidden < 0)).all()
    cls = tokenizer.cls_token_id
    sep = tokenizer.sep_token_id
    done = 1
    for begin in (1, 39, N - 1 - 38):
        inner = slice(begin, begin + 38)
        ids = documents.input_ids[:, inner]
        framed = np.pad(ids, ((0, 0), (1, 1)), constant_values=((0, 0), (cls, sep)))
        alone = ChosenWindows(framed, np.tile(np.arange(40), (len(ids), 1)), None, framed >= 0, {})
        parts = np.pad(hidden[:, inner], ((0, 0), (1, 1)), constant_values=-1)
        expected = length.token_losses(model, alone, parts, tokenizer.mask_token_id)[:, 1:-1]
        assert found[:, done : begin + 38] == pytest.approx(expected[:, done - begin :], rel=1e-5)
        done = begin + 38
    assert done == N - 1
    one = length.piece_losses(model, documents, hidden, N, tokenizer)  # a single piece is the text itself
    assert one == pytest.approx(length.token_losses(model, documents, hidden, tokenizer.mask_token_id), nan_ok=True)


def test_pieces_of_random_positions_are_spread(texts, tokenizer):
    """Pieces of a model of random positions are spread over them."""
    model = small("ap", max_position_embeddings=512)
    documents = length.whole(texts[0])
    hidden = length.hidden_in(documents)
    found = length.piece_losses(model, documents, hidden, N, tokenizer, spread=512)
    positions = np.tile(np.linspace(0, 511, N).round().astype(int), (len(documents), 1))
    spread = ChosenWindows(documents.input_ids, positions, None, documents.regular, {})
    expected = length.token_losses(model, spread, hidden, tokenizer.mask_token_id)
    assert found == pytest.approx(expected, nan_ok=True)
    assert np.nanmax(np.abs(found - length.piece_losses(model, documents, hidden, N, tokenizer))) > 1e-3


def test_a_copy_that_stood_before_saves_nothing(texts, tokenizer):
    """What stands there already saves nothing and else a copy is read."""
    model = small("rope")
    documents = length.whole(texts[0])
    here = np.arange(N - 1 - length.PASSAGE, N - 1)
    gains = length.copy_gains(model, documents, [32, 50], tokenizer.mask_token_id)
    assert gains.shape == (2, 12) and (np.abs(gains) > 0).all()
    ids = documents.input_ids.copy()
    ids[:, here - 50] = ids[:, here]
    again = ChosenWindows(ids, documents.position_ids, None, documents.regular, {})
    assert (length.copy_gains(model, again, [50], tokenizer.mask_token_id) == 0).all()
    assert (documents.input_ids == length.whole(texts[0]).input_ids).all()


def test_distances_and_shifts_fit_the_text():
    """Distances and shifts fit the text and are no whole lengths."""
    # A table that repeats itself after L rows stands nearly where it was after L, 2 L, ... positions.
    assert length.copy_distances(128, 1024) == [64, 192, 448, 960] and length.shifts(128, 1024) == [64, 192, 448, 960]
    assert length.copy_distances(128, 512) == [64, 192, 448] and length.shifts(128, 512) == [64, 192, 448]
    assert length.copy_distances(16, 200) == [56, 120]


@pytest.mark.parametrize(
    ("preset", "moves"), [("rope", False), ("xpos", False), ("alibi", False), ("rp", False), ("dstg", True)]
)
def test_states_move_where_positions_are_counted(preset, moves, texts):
    found = length.drifts(small(preset), length.whole(texts[0]), 32, [16, 32])
    assert found.shape == (2, 12, 3 if preset == "dstg" else 1)
    assert (found > 1e-3).all() if moves else (found < 1e-9).all()


def test_probes_see_the_tokens_beyond_alone(texts):
    seen = length._Beyond(texts[0], 60)[3].segments
    assert (seen[:60] == -1).all() and (seen[60:-1] == texts[0][3].segments[60:-1]).all()


@pytest.mark.parametrize("what", ["table", "all"])
def test_a_short_training_changes_what_it_is_told_to(what, texts):
    model = small("ap").float()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    losses = adapt(model, texts[1], 3, what)
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    table = {"encoder.position_embeddings.table.weight"}
    assert len(losses) == 3 and (changed == table if what == "table" else changed > table)
    if what == "table":
        with pytest.raises(ValueError, match="no position table that could be trained alone"):
            adapt(small("rope").float(), texts[1], 1, "table")


@pytest.mark.parametrize("make", [lambda: small("dstg"), bert, lambda: small("low-rank")])
def test_equation_5_changes_only_rows_beyond(make, texts):
    """The network of equation 5 changes the rows beyond alone."""
    model = make().float()
    trained = 48
    # Of two factors the first, which was looked for as a module.
    table = next(p for name, p in model.named_parameters() if "position_embeddings." in name)
    names = set(model.state_dict())
    before = {name: t.clone() for name, t in model.state_dict().items()}
    held = Continued(table.detach(), 1, trained)
    assert torch.allclose(held(table), table, atol=1e-6)  # it begins with the rows there are
    held.more[2].bias.data += 1
    i = np.arange(trained - 1, 60)
    share = 1 / (1 + np.exp(-5 * (i / (trained - 1) - 1)))
    moved = (held(table) - table).detach().numpy()
    assert moved[1 + i] == pytest.approx(np.repeat(share[:, None], table.shape[1], 1), abs=1e-5)
    adapt(model, texts[1], 3, "network", trained)
    after = model.state_dict()
    assert set(after) == names
    changed = {name for name in names if not torch.equal(after[name], before[name])}
    (name,) = changed
    assert "position_embeddings" in name
    assert torch.equal(after[name][:trained], before[name][:trained])
    assert (after[name][trained:] != before[name][trained:]).any(1).all()


@pytest.fixture(scope="module", params=[pytest.param("command", marks=pytest.mark.whole)])
def evaluated(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("evaluated") / "out"
    words = ["evaluate", "length", "reference", "--to", "160", "--corpus", str(corpus), "--document", "blank-line"]
    words += ["--documents", "10", "--methods", "cyclic", "--adapt", "none,table", "--steps", "10", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "parallel_jobs", lambda: 1)  # in this process, which has imported everything
        return words, out, whatwhere(*words)


def test_methods_are_judged_by_other_texts():
    """A way is judged by texts that did not choose it."""
    gains = np.array([[1.0, -1.0, 1.0, -1.0], [0.0, 0.5, 0.0, 0.5]])  # best at even places, best at odd ones
    assert chosen_gains(gains).tolist() == [0.0, -1.0, 0.0, -1.0]
    assert gains.mean(1).max() == 0.25  # what the best way seems to gain by the texts that chose it


def test_the_verb_leaves_records_page_and_model(evaluated):
    """The verb leaves records a page and the adapted model."""
    words, out, done = evaluated
    assert done.returncode == 0, done.stderr
    assert [line.split()[:4] for line in done.stdout.splitlines()][:1] == [
        ["model", "in-pieces", "cyclic", "cyclic+table"]
    ]
    records = read_records(out / "records.parquet")
    ways = {r.part for r in records if r.metric == "length.loss"}
    assert ways == {"in-pieces", "cyclic", "cyclic+table"}
    assert {r.part for r in records if r.metric == "length.gain"} == {"cyclic", "cyclic+table"}
    assert {r.index for r in records if r.metric == "length.copy"} == {64}
    assert not any(np.isnan(r.value) for r in records)  # of 160 tokens few are hidden alone
    assert {r.metric for r in records if r.metric.startswith("length.drift")} == {
        "length.drift", "length.drift.position", "length.drift.semantic",
    }  # fmt: skip
    losses = np.load(out / "runs/reference/cyclic/cyclic-seed-0.npz")["loss"]
    pieces = np.load(out / "runs/reference/in-pieces/in-pieces-seed-0.npz")["loss"]
    told = {r.part: r for r in records if r.metric == "length.gain"}
    beyond = next(r.value for r in records if r.metric == "length.beyond" and r.part == "cyclic")
    assert beyond == pytest.approx(np.nanmean(losses[:, 128:], axis=1).mean())
    expected = (np.nanmean(pieces[:, 128:], axis=1) - np.nanmean(losses[:, 128:], axis=1)).mean()
    assert told["cyclic"].value == pytest.approx(expected)
    adapted = np.load(out / "runs/reference/cyclic+table/cyclic+table-seed-0.npz")  # beside its own pieces
    own = (np.nanmean(adapted["pieces"][:, 128:], axis=1) - np.nanmean(adapted["loss"][:, 128:], axis=1)).mean()
    assert told["cyclic+table"].value == pytest.approx(own) and (adapted["pieces"] != pieces).any()
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "worth taking" in page and "The ways by name." in page
    # It told of a training of all models on the same batches, which this run knows nothing of.
    assert "same masks" not in page and "training is counted" not in page
    assert "\nTexts: 10 documents of long.txt, of each 160 tokens" in done.stdout
    kept = out / "models/reference/cyclic+table/seed-0"
    card = (kept / "README.md").read_text("utf-8")
    assert card.startswith("---\nlibrary_name")
    assert "> A copy of `reference` that reads 160 tokens (128 before, trained on 128): positions beyond by `c" in card
    assert "> The table alone was trained on for 10 steps, on further documents of long.txt, 160 tokens a text." in card
    facts = json.loads((kept / "extension.json").read_text())
    assert (facts["method"], facts["adapted"], facts["steps"]) == ("cyclic", "table", 10)
    adapted = AutoModelForMaskedLM.from_pretrained(kept)
    assert adapted.config.max_position_embeddings == 160
    again = whatwhere(*words)
    assert again.returncode == 0 and again.stdout == done.stdout


def test_corpus_points_are_a_method_like_others(evaluated, corpus, tokenizer, tmp_path, monkeypatch):
    """Points of a longer corpus are a way as others."""
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(170, 5)))
    words = [*evaluated[0][:-8], "--methods", "mds", "--points", str(tmp_path / "points.npy"), "--steps", "10"]
    done = whatwhere(*words, "--out", str(tmp_path / "o"))
    assert done.returncode == 0 and done.stdout.split()[:3] == ["model", "in-pieces", "mds"], done.stderr
    extend("reference", tmp_path / "longer", 160, "mds", points=np.load(tmp_path / "points.npy"))
    texts, _ = long_texts(open_source(corpus, document="blank-line"), tokenizer, 160, 10, 0)
    windows = length.whole(texts)
    how = (windows, length.hidden_in(windows), tokenizer.mask_token_id)
    expected = length.token_losses(open_model(str(tmp_path / "longer"), "masked").model, *how)
    found = np.load(tmp_path / "o/runs/reference/mds/mds-seed-0.npz")["loss"]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # Without points it is no way of a model.
    assert "mds" not in about("reference", 160).methods and "mds" in about("reference", 160, True).methods


def test_a_damaged_key_of_a_finished_piece_is_named(evaluated, tmp_path):
    """A flipped bit there was a KeyError, as long as the folder had no hashes."""
    shutil.copytree(evaluated[1], tmp_path / "o")
    config = LengthConfig.load_saved(tmp_path / "o/length.yaml")
    for way, key in (("in-pieces", "frequencies"), ("cyclic", "shifts")):
        piece = tmp_path / f"o/runs/reference/{way}/{way}-seed-0.json"
        whole = piece.read_text()
        piece.write_text(whole.replace(f'"{key}"', f'"{key[:-1]}r"'))
        with pytest.raises(ValueError, match=rf"{way}-seed-0.json"):
            length_records(config, tmp_path / "o")
        piece.write_text(whole)


def test_perplexities_are_those_of_tokens_that_are_hidden_alone(evaluated):
    records = read_records(evaluated[1] / "records.parquet")
    for way in ("in-pieces", "cyclic", "cyclic+table"):
        alone = np.load(evaluated[1] / f"runs/reference/{way}/{way}-seed-0.npz")["alone"]
        expected = {}
        for places in np.array_split(np.arange(1, 159), 16):
            each = [[float(loss) for loss in row if not np.isnan(loss)] for row in alone[:, places]]
            if all(each):  # of 160 tokens few are hidden alone: of some sixteenths none
                logs = [sum(losses) / len(losses) for losses in each]
                expected[places[len(places) // 2]] = np.exp(sum(logs) / len(logs))
        found = {r.index: r for r in records if r.metric == "length.perplexity" and r.part == way}
        assert len(expected) > 3 and {at: r.value for at, r in found.items()} == pytest.approx(expected)
        assert all(r.low < r.value < r.high and r.value > 1 for r in found.values())


def test_probes_are_those_of_the_same_copy(evaluated, corpus, tokenizer, tmp_path):
    """Probes of token segment and progress are those of the same copy."""
    # Of the three only the first was ever read.
    extend("reference", tmp_path / "copy", 160, "cyclic")
    texts, _ = long_texts(open_source(corpus, document="blank-line"), tokenizer, 160, 10)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "copy")
    expected = {}
    for r in length.beyond_records(model, texts, 128, RecordContext("")):
        if r.metric in ("r2.token", "r2.segment", "r2.intra") and r.index is None and r.layer is not None:
            expected[f"length.{r.metric}" + ("" if r.part == "all" else f".{r.part}"), r.layer] = r.value
    records = [
        r
        for r in read_records(evaluated[1] / "records.parquet")
        if re.search(r"\.r2\.(token|segment|intra)", r.metric) and r.part == "cyclic"
    ]
    assert {(r.metric, r.layer): r.value for r in records} == pytest.approx(expected)
    streams = ("", ".position", ".semantic")
    layers = range(model.config.num_hidden_layers + 1)
    names = [f"length.r2.{what}{stream}" for what in ("token", "segment", "intra") for stream in streams]
    assert set(expected) == {(name, layer) for name in names for layer in layers}
    assert all(r.value < 1 and r.n == 10 * (160 - 128 - 1) for r in records)


def test_models_of_several_seeds_have_one_name(tmp_path):
    folders = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        folder = tmp_path / "rope" / f"seed-{seed}"
        ww.EncoderForMaskedLM(ww.preset("rope", size="tiny", vocab_size=60)).save_pretrained(folder)
        folders.append(str(folder))
    config = LengthConfig.parse({"models": folders, "to": 256})
    assert [each[:2] for each in config.trainings()] == [("rope", 0), ("rope", 1)]
    assert config.models_by_name() == {"rope": folders[0]}
    pieces = _trials(config)
    assert [p.task for p in pieces[:5]] == ["in-pieces", "as-it-is", "linear", "ntk", "yarn"]
    assert len({p.file(tmp_path) for p in pieces}) == len(pieces) == 10
    windows = _trials(config.model_copy(update={"windows": [0, 64], "methods": ["as-it-is"]}))
    assert [p.task for p in windows if p.seed == 0] == ["in-pieces", "as-it-is", "as-it-is-w64"]
    with pytest.raises(ValueError, match="are both seed-0, seed 0|are both rope, seed 0"):
        LengthConfig.parse({"models": [folders[0], f"{folders[0]}/../seed-0"]}).trainings()


def test_longer_tables_are_read_as_they_are(tmp_path):
    """A table with more rows than the training had tokens is read as it is."""
    ww.EncoderForMaskedLM(ww.preset("ap", size="tiny", vocab_size=60, max_position_embeddings=512)).save_pretrained(
        tmp_path / "ap"
    )
    (tmp_path / "ap/pretrain.yaml").write_text("length: 64\n")
    config = LengthConfig.parse({"models": [str(tmp_path / "ap")], "to": 256, "windows": [0, 16]})
    assert [p.task for p in _trials(config)] == ["in-pieces", "as-it-is", "as-it-is-w16"]
    config.save_in(RunFolder.at(tmp_path / "out"), "length.yaml")
    (tmp_path / "ap/pretrain.yaml").write_text("length: 64\nsubset: true\ncorpus: here\n")
    found = about(str(tmp_path / "ap"), 256)
    assert (found.trained, found.reads, found.spread, found.corpus) == (64, 512, True, "here")


def test_what_some_models_lack_is_said(tmp_path):
    """What only some models have is said and a scaled copy is read as it is."""
    for preset in ("rope", "ap"):
        ww.EncoderForMaskedLM(ww.preset(preset, size="tiny", vocab_size=60)).save_pretrained(tmp_path / preset)
    extend(tmp_path / "rope", tmp_path / "copy", 256, "yarn")
    bert().save_pretrained(tmp_path / "bert")
    models = [str(tmp_path / name) for name in ("rope", "ap", "copy", "bert")]
    config = LengthConfig.parse(
        {"models": models, "to": 256, "methods": ["yarn", "cyclic"], "adapt": ["none", "table"], "windows": [0, 16]}
    )
    assert LONG_TEXTS.notes(config, tmp_path)[1:5] == [
        "rope has no cyclic, no table to adapt: left out.",
        "ap has no yarn: left out.",
        "copy has no yarn, no cyclic, no table to adapt: left out.",
        "bert has no yarn, no windows: left out.",
    ]
    assert about(models[2], 256).methods == ("as-it-is",)
    config = LengthConfig.parse({"models": models[3:], "to": 256, "windows": [16]})
    with pytest.raises(ValueError, match="A window is of this package's encoders alone; --windows 0 is without one"):
        LONG_TEXTS.check(config)
    config = LengthConfig.parse({"models": models[:1], "to": 256, "adapt": ["table"]})
    with pytest.raises(ValueError, match="by any way, and then have the table trained. They have: as-it-is"):
        LONG_TEXTS.check(config)


@pytest.mark.parametrize(("preset", "method"), [("rope", "yarn"), ("ap", "decay")])
def test_a_continued_copy_is_refused_first(preset, method, tmp_path):
    """A copy that goes on already is refused before anything is computed."""
    # A scaled one stopped the run in its middle, and rows that a method had made were continued as if learned.
    ww.EncoderForMaskedLM(ww.preset(preset, size="tiny", vocab_size=60)).save_pretrained(tmp_path / "m")
    extend(tmp_path / "m", tmp_path / "copy", 200, method)
    config = LengthConfig.parse({"models": [str(tmp_path / "m"), str(tmp_path / "copy")], "to": 256})
    with pytest.raises(ValueError, match=f"copy that goes on already, by {method} to 200 tokens. Give the model that"):
        LONG_TEXTS.check(config)


def test_texts_are_counted_by_every_vocabulary(corpus, tmp_path):
    # Only the first model's was tried: another one's texts were found too short in the middle of the run.
    bert().save_pretrained(tmp_path / "bert")
    words = load_tokenizer(ww.reference())
    words.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split("never", "isolated")  # a text is one unknown word
    words.save_pretrained(tmp_path / "bert")
    given = {"to": 160, "corpus": str(corpus), "document": "blank-line", "documents": 10}
    with pytest.raises(ValueError, match="long.txt has 0 documents with 160 tokens"):
        LONG_TEXTS.check(LengthConfig.parse({"models": ["reference", str(tmp_path / "bert")], **given}))


def test_a_tokenizer_beyond_the_rows_is_refused_first(corpus, tmp_path):
    """It was noticed by an IndexError in the middle of the first model."""
    ww.EncoderForMaskedLM(ww.preset("rope", size="tiny", vocab_size=60)).save_pretrained(tmp_path / "m")
    load_tokenizer(ww.reference()).save_pretrained(tmp_path / "m")
    given = {"to": 256, "corpus": str(corpus), "document": "blank-line", "documents": 10}
    with pytest.raises(ValueError, match="m has 4,096 tokens, and the model's table of words 60 rows"):
        LONG_TEXTS.check(LengthConfig.parse({"models": [str(tmp_path / "m")], **given}))


def test_unknown_or_tiny_lengths_are_refused(tmp_path):
    """A model of an unknown or tiny length is refused."""
    ww.EncoderForMaskedLM(ww.preset("rope", size="tiny", vocab_size=60)).save_pretrained(tmp_path / "m")
    (tmp_path / "m/pretrain.yaml").write_text("length: 4\n")
    with pytest.raises(ValueError, match="m was trained on texts of 4 tokens. Give models trained on 8 or more."):
        about(str(tmp_path / "m"), 256)  # "--to is 256. Give more."
    facts = json.loads((tmp_path / "m/config.json").read_text())
    del facts["max_position_embeddings"]
    (tmp_path / "m/config.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="config.json has max_position_embeddings, n_positions or n_ctx"):
        about(str(tmp_path / "m"), 256)


def test_models_without_a_masked_head_are_refused(tmp_path):
    """A model without a head for masked words is refused."""
    # transformers would draw one, and its losses would look like the model's.
    bert().base_model.save_pretrained(tmp_path / "bert")
    with pytest.raises(ValueError, match="has no masked-language head .BertModel."):
        about(str(tmp_path / "bert"), 256)


def test_only_what_has_a_table_can_train_one(tmp_path):
    # RoPE's linear scaling has the name of a method of tables, and no table.
    for preset in ("rope", "ap"):
        ww.EncoderForMaskedLM(ww.preset(preset, size="tiny", vocab_size=60)).save_pretrained(tmp_path / preset)
    given = {"models": [str(tmp_path / p) for p in ("rope", "ap")], "to": 256, "adapt": ["table", "network", "all"]}
    pieces = _trials(LengthConfig.parse({**given, "methods": ["linear", "learned"]}))
    assert [(p.name, p.task) for p in pieces] == [
        *[("rope", "in-pieces"), ("ap", "in-pieces"), ("ap", "learned+network")],
        *[("ap", f"{method}+table") for method in ("learned", "linear")],
        *[("rope", "linear+all"), ("ap", "learned+all"), ("ap", "linear+all")],
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "100"], "was trained on texts of 128 tokens, and --to is 100. Give more."),
        (["--methods", "polynomial"], "no method 'polynomial'. Known: as-it-is"),
        (["--adapt", "head"], "no part to adapt 'head'. Known: none, network, table, all"),
        (["--documents", "40"], "40 are asked for. Give longer texts, or fewer --documents"),
        (["--methods", "mds"], "mds needs the points of a corpus with longer texts. Give --points FILE.npy"),
        (["--points", "FEW"], "few.npy has 20 rows, and --to is 160. Give a table of as many positions"),
        (["--points", "none.npy"], "none.npy"),
        (["--windows", "-4"], "A window of -4 tokens on each side is negative. Give 1 or more, or 0"),
        (["--methods", "yarn"], "None of these models can be read on by yarn. They have: cyclic, decay"),
        (["--corpus", "none.txt"], "No corpus 'none.txt'"),
        (["--documents", "18", "--adapt", "all"], "0 texts are left to adapt to"),
    ],
)
def test_wrong_input_is_one_line(words, said, corpus, tmp_path):
    given = ["--to", "160", "--corpus", str(corpus), "--document", "blank-line", "--documents", "12"]
    np.save(tmp_path / "few.npy", np.ones((20, 2)))
    words = [str(tmp_path / "few.npy") if word == "FEW" else word for word in words]
    done = whatwhere("evaluate", "length", "reference", *given, *words, "--out", str(tmp_path / "out"))
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "out/records.parquet").exists()
