"""Costs read off the meta model against the real model's parameters and operations counted by formula; matched
widths."""

import copy
import functools

import pytest
import torch
from encoder_models import own_block_first

from whatwhere.encoder import EncoderForMaskedLM, preset
from whatwhere.encoder.registry import BIASES
from whatwhere.models.explain import PARTS, costs, matched_width
from whatwhere.training.pretrain import _count_operations
from whatwhere.training.pretrain_settings import PretrainConfig

VOCAB = 300
N = 24
LABELLED = 0.25


def build(name, block, **fields):
    return preset(name, "tiny", block=block, vocab_size=VOCAB, num_hidden_layers=2, **fields)


@functools.cache
def counted(name, block):
    return costs(build(name, block), N, LABELLED)


def by_formula(c, n, labelled):
    """Twice the multiply-adds of every matrix product, per token, from the sizes alone."""
    d = c.hidden_size
    inner = c.intermediate_size
    gates = 2 if c.block == "neobert" else 1
    wide = [inner * width // d for width in c.stream_sizes]  # of the feed-forward, for each stream
    products = len(c.stream_sizes) if c.stream_qk == "separate" else 1
    projections = sum(2 * s * (2 * d + s) + 2 * s * s for s in c.stream_sizes)
    up = (
        sum(2 * s * gates * w for s, w in zip(c.stream_sizes, wide, strict=True))
        if c.stream_feed_forward == "separate"
        else 2 * d * gates * inner
    )
    down = sum(2 * w * s for w, s in zip(wide, c.stream_sizes, strict=True))
    positional = 0.0
    table = 0.0
    if c.untied in ("position", "crossed"):
        positional = 2 * 2 * d * d + (2 * n * d if c.untied == "position" else 0)
        positional += 2 * (2 * 2 * d * d) / n if c.reset != "none" else 0  # two rows for θ
    if c.relative == "product":
        positional += 2 * 2 * d * d * (2 * c.relative_max_distance + 1) / n
    positional += 2 * c.input_kernel * d
    to_words = 2 * d * 2 * n  # of queries or keys with a vector for each of 2n - 1 distances, and one for their layout
    layers = c.num_hidden_layers
    if c.pair_terms == "shaw":
        positional += layers * to_words
    if c.pair_terms == "deberta":
        positional += layers * (2 * to_words + 2 * 2 * d * d * 2 * c.max_position_embeddings / n)
    if c.pair_terms == "xl":  # waves are projected for the words, and for v
        positional += layers * (to_words + 2 * 2 * d * d * (2 * n - 1) / n)
    if c.pair_terms == "cope":  # gates, and vectors before and after the query
        positional += layers * (2 * d * n + 2 * 2 * d * c.max_position_embeddings)
    network = 2 * 32 * c.num_attention_heads * n  # from or to the 32 units of a hidden layer, for every key
    if c.pair_terms == "fire":
        positional += layers * network
    if c.pair_terms == "dape":  # scores, which the network reads, and biases in; values out
        positional += layers * (2 * d * n + 3 * network)
    if c.rotation == "xpos":
        products += 1  # the pairs whose key stands behind
    if c.absolute == "low_rank":
        table = 2 * c.max_position_embeddings * c.table_rank * c.position_vector_width / n
    read = d if c.mlm_head == "full" and c.position_size else c.semantic_size
    head = 2 * (read if c.block == "neobert" else c.semantic_size) * c.vocab_size
    head += 2 * read * c.semantic_size if c.block == "bert" else 0
    return {
        "word_embedding": 0,
        "position_table": table,
        "positional_terms": positional,
        "attention_projections": c.num_hidden_layers * projections,
        "attention_scores": c.num_hidden_layers * (products * 2 * n * d + 2 * n * d),
        "feed_forward": c.num_hidden_layers * (up + down),
        "norms": 0,
        "vocabulary_head": labelled * head,
    }


@own_block_first
def test_operations_equal_the_formula(name, block):
    expected = by_formula(build(name, block), N, LABELLED)
    found = counted(name, block)
    assert found.operations == pytest.approx(expected) and found.of("operations") == pytest.approx(
        sum(expected.values())
    )


@own_block_first
def test_parameters_and_terms_are_those_of_the_real_model(name, block):
    config = build(name, block)
    found = counted(name, block)
    model = EncoderForMaskedLM(config)
    assert found.of("parameters") == sum(p.numel() for p in model.parameters()) and set(found.parameters) == set(PARTS)
    layers = sum(p.numel() for layer in model.encoder.layers for p in layer.feed_forward.parameters())
    assert found.parameters["feed_forward"] == layers
    assert found.parameters["word_embedding"] == VOCAB * config.semantic_size
    assert set(found.terms) == set(model.attention_terms(input_ids=torch.tensor([[2, 7, 3]])))


def test_counting_draws_no_random_numbers_and_changes_no_configuration():
    config = build("tupe-r", "bert")
    before = config.to_dict()
    state = torch.get_rng_state()
    costs(config, N)
    assert torch.equal(torch.get_rng_state(), state) and config.to_dict() == before


def test_mapped_tables_are_counted_with_their_map():
    """A table of its own width is counted with its map."""
    config = build("ap", "neobert", table_width=16)
    found = costs(config, N)
    assert found.parameters["position_table"] == 128 * 16 + 16 * 120
    assert found.operations["position_table"] == 2 * 128 * 16 * 120 / N


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "what"), [("ap", "operations"), ("dstg", "parameters"), ("tupe-r", "operations"), ("split", "parameters")]
)
def test_matched_width_is_the_nearest_that_is_allowed(name, what):
    target = counted("dstg-full-mlm", "neobert").of(what)
    config = build(name, preset(name).block)
    width = matched_width(config, what, target, N, LABELLED)

    def distance(width):
        other = copy.deepcopy(config)
        other.intermediate_size = width
        return abs(costs(other, N, LABELLED).of(what) - target)

    step = config.intermediate_divisor
    assert width % step == 0 and distance(width) <= min(distance(width - step), distance(width + step))


def test_what_cannot_be_matched_or_counted_is_one_line():
    config = build("split", "bert")
    with pytest.raises(
        ValueError, match="split cannot be made to cost 1,000 parameters: .*intermediate_size=4.*first in --models"
    ):
        matched_width(config, "parameters", 1000, N, LABELLED)
    with pytest.raises(ValueError, match="position table has 128 rows"):
        costs(config, 129)
    with pytest.raises(ValueError, match=r"share of predicted tokens, in \[0, 1\]; got 2"):
        costs(config, N, labelled=2)
    with pytest.raises(ValueError, match="at least 1 token; got 0"):
        costs(config, 0)


def test_schemes_that_read_numbers_train_without_counts(monkeypatch, capsys):
    """A scheme that reads numbers is trained without a count."""

    class Reading(BIASES["t5"]):
        def forward(self, distance):
            return super().forward(distance) / max(int(distance.max()), 1)

    monkeypatch.setitem(BIASES, "reading", Reading)
    config = PretrainConfig.load(None, ["model.relative=reading", "model.num_hidden_layers=1"], preset="nope", steps=1)
    assert _count_operations(config, config.encoder_config()) is None
    assert "reads no values of tensors" in capsys.readouterr().err
