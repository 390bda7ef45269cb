"""Write the position tables that the controls of the start studies begin with: 128 rows, 8 columns, float64.

    python docs/results/start/tables.py OUT

fast.npy: two waves of twenty turns in the 128 rows, 0.1 large, in two columns. pair.npy: noise of 0.07 in two columns.
hint.npy: half a turn, 0.03 large, on noise of 0.02 in all columns. smooth.npy: noise of 0.02 in all columns, each
column a sum of its first eight waves. All columns that are not named are zero. Noise is drawn from seed 0.
smooth-ap.npy: as smooth.npy, in the 120 columns of `ap` of size tiny.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.fft import idct

from whatwhere.encoder.tables import half_turn

ROWS = 128
WIDTH = 8
WIDTH_OF_AP = 120
SPREAD = 0.02  # of a random start


def main() -> None:
    """Write the four tables to the folder that the command line names."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    fast = np.zeros((ROWS, WIDTH))
    angles = 2 * np.pi * 20 * np.arange(ROWS) / ROWS
    fast[:, 0] = 0.1 * np.cos(angles)
    fast[:, 1] = 0.1 * np.sin(angles)
    pair = np.zeros((ROWS, WIDTH))
    pair[:, :2] = 0.07 * random.standard_normal((ROWS, 2))
    hint = 0.03 * half_turn(ROWS, WIDTH).numpy() + SPREAD * random.standard_normal((ROWS, WIDTH))
    tables = {"fast": fast, "pair": pair, "hint": hint, "smooth": _smooth(random, WIDTH)}
    tables["smooth-ap"] = _smooth(random, WIDTH_OF_AP)
    for name, table in tables.items():
        np.save(out / f"{name}.npy", table)


def _smooth(random: np.random.Generator, width: int) -> np.ndarray:
    """Return noise of 0.02 whose neighbouring rows are alike (rows, width)."""
    waves = np.zeros((ROWS, width))
    waves[1:9] = random.standard_normal((8, width))
    smooth = idct(waves, axis=0, norm="ortho")
    return smooth * (SPREAD / np.sqrt(np.mean(smooth**2)))


if __name__ == "__main__":
    main()
