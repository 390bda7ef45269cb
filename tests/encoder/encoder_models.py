"""A tiny model of any preset with every weight random, in float64."""

import torch

import whatwhere as ww

VOCAB = 40


def build(name: str, **fields) -> ww.EncoderForMaskedLM:
    """Random weights everywhere: the zeros that tables start with would hide mistakes."""
    sizes = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 3, "max_position_embeddings": 32}
    if name.startswith("dstg"):
        sizes |= {"position_size": 8}
    config = ww.preset(name, "tiny", vocab_size=VOCAB, relative_buckets=8, relative_max_distance=12, **(sizes | fields))
    model = ww.EncoderForMaskedLM(config).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64) + (parameter.ndim == 1))
    return model
