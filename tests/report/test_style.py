"""Contrast of both palettes, distinct marks, labels that do not touch, names that plotly shows literally."""

import itertools

import numpy as np
import pytest

from whatwhere.report.style import (
    LABEL_GAP,
    MODEL_COLOURS,
    PALETTES,
    line_end_labels,
    log_axis,
    model_styles,
    plain,
    spread,
)


def contrast(one: str, two: str) -> float:
    """WCAG 2 contrast ratio of two hex colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", PALETTES)
@pytest.mark.parametrize("ground", ["surface", "raised"])
def test_text_colours_reach_aa(theme, ground):
    palette = PALETTES[theme]
    for name in ("text", "muted", "link", *(n for n in palette if n.startswith(("ink-", "model-")))):
        assert contrast(palette[name], palette[ground]) >= 4.5, name


@pytest.mark.parametrize("theme", PALETTES)
def test_line_colours_reach_three_to_one(theme):
    palette = PALETTES[theme]
    for name in ("semantic", "absolute", "relative", "combined", "untied"):
        assert contrast(palette[name], palette["surface"]) >= 3, name


# What is left of light for those who lack one kind of cone (Viénot, Brettel and Mollon 1999), on linear RGB.
SEEN = {
    "all": np.eye(3),
    "without red": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "without green": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
}


def oklab(colour, eye):
    """Where a hex colour stands in OKLab, as some eye sees it."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    cones = np.array([[0.41222, 0.53633, 0.05145], [0.2119, 0.6807, 0.1074], [0.0883, 0.28172, 0.62998]]) @ np.clip(
        np.array(SEEN[eye]) @ linear, 0, 1
    )
    return np.array([[0.21045, 0.79362, -0.00407], [1.978, -2.42859, 0.45059], [0.0259, 0.78277, -0.80868]]) @ np.cbrt(
        cones
    )


@pytest.mark.parametrize("theme", PALETTES)
@pytest.mark.parametrize("eye", SEEN)
def test_colours_of_models_are_told_apart_by_every_eye(theme, eye):
    models = [oklab(colour, eye) for colour in MODEL_COLOURS[theme]]
    streams = [oklab(PALETTES[theme][name], eye) for name in ("semantic", "absolute", "relative", "combined")]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(models, 2)) > 0.07
    assert min(np.linalg.norm(a - b) for a in models for b in streams) > 0.035


def test_light_streams_have_the_colours_agreed():
    light = PALETTES["light"]
    assert [light[n] for n in ("semantic", "absolute", "relative", "combined")] == [
        "#0072B2",
        "#D55E00",
        "#009E73",
        "#555555",
    ]
    assert PALETTES["dark"].keys() == light.keys()


def test_models_differ_in_dash_and_marker():
    styles = model_styles(["dstg", "ap", "rp", "rope", "nope", "alibi", "bert-a", "split"])
    assert len({dash for dash, _ in styles.values()}) == len({marker for _, marker in styles.values()}) == 8
    assert styles["dstg"] == ("solid", "circle")
    assert len(set(model_styles([f"own-{i}" for i in range(30)]).values())) == 30


@pytest.mark.parametrize("places", [[0.0, 0.0, 0.0], [5.0, 4.0, 4.5, 100.0], [], [3.0], [10, 20, 30]])
def test_spread_keeps_order_and_gap(places):
    placed = spread(places, 17)
    assert [placed[i] for i in sorted(range(len(places)), key=lambda i: places[i])] == sorted(placed)
    assert all(b - a >= 17 - 1e-9 for a, b in itertools.pairwise(sorted(placed)))


def test_spread_is_least_squares():
    """Spread moves nothing that has room and is least squares."""
    assert spread([0, 50, 100], 17) == [0, 50, 100]
    assert spread([10, 10], 20) == [0, 20]
    assert spread([0, 0, 0], 10, low=0) == [0, 10, 20]
    assert spread([99, 100], 10, high=100) == [90, 100]


def test_labels_at_line_ends_do_not_touch():
    ends = [(4.0, y, name, "combined", name) for y, name in ((0.02, "a"), (0.03, "b"), (0.025, "c"), (0.9, "d"))]
    labels = line_end_labels(ends, (-0.05, 1.05), 400)
    shown = sorted((1.05 - note["y"]) * 400 / 1.1 + note["ay"] for note in labels)
    assert all(b - a >= LABEL_GAP - 1e-6 for a, b in itertools.pairwise(shown))


def test_plain_takes_tags_entities_and_templates_away():
    assert plain("<a href='javascript:x'>y</a>") == "&lt;a href='javascript:x'&gt;y&lt;/a&gt;"
    assert "%{" not in plain("%{x}") and "$" not in plain("$x$") and "&amp;lt;" in plain("&lt;")
    assert plain("a-very-long-model-name", 8) == "a-very-…"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.01, 1000, ["0.01", "0.1", "1", "10", "100", "1,000"][::2]),
        (0.5, 150, ["1", "10", "100"]),
        (0.03, 0.4, ["0.05", "0.1", "0.2"]),
        (1e-4, 1e4, ["0.0001", "0.01", "1", "100", "10,000"]),
        (0.31, 0.33, ["0.31", "0.33"]),
    ],
)
def test_logarithmic_axes_write_few_round_numbers(low, high, said):
    assert log_axis("x", low, high)["ticktext"] == said
