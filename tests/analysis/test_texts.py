"""Attention of every head in a text: equal to the model's own, term by term; bytes on disk; files whole or not at
all."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from encoder_models import VOCAB, build

from whatwhere.analysis.texts import LEVELS, quantise, repeated_text, shown_tokens, text_maps
from whatwhere.models.lengths import max_tokens
from whatwhere.run.folder import RunFolder
from whatwhere.study.explorer_files import save_attention

IDS = np.array([2, *np.random.default_rng(0).integers(5, VOCAB, 10), 3])
NAMES = [str(i) for i in range(len(IDS))]
TERMS = {
    "dstg": ["semantic", "absolute", "relative", "total"],
    "rp": ["semantic", "relative", "total"],
    "split": ["semantic", "absolute", "semantic_to_absolute", "absolute_to_semantic", "total"],
    "bert-r": ["mixed", "relative", "total"],
}


class Tokenizer:
    def convert_ids_to_tokens(self, i):
        return f"<b>{i}</b>"


@pytest.mark.parametrize("name", ["dstg", "rp", "split", "tupe-r/each", "rope", "ap"])
def test_total_is_the_attention_of_the_model(name):
    model = build(name)  # float64: only the last rounding to float32 is between the two
    maps = text_maps(model, IDS, NAMES)
    with torch.no_grad():
        own = model(torch.from_numpy(IDS)[None], output_attentions=True).attentions
    np.testing.assert_allclose(maps.weights["total"], np.stack([a[0].numpy() for a in own]), atol=1e-7)
    assert maps.weights["total"].dtype == np.float32


@pytest.mark.parametrize("name", ["dstg", "rp", "split"])
def test_each_term_has_its_own_softmax(name):
    model = build(name)
    maps = text_maps(model, IDS, NAMES)
    assert list(maps.weights) == TERMS[name] and not maps.missing
    terms = model.base_model.attention_terms(torch.from_numpy(IDS)[None])
    for term, scores in terms.items():
        for layer in range(2):
            for head in range(2):
                row = scores[layer].expand(1, 2, -1, -1)[0, head, 4].numpy()
                expected = np.array([np.exp(s) for s in row]) / sum(np.exp(s) for s in row)
                np.testing.assert_allclose(maps.weights[term][layer, head, 4], expected, atol=1e-7)


@pytest.mark.parametrize("name", ["rope", "nope"])
def test_a_single_term_is_shown_as_total(name):
    """One term alone is only shown as total and said."""
    maps = text_maps(build(name), IDS, NAMES)
    assert list(maps.weights) == ["total"] and f"`{name}`" in maps.missing and "one term" in maps.missing


@pytest.fixture(scope="module")
def bert():
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    return BertModel(BertConfig(vocab_size=VOCAB, max_position_embeddings=16, **sizes)).double().eval()


def test_an_encoder_of_transformers_has_total_and_the_reason(bert):
    before = bert.config._attn_implementation
    maps = text_maps(bert, IDS, NAMES)
    assert list(maps.weights) == ["total"] and "BertModel does not say which part" in maps.missing
    assert bert.config._attn_implementation == before
    bert.set_attn_implementation("eager")
    with torch.no_grad():
        own = bert(torch.from_numpy(IDS)[None], output_attentions=True).attentions
    bert.set_attn_implementation(before)
    np.testing.assert_allclose(maps.weights["total"], np.stack([a[0].numpy() for a in own]), atol=1e-7)
    assert max_tokens(bert.config) == 16
    with pytest.raises(ValueError, match=r"has 16 positions; the text 'x' has 17 tokens"):
        text_maps(bert, np.full(17, 5), [""] * 17, "x")


def test_the_model_keeps_its_mode():
    """The model stays in its mode and dropout has no say."""
    model = build("dstg").train()
    one, two = (text_maps(model, IDS, NAMES).weights["total"] for _ in range(2))
    assert model.training and np.array_equal(one, two)


@pytest.mark.parametrize(("ids", "names"), [(np.empty(0, int), []), (IDS, NAMES[:-1]), (IDS[None], NAMES)])
def test_ids_that_are_no_named_row_are_refused(ids, names):
    with pytest.raises(ValueError, match="one row of at least one token id, each with a name"):
        text_maps(build("dstg"), ids, names)


def test_map_bytes_are_accurate_to_four_thousandths():
    """Bytes are wrong by at most four thousandths and less where weights are small."""
    weights = np.concatenate([np.linspace(0, 1, 20_001), np.geomspace(1e-7, 1, 5_000)])
    error = np.abs(LEVELS[quantise(weights)] - weights)
    assert error.max() <= 0.004
    large = weights > 1 / 255**2
    assert (error[large] <= np.sqrt(weights[large]) / 255 + 4e-6).all()
    assert error[weights <= 1e-4].max() <= 1e-4


def test_tokens_are_named_as_a_reader_knows_them():
    words = {0: "##ing", 1: "Ġriver", 2: "\n", 3: None, 4: ""}
    tokenizer = SimpleNamespace(convert_ids_to_tokens=words.get, decode=lambda ids: " river")
    assert shown_tokens(tokenizer, [0, 1, 2, 3, 4]) == ["##ing", "␣river", "↵", "id 3", "∅"]


def test_the_example_has_the_shape_of_the_figure():
    title, text = repeated_text()
    a, b, again = text.split("\n")
    assert title == "A + B + A" and a == again != b and repeated_text() == (title, text) != repeated_text(seed=1)


def test_a_second_write_replaces_the_files(tmp_path):
    """Files hold what was computed and a second writing replaces."""
    model = build("dstg")
    texts = [("one", IDS), ("two", IDS[:7])]
    out = tmp_path / "s"
    with RunFolder.open(out, "study") as run:
        file = save_attention(run, model, Tokenizer(), texts, name="a/b", seed=0)
        save_attention(run, build("rope"), Tokenizer(), texts, name="rope", seed=None)
        save_attention(run, model, Tokenizer(), texts[:1], name="a/b", seed=0)
        assert file == "arrays/explorer-a_b-seed-0.npz"
        assert run.listed_files() == [file, "arrays/explorer-rope.npz", "explorer.json"]
        first, second = run.read("explorer.json")
        arrays = run.read(file)
    assert (first["name"], first["seed"], first["terms"], first["missing"]) == ("a/b", 0, TERMS["dstg"], "")
    assert [t["title"] for t in first["texts"]] == ["one"] and first["texts"][0]["tokens"][0] == "<b>2</b>"
    assert second["file"] == "arrays/explorer-rope.npz" and "one term" in second["missing"]
    assert set(arrays) == {"levels", *(f"0.{t}" for t in TERMS["dstg"])}
    weights = arrays["levels"][arrays["0.absolute"]]
    np.testing.assert_allclose(weights, text_maps(model, IDS, NAMES).weights["absolute"], atol=0.004)


def test_a_damaged_index_is_refused(tmp_path):
    with RunFolder.open(tmp_path / "s", "study") as run:
        run.write("explorer.json", [])
        run.accept_input()
        (tmp_path / "s/explorer.json").write_text('{"half')
        with pytest.raises(ValueError, match="explorer.json is not as it was written"):
            save_attention(run, build("dstg"), Tokenizer(), [("one", IDS)], name="dstg", seed=0)
    assert not list(tmp_path.glob("s/arrays/*"))


def test_nothing_is_written_for_no_text(tmp_path):
    with pytest.raises(ValueError, match="no text to save"):
        save_attention(RunFolder.at(tmp_path), build("dstg"), Tokenizer(), [], name="dstg", seed=0)
