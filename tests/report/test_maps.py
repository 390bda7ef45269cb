"""Heat maps: thinned to a bound, rounded to four digits, colours in even steps from the ground of the page to its
ink."""

import itertools
import math

import numpy as np
import pytest

from whatwhere.report.forms.maps import heatmap, rounded, thinned
from whatwhere.report.style import MAPS, PALETTES, diverging, sequential


@pytest.mark.parametrize("size", [0, 1, 2, 255, 256, 257, 511, 512, 513, 8192])
def test_thinned_steps_are_equal_and_few(size):
    kept = thinned(size)
    assert len(kept) <= 256 and (not kept or kept[0] == 0) and (size > 256 or kept == list(range(size)))
    assert len({b - a for a, b in itertools.pairwise(kept)}) <= 1
    assert len(thinned(size, 7)) <= 7


def test_rounded_keeps_four_digits_and_no_nan():
    assert rounded(np.array([1.23456, np.nan, -np.inf])) == [1.235, None, None]
    assert rounded(np.array([[0.0123456, 2e-9]])) == [[0.01235, 0.0]]
    assert rounded(np.array([[5.4321]]), extent=1000.0) == [[5.0]]
    assert rounded(np.zeros(2)) == [0.0, 0.0] and rounded(np.array([123456.0])) == [123456.0]


def test_a_map_names_colours_and_shares_limits():
    made = heatmap(
        np.array([[0.0, -1.0]]),
        ["a", "b"],
        [0],
        "title",
        "x %{x}: %{z:.3f}",
        (-2, 2),
        ("x", "y"),
        signed=True,
        square=True,
    )
    (trace,) = made.data
    assert (
        trace["zmid"] == 0
        and (trace["zmin"], trace["zmax"]) == (-2, 2)
        and trace["hovertemplate"].endswith("<extra></extra>")
    )
    assert trace["colorscale"] == diverging() and trace["colorscale"][4] == [0.5, "@signed-4"]
    assert made.layout["yaxis"]["scaleanchor"] == "x" and made.layout["meta"] == {"square": True}


def lightness(colour: str) -> float:
    """OKLab lightness of a hex colour (Ottosson 2020)."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    return float(np.cbrt(cones @ linear) @ [0.2104542553, 0.7936177850, -0.0040720468])


@pytest.mark.parametrize("theme", MAPS)
def test_lightness_runs_one_way_from_the_ground(theme):
    ways = [lightness(MAPS[theme][name[1:]]) for _, name in sequential()]
    steps = np.diff(ways) * (-1 if theme == "light" else 1)
    assert steps.min() > 0.02 and math.isclose(ways[0], lightness(PALETTES[theme]["surface"]), abs_tol=0.05)
    signed = [lightness(MAPS[theme][name[1:]]) for _, name in diverging()]
    assert np.abs(np.subtract(signed, signed[::-1])).max() < 0.06  # both signs weigh the same
    assert sequential(3)[0] == [0.0, "@map-3"] and sequential(3)[-1] == [1.0, "@map-8"]
