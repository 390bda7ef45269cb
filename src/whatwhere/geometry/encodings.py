"""Position tables that need no training, for comparison: sinusoidal, RoPE, ALiBi, random (GEOM section 6.3)."""

from collections.abc import Callable, Sequence

import numpy as np


def sinusoidal(n: int, d: int) -> np.ndarray:
    """Return the sinusoidal table (n, d): columns 2k and 2k + 1 are sin and cos of i / 10000^(2k/d) (Vaswani et al.
    2017; GEOM eq. 2)."""
    angles = _angles(n, d)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, -1)[:, :d]


def rope(n: int, d: int, head_width: int = 64) -> np.ndarray:
    """Return RoPE as a table (n, d): cos and sin of i / 10000^(2k/head_width) for position i, repeated for
    every head.

    RoPE has no table: it turns queries and keys. GEOM gives a stress of RoPE and does not name the table; these columns
    come within 1 % of it with heads 64 wide (the distances of `sinusoidal` at width head_width, times √(d /
    head_width)).

    Raises:
        ValueError: `head_width` is odd, or d is no multiple of it.
    """
    if head_width < 2 or head_width % 2 or d % head_width:
        raise ValueError(
            f"RoPE needs an even head_width that divides d: d={d}, head_width={head_width}. For example d=768, "
            "head_width=64."
        )
    angles = _angles(n, head_width)
    return np.tile(np.concatenate([np.cos(angles), np.sin(angles)], axis=1), d // head_width)


def alibi(n: int, heads: int = 12, slopes: Sequence[float] | None = None) -> np.ndarray:
    """Return ALiBi as a table (n, heads): -m_h · i / n for position i and head h.

    ALiBi has no table either: it subtracts m_h · |i - j| from scores. All distances of this one are multiples of |i -
    j|, so that slopes matter to raw stress only. By default m_h = 2^(-8h/heads), h from 1: the slopes of Press et al.
    2022 where `heads` is a power of two, and those that give GEOM's stress on SST-2 for 12 (the rule of their code for
    12 heads gives 0.49 there). GEOM's value for IMDB comes out with all slopes 1.

    Raises:
        ValueError: the number of slopes is not `heads`.
    """
    chosen = 2.0 ** (-8 * np.arange(1, heads + 1) / heads) if slopes is None else np.asarray(slopes, dtype=np.float64)
    if chosen.shape != (heads,):
        raise ValueError(
            f"ALiBi needs a slope for each head: heads={heads}, {chosen.size} slopes. Give as many slopes as heads."
        )
    return -np.arange(n)[:, None] * chosen / n


def random_table(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Draw a table (n, d) of independent standard normal values."""
    return np.random.default_rng(seed).normal(size=(n, d))


# name -> table of n positions at width d. RoPE's head is 64 wide, or as wide as a smaller table; ALiBi has 12 columns
# for any d.
ENCODINGS: dict[str, Callable[[int, int], np.ndarray]] = {
    "sinusoidal": sinusoidal,
    "rope": lambda n, d: rope(n, d, min(64, d)),
    "alibi": lambda n, d: alibi(n),
    "random": random_table,
}


def _angles(n: int, d: int) -> np.ndarray:
    """Return i · 10000^(-2k/d) for k < d/2, rounded up; (n, ⌈d/2⌉)."""
    k = np.arange((d + 1) // 2)
    return np.arange(n)[:, None] * np.exp(-2 * k / d * np.log(10000.0))
