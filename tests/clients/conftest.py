"""A saved model and made-up texts, as somebody who knows other libraries has them."""

from pathlib import Path

import pytest
import torch
from cli_runner import sentences
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import whatwhere as ww
from whatwhere.corpus import open_source, train_tokenizer

# Two streams; one stream of NeoBERT's block; BERT's block with a bias of distances.
PRESETS = ["dstg", "rope", "tupe-r"]


@pytest.fixture(scope="session", params=PRESETS)
def folder(request, tmp_path_factory) -> Path:
    """A folder as `whatwhere pretrain` leaves it, weights far enough from zero that every layer matters."""
    path = tmp_path_factory.mktemp(request.param)
    (path / "texts.txt").write_text(sentences(200), encoding="utf-8")
    tokenizer = train_tokenizer(open_source(str(path / "texts.txt")), 300)
    config = ww.preset(request.param, "tiny", vocab_size=len(tokenizer), num_hidden_layers=2, dropout=0.0)
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.03 * torch.randn_like(parameter))
    model.save_pretrained(path / "model")
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(path / "model")
    ww.write_sentence_transformer(path / "model")
    return path / "model"


@pytest.fixture(scope="session")
def tokenizer(folder) -> PreTrainedTokenizerFast:
    """The tokenizer of the folder."""
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Thirty-two made-up texts of different lengths."""
    return sentences(32, seed=1).strip().split("\n\n")


@pytest.fixture
def batch(tokenizer, texts) -> dict[str, torch.Tensor]:
    """Eight texts, the shorter ones padded."""
    return dict(tokenizer(texts[:8], padding=True, truncation=True, max_length=48, return_tensors="pt"))
