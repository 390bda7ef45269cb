"""Token ids that the encoder tests share, and the registry as it was after a test."""

import pytest
import torch
from encoder_models import VOCAB

from whatwhere.encoder import registry


@pytest.fixture
def ids() -> torch.Tensor:
    """(2, 9): [CLS] text [SEP] text [SEP], the inner [SEP] at another place in each row."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, VOCAB, (2, 9), generator=generator)
    ids[:, 0] = 2
    ids[:, -1] = 3
    ids[0, 4] = 3
    ids[1, 6] = 3
    return ids


@pytest.fixture
def names():
    """The registry as it was, after the test."""
    known = (registry.TABLES, registry.BIASES, registry.ROTATIONS, registry.PRESETS, registry.SOURCES)
    before = [dict(one) for one in known]
    yield registry
    for one, old in zip(known, before, strict=True):
        one.clear()
        one.update(old)
