"""Queries and keys of transformers' encoders: with them, every block's attention is that of the model."""

import pytest
import torch
from transformers import (
    AlbertModel,
    BertModel,
    DistilBertModel,
    ElectraModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetModel,
    MraModel,
    NystromformerModel,
    RobertaModel,
    YosoModel,
)

from whatwhere.analysis.correlations import first_block
from whatwhere.analysis.foreign import distance_bias, query_key

SIZES = {"vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.mark.parametrize("kind", [AlbertModel, BertModel, DistilBertModel, ElectraModel, MPNetModel, RobertaModel])
def test_projections_give_every_block_its_attention(kind):
    """softmax(q kᵀ / √d + bias) of the hidden state before a block is what the model says that it attends by."""
    torch.manual_seed(0)
    config = kind.config_class(**SIZES, attn_implementation="eager", initializer_range=0.3)
    model = kind(config).double().eval()
    ids = torch.randint(5, 40, (2, 9))
    with torch.no_grad():
        output = model(ids, output_attentions=True, output_hidden_states=True)
        for block, pair in enumerate(query_key(model)):
            x = output.hidden_states[block]
            q = torch.nn.functional.linear(x, pair.query, pair.query_bias).unflatten(-1, (2, 12)).transpose(1, 2)
            k = torch.nn.functional.linear(x, pair.key, pair.key_bias).unflatten(-1, (2, 12)).transpose(1, 2)
            scores = q @ k.mT / 12**0.5 + distance_bias(model, 9)
            torch.testing.assert_close(scores.softmax(-1), output.attentions[block], atol=1e-10, rtol=0)


def test_modernbert_keeps_queries_before_keys():
    config = ModernBertConfig(**SIZES, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)
    model = ModernBertModel(config)
    pair = query_key(model)[2]
    rows = model.layers[2].attn.Wqkv.weight
    assert torch.equal(pair.query, rows[:24]) and torch.equal(pair.key, rows[24:48])


@pytest.mark.parametrize("kind", [BertModel, RobertaModel, MPNetModel, NystromformerModel, MraModel, YosoModel])
def test_first_position_is_where_the_model_begins(kind):
    """Word, position and type of the first block are the model's own embeddings.

    Nystromformer, MRA and YOSO count from row 2 of a table without a padding id: they were read from row 0.
    """
    torch.manual_seed(0)
    model = kind(kind.config_class(**SIZES, max_position_embeddings=32, initializer_range=0.3)).double().eval()
    ids = torch.randint(5, 40, (2, 9))
    with torch.no_grad():
        block = first_block(model)
        summed = block.words(ids) + block.positions[:9] + (0 if block.types is None else block.types)
        torch.testing.assert_close(block.norm(summed), model.embeddings(ids))
