"""How many tokens a model of transformers reads: as many as it takes, and one more is an error of its own."""

import pytest
import torch
import transformers
from foreign_models import save
from transformers import AutoModel, AutoTokenizer, RobertaConfig, RobertaForMaskedLM

import whatwhere as ww
from whatwhere.models.lengths import configured_length, max_tokens, position_rows
from whatwhere.models.open import open_model

SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 50}
ROWS = {"num_hidden_layers": 1, "max_position_embeddings": 20, "pad_token_id": 3}
FROM_PADDING = (
    "Roberta",
    "XLMRoberta",
    "XLMRobertaXL",
    "Camembert",
    "Longformer",
    "Data2VecText",
    "Esm",
    "IBert",
    "Luke",
)
FROM_PADDING += ("RobertaPreLayerNorm", "MarkupLM")
OTHERS = {"Bert": 20, "MPNet": 18, "Bart": 20, "Nystromformer": 20, "Mra": 20, "RoFormer": 20, "DebertaV2": 20}
EVERY = dict.fromkeys(FROM_PADDING, 16) | OTHERS


@pytest.mark.whole
@pytest.mark.parametrize("name", EVERY)
def test_one_token_more_is_one_too_many(name):
    """Positions of ESM, I-BERT, LUKE and MarkupLM were counted from 0: an IndexError inside the model."""
    config = getattr(transformers, f"{name}Config")(**SIZES, **ROWS)
    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval()
    most = max_tokens(config)
    assert most == configured_length(config.to_dict()) == EVERY[name]
    with torch.no_grad():
        assert model(input_ids=torch.full((1, most), 7)).last_hidden_state.shape == (1, most, 16)
        with pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, most + 1), 7))


def test_reading_the_rows_leaves_the_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert position_rows(RobertaConfig(**SIZES, **ROWS, bos_token_id=9)).unused == 4
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("pad", [-1, "one"])
def test_a_padding_id_that_is_no_row_is_refused(pad):
    with pytest.raises(ValueError, match=f"pad_token_id of a model of type roberta is {str(pad)!r}, no row"):
        configured_length({"model_type": "roberta", "pad_token_id": pad, "max_position_embeddings": 20})


def test_a_long_text_of_a_roberta_with_another_padding(tmp_path):
    """A RoBERTa whose padding id is 3 read two tokens too many: index 34 is out of bounds for dimension 0."""
    folder = save("roberta", tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = RobertaConfig.from_pretrained(folder, pad_token_id=3)
    torch.manual_seed(0)
    RobertaForMaskedLM(config).save_pretrained(folder)
    opened = open_model(folder)
    assert opened.max_tokens == 30
    text = "la ne to ri " * 30
    assert len(tokenizer(text)["input_ids"]) > 34
    found = ww.predict(folder, [text], what="vectors")
    assert found.shape == (1, 16)
    short = "la ne to"
    with torch.no_grad():
        expected = opened.model(**tokenizer(short, return_tensors="pt")).last_hidden_state.mean(1)
    torch.testing.assert_close(torch.from_numpy(ww.predict(folder, [short], what="vectors")), expected)
