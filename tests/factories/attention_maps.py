"""Made-up attention of every head in a text, for the tests of the explorer."""

import numpy as np

LEVELS = (np.arange(256) / 255) ** 2


def softmax(scores):
    found = np.exp(scores - scores.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def as_bytes(weights):
    return np.rint(255 * np.sqrt(weights)).astype(np.uint8)


def attention(layers, heads, n, seed=0, std=2.0):
    """Peaky content scores of words that come again, smooth position scores, a bias of the distance, and their sum; in
    bytes."""
    rng = np.random.default_rng(seed)
    words = rng.standard_normal((max(2, n // 3), 32))[rng.integers(max(2, n // 3), size=n)] + 0.5 * rng.standard_normal(
        (n, 32)
    )
    waves = np.cos(np.pi * np.outer(np.arange(n) / n, np.arange(1, 5)))
    lag = np.abs(np.arange(n)[:, None] - np.arange(n))
    maps = {name: np.empty((layers, heads, n, n), np.uint8) for name in ("semantic", "absolute", "relative", "total")}
    for layer in range(layers):
        for head in range(heads):
            content = words @ rng.standard_normal((32, 32)) @ words.T
            content *= std / content.std()
            place = 1.5 * waves @ rng.standard_normal((4, 4)) @ waves.T
            bias = -rng.random() * np.log1p(lag)
            for name, scores in zip(maps, (content, place, bias, content + place + bias), strict=True):
                maps[name][layer, head] = as_bytes(softmax(scores))
    return maps
