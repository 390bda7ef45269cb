"""Which schemes tell [CLS] and [SEP] from each other and from words by their terms alone."""

import pytest
import torch
from encoder_models import CLS, SEP, build


@pytest.mark.parametrize(
    ("case", "same"), [("split", True), ("bert-ad", True), ("tupe-a-tie-cls", True), ("tupe-a", False), ("dstg", True)]
)
def test_only_tupes_reset_tells_cls_from_sep(case, same):
    """With equal embeddings of both tokens, the states differ under TUPE's reset alone."""
    # With equal embeddings, TUPE's reset alone does; DSTG has both in S.
    model = build(case)
    ids = torch.tensor([[7, CLS, 8, 9]])
    with torch.no_grad():
        model.encoder.word_embeddings.weight[CLS] = model.encoder.word_embeddings.weight[SEP]
        gap = float((model.encoder(ids)[0] - model.encoder(torch.where(ids == CLS, SEP, ids))[0]).abs().max())
    assert gap == 0 if same else gap > 1e-3


@pytest.mark.parametrize(
    ("case", "same"), [("split", True), ("bert-a", True), ("tupe-a", True), ("dstg", False), ("rp", False)]
)
def test_only_relative_schemes_tell_sep_from_a_word(case, same):
    """With equal embeddings, the special values of `dstg` and `rp` alone tell [SEP] from a word."""
    model = build(case)
    ids = torch.tensor([[CLS, 7, SEP, 9]])
    with torch.no_grad():
        model.encoder.word_embeddings.weight[SEP] = model.encoder.word_embeddings.weight[8]
        gap = float((model.encoder(ids)[0] - model.encoder(torch.where(ids == SEP, 8, ids))[0]).abs().max())
    assert gap == 0 if same else gap > 1e-3
