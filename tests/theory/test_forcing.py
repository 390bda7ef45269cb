"""GEOM's theorem 1 and appendix A on real encoders: permutations, gradients by positions and by scores, the first
layer's matrices."""

import numpy as np
import pytest
import torch
from forcing import (
    copied_token_batches,
    document_heads,
    first_attention,
    forcing,
    masked_rows,
    permutation_gaps,
    score_gradients,
)

import whatwhere as ww
from whatwhere.corpus import train_tokenizer
from whatwhere.geometry import corrected_squares

VOCAB = 5 + 3


def tiny(name: str = "ap", seed: int = 0, **fields) -> ww.EncoderForMaskedLM:
    """A float64 model 24 wide with 2 layers and 2 heads, weights large enough for the attention to differ from
    uniform."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 16}
    spread = {"initializer_range": 0.2, "embedding_initializer_range": 0.2, "dropout": 0.0}
    return ww.EncoderForMaskedLM(ww.preset(name, "tiny", vocab_size=VOCAB, **(sizes | spread | fields))).double().eval()


def rows(count: int = 40, n: int = 6) -> np.ndarray:
    return np.random.default_rng(0).integers(5, VOCAB, size=(count, n))


# Theorem 1


@pytest.mark.parametrize("block", ["neobert", "bert"])
def test_outputs_without_positions_follow_permutations(block):
    """Without positions outputs follow random permutations as read and not as printed."""
    model = tiny("nope", block=block)
    ids = torch.from_numpy(rows(3, 11))
    own_inverse = 0
    for seed in range(20):
        order = torch.randperm(11, generator=torch.Generator().manual_seed(seed))
        read, printed = permutation_gaps(model, ids, order)
        assert read < 1e-13
        own_inverse += bool((order[order] == torch.arange(11)).all())
        assert printed > 1e-3 or bool((order[order] == torch.arange(11)).all())
    assert own_inverse < 20
    swap = torch.tensor([1, 0, *range(2, 11)])
    assert max(permutation_gaps(model, ids, swap)) < 1e-13


def test_with_positions_outputs_do_not_follow():
    order = torch.tensor([3, 0, 2, 1])
    assert permutation_gaps(tiny("ap"), torch.from_numpy(rows(2, 4)), order)[0] > 1e-3


# (A2)


def test_forcing_is_the_negative_gradient_at_zero():
    """Forcing is the negative gradient at zero by finite differences."""
    model = tiny()
    batches = list(masked_rows(rows(), model.config, batch_size=10))
    table = model.encoder.position_embeddings.table.weight
    before = table.detach().clone()
    found = forcing(model, batches)
    assert torch.equal(table, before) and found.b.shape == (16, 24)
    labels = [int((batch["labels"] != -100).sum()) for batch in batches]

    def loss(row: int, column: int, step: float) -> float:
        with torch.no_grad():
            table.zero_()
            table[row, column] = step
            return sum(float(model(**batch).loss) * count for batch, count in zip(batches, labels, strict=True)) / sum(
                labels
            )

    for row, column in [(0, 3), (1, 0), (4, 7), (7, 23)]:
        slope = (loss(row, column, 1e-4) - loss(row, column, -1e-4)) / 2e-4
        assert found.b[row, column] == pytest.approx(-slope, rel=1e-4, abs=1e-9)
    assert found.loss == pytest.approx(loss(0, 0, 0.0)) and found.labels == sum(labels)
    assert not found.b[8:].any()  # positions that no row reaches: 6 tokens, [CLS] and [SEP]


def test_halves_average_to_the_whole():
    """Halves are even and odd batches and average to the whole."""
    model = tiny()
    batches = list(masked_rows(rows(), model.config, batch_size=10))
    whole = forcing(model, batches)
    even = forcing(model, batches[::2])
    counts = [sum(int((b["labels"] != -100).sum()) for b in batches[k::2]) for k in (0, 1)]
    assert np.allclose(whole.halves[0], even.b) and np.allclose(
        np.average(whole.halves, axis=0, weights=counts), whole.b
    )
    direct = np.sum((whole.halves[0][1] - whole.halves[0][2]) * (whole.halves[1][1] - whole.halves[1][2]))
    assert corrected_squares(*whole.halves)[1, 2] == pytest.approx(direct)


def test_equal_distributions_do_not_give_equal_forcing():
    # Every position is uniform, so every d_H is 0 and (A2) asks for b_0 = b_2. An exact expectation over all documents
    # and masks.
    model = tiny()
    found = forcing(model, copied_token_batches(3, 5, model.config, batch_size=101)).b[1:6]
    size = np.linalg.norm(found, axis=1).max()
    assert np.abs(found[0] - found[1]).max() < 1e-13 * size and np.abs(found[2:] - found[2]).max() < 1e-13 * size
    assert np.linalg.norm(found[0] - found[2]) > 0.05 * size


def test_copied_token_batches_are_all_documents_with_uniform_positions():
    batches = list(copied_token_batches(3, 4, tiny().config, batch_size=7))
    ids, labels = (torch.cat([batch[name] for batch in batches]) for name in ("input_ids", "labels"))
    assert ids.shape == (3**3 * 4, 6) and ((labels != -100).sum(dim=1) == 1).all()
    text = torch.where(labels != -100, labels, ids)[:, 1:-1]
    assert (text[:, 0] == text[:, 1]).all() and (ids[:, 0] == 2).all() and (ids[:, -1] == 3).all()
    for position in range(4):
        assert torch.bincount(text[:, position])[5:].tolist() == [36, 36, 36]


@pytest.mark.parametrize("name", ["nope", "sinusoidal", "dstg", "tupe-a"])
def test_forcing_of_another_scheme_is_an_error(name):
    model = ww.EncoderForMaskedLM(ww.preset(name, "tiny", vocab_size=VOCAB, num_hidden_layers=1))
    with pytest.raises(ValueError, match="learned position table that is added to the words.*Use the preset ap"):
        forcing(model, [])


def test_forcing_without_labels_is_an_error():
    """Forcing without labels is an error and leaves the table."""
    model = tiny()
    before = model.encoder.position_embeddings.table.weight.detach().clone()
    with pytest.raises(ValueError, match="at least two batches. Got 0 and 0 labels"):
        forcing(model, [])
    assert torch.equal(model.encoder.position_embeddings.table.weight, before)


# Lemma 11


def test_expected_score_gradients_sum_to_zero():
    """Expected score gradients sum to zero over the keys so they are no divergences."""
    # δ_ij = D(μ_i‖μ_j) ≥ 0 for all j with sum 0 would mean that all distributions are equal.
    model = tiny("tupe-free", block="neobert", reset="none", num_hidden_layers=1)
    ids = rows()
    ids[:, 0] = 5  # another distribution at position 0
    found = score_gradients(model, masked_rows(ids, model.config, batch_size=10))[:, 1:7, :8]
    assert found.shape == (2, 6, 8)
    assert np.abs(found.sum(axis=2)).max() < 1e-14 and np.abs(found).max() > 1e-5 and (found < 0).any()


def test_score_gradients_need_a_free_matrix_of_zeros():
    with pytest.raises(ValueError, match="Use the preset tupe-free"):
        score_gradients(tiny(), [])
    model = tiny("tupe-free", block="neobert", reset="none")
    with torch.no_grad():
        model.encoder.untied.free[0, 0, 0] = 1
    with pytest.raises(ValueError, match="matrix of zeros"):
        score_gradients(model, [])


# Lemma 16


def test_first_attention_gives_the_scores_of_the_model():
    model = tiny("nope")
    parts = first_attention(model)
    ids = torch.from_numpy(rows(1, 5))
    x = parts.E[ids[0].numpy()]
    scores = np.einsum("id,hde,je->hij", x, parts.M, x) / np.sqrt(parts.d_k)
    assert np.allclose(scores, model.attention_terms(input_ids=ids)["semantic"][0, 0].numpy())
    values = np.einsum("id,hdv->hiv", x, parts.W_V)
    wanted = model.encoder.layers[0].attention.qkv[0](torch.from_numpy(x)).chunk(3, dim=-1)[2]
    assert np.allclose(values.transpose(1, 0, 2).reshape(5, 24), wanted.detach().numpy())


def test_first_attention_of_another_block_is_an_error():
    with pytest.raises(ValueError, match="one stream with scores.*block=bert.*Use the preset ap"):
        first_attention(tiny("bert-a"))


# Corpus


def test_document_heads_are_first_tokens():
    """Document heads are the first tokens of texts that have them."""
    texts = ["alpha beta gamma delta", "alpha beta", "gamma delta alpha beta gamma"] * 700
    tokenizer = train_tokenizer(texts, vocab_size=200)
    found = document_heads(texts, tokenizer, 3)
    assert found.shape == (1400, 3)
    assert [tokenizer.decode(row) for row in found[:2]] == ["alpha beta gamma", "gamma delta alpha"]
    assert np.array_equal(document_heads(iter(texts), tokenizer, 3, most=5), found[:5])
    with pytest.raises(ValueError, match="0 texts have 9 tokens or more"):
        document_heads(texts, tokenizer, 9)


def test_masked_rows_mask_only_text():
    """Masked rows mask a share of the text and nothing else."""
    config = tiny().config
    ids = rows(500)
    batches = list(masked_rows(ids, config, batch_size=64, seed=1))
    inputs, labels = (torch.cat([batch[name] for batch in batches]).numpy() for name in ("input_ids", "labels"))
    masked = labels != -100
    assert masked.mean() * 8 / 6 == pytest.approx(0.2, abs=0.02) and not masked[:, [0, -1]].any()
    assert (inputs[masked] == config.mask_token_id).all()
    assert np.array_equal(np.where(masked, labels, inputs)[:, 1:-1], ids)
    again = next(masked_rows(ids, config, batch_size=64, seed=1))
    assert torch.equal(again["input_ids"], batches[0]["input_ids"])
