"""Maps, norms and activations of vectors (d,), written out for `naive`."""

import math

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def linear(x: Tensor, weights: Weights, name: str) -> Tensor:
    """W x + b, or W x where the layer has no bias."""
    y = weights[f"{name}.weight"] @ x
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / ((x * x).sum() / len(x) + eps) ** 0.5 * weight


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    centred = x - x.sum() / len(x)
    return centred / ((centred * centred).sum() / len(x) + eps) ** 0.5 * weight + bias


def gelu(x: Tensor) -> Tensor:
    """x Φ(x) with the normal distribution function, not its tanh approximation (BERT)."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def swish(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def softmax(logits: list[Tensor]) -> Tensor:
    powers = torch.stack(logits).exp()
    return powers / powers.sum()
