"""Titles turn round when the numbers do, and say "not separable" where the intervals touch."""

import numpy as np
import pytest

from whatwhere.papers import DSTG_R2
from whatwhere.points import Point
from whatwhere.report import findings


def at(value: float, half: float | None = 0.01, over: str = "") -> Point:
    """A point with a symmetric interval, or with none; between three seeds if `over` is "seeds"."""
    if over == "seeds":
        seeds = np.roll([-1.0, 0.0, 1.0], round(10 * value))  # so that two points do not move together
        return Point.of(value + (half or 0.0) / 4.3027 * 3**0.5 * seeds[:, None])
    return Point.between(value, None if half is None else value - half, None if half is None else value + half, n=100)


def test_compare_needs_intervals_apart():
    assert findings.compare(at(0.5), at(0.4)) == "above"
    assert findings.compare(at(0.4), at(0.5)) == "below"
    assert findings.compare(at(0.5, 0.08), at(0.4, 0.08)) == "not separable"
    assert findings.compare(at(0.9, None), at(0.1)) == "above" and findings.compare(at(0.9, None), at(0.1, None)) == "not separable"


STREAM = {0: at(0.74), 1: at(0.70), 2: at(0.66), 3: at(0.61), 4: at(0.10)}


@pytest.mark.parametrize(
    ("end", "other", "expected"),
    [
        (at(0.61), at(0.26), "Position stays in the position stream: R² 0.61 in layer 3, 0.26 at the end of `ap`"),
        (at(0.61), at(0.75), "Position stays in the position stream (R² 0.61), but `ap` ends with more: 0.75"),
        (at(0.61), at(0.60), "Not separable: R² of position is 0.61 in the position stream, 0.60 at the end of `ap`"),
        (at(0.61), None, "Position stays in the position stream: R² 0.61 in layer 3"),
        (at(0.52, 0.02), at(0.26), "Not separable whether the position stream keeps position: "
            "R² 0.70 in layer 1, 0.52 in layer 3; `ap` ends with 0.26"),
        (at(0.45), at(0.26), "The position stream of `dstg` keeps part of position: "
            "R² 0.70 in layer 1, 0.45 in layer 3; `ap` ends with 0.26"),
        (at(0.30), at(0.26), "The position stream of `dstg` loses position: "
            "R² 0.70 in layer 1, 0.30 in layer 3; `ap` ends with 0.26"),
        (at(0.05), at(0.26), "The position stream of `dstg` does not keep position: "
            "R² 0.70 in layer 1, 0.05 in layer 3; `ap` ends with 0.26"),
    ],
)  # fmt: skip
def test_kept_follows_the_numbers(end, other, expected):
    title = findings.kept("position", "dstg", STREAM | {3: end}, 3, "ap", other)
    assert title == expected


def test_kept_ignores_the_layer_without_gradient():
    assert "layer 3" in findings.kept("position", "dstg", STREAM, 3, "ap", at(0.26))


def test_kept_says_that_position_stays_on_the_papers_own_values():
    paper = DSTG_R2
    stream = {layer: at(paper["r2.token", "dstg", "position", layer]) for layer in range(1, 6)}
    title = findings.kept("position", "dstg", stream, 5, "ap", at(paper["r2.token", "ap", "all", 6]))
    assert title == "Position stays in the position stream: R² 0.89 in layer 5, 0.24 at the end of `ap`"
    semantic = {layer: at(paper["r2.token", "dstg", "semantic", layer]) for layer in range(1, 6)}
    assert findings.apart("position", stream, semantic, 5).startswith("The semantic stream holds little position: R² up to 0.44")


def test_a_model_on_the_plateau_supports_no_finding():
    title = findings.kept("position", "dstg", STREAM, 3, "ap", at(0.26))
    assert findings.untestable("dstg", title) == (
        "Not testable, `dstg` has learned token frequencies only: R² 0.61 in layer 3, 0.26 at the end of `ap`"
    )
    assert findings.untestable("dstg", "no numbers").endswith(": no numbers")


def test_apart_turns_round():
    high, low = {1: at(0.6), 2: at(0.6)}, {1: at(0.05), 2: at(0.03)}
    assert (
        findings.apart("position", high, low, 2)
        == "The semantic stream holds little position: R² up to 0.05, at least 0.60 in the position stream"
    )
    assert findings.apart("position", low, high, 2).startswith("The semantic stream holds more position than the position stream")
    assert findings.apart("position", high, {1: at(0.55), 2: at(0.52)}, 2).startswith("The semantic stream holds position too")
    assert findings.apart("position", high, {1: at(0.6), 2: at(0.03)}, 2).startswith("Not separable in every layer")
    assert findings.apart("position", high, {}, 2) is None


def test_progress_turns_round():
    assert findings.progress({3: at(0.03)}, {3: at(0.5)}, 3).startswith(
        "Progress inside a segment is read from the semantic stream: R² 0.50"
    )
    assert findings.progress({3: at(0.5)}, {3: at(0.03)}, 3).startswith(
        "Progress inside a segment is read from the position stream: R² 0.50"
    )
    assert findings.progress({3: at(0.5)}, {3: at(0.5)}, 3).startswith("Not separable")
    assert findings.progress({}, {3: at(0.5)}, 3) is None


def test_best_names_model_and_layer():
    assert (
        findings.best("position", {"ap": {0: at(0.9), 1: at(0.5)}, "rope": {0: at(0.1)}})
        == "Position is read best in layer 0 of `ap`: R² 0.90"
    )
    assert findings.best("position", {}) == "R² of position, layer by layer"


def test_plane_needs_nine_tenths():
    close = findings.plane({"dstg": at(0.987, None), "ap": at(0.54, None)}, "dstg")
    assert close == "`dstg`'s position table lies close to a plane: two components hold 98.7\u202f% of its variance, 54.0\u202f% of `ap`'s"
    assert "is no plane" in findings.plane({"dstg": at(0.899, None)}, "dstg")


def test_needed_counts_components():
    assert findings.needed({"dstg": 2, "ap": None}, {"dstg": 8, "ap": 120}) == (
        "95\u202f% of the variance takes 2 of 8 components in `dstg` and more than recorded of 120 in `ap`"
    )


@pytest.mark.parametrize(
    ("shares", "verb"), [((0.98, 0.99), "are slow waves:"), ((0.98, 0.6), "are slow waves in part:"), ((0.2, 0.1), "are not slow waves:")]
)
def test_slow_needs_power_in_the_lowest_frequencies(shares, verb):
    assert verb in findings.slow({"dstg": shares, "ap": (0.1, 0.2)}, "dstg")


def test_losses_names_who_left_the_plateau():
    finals = {"dstg": at(4.2, None), "ap": at(4.6, None), "rope": at(3.7, None)}
    assert findings.losses(finals, 6.4) == "All three models leave the unigram plateau; `rope` ends lowest at 3.70 nats (one seed)"
    assert findings.losses(finals | {"ap": at(6.35, None)}, 6.4).startswith("`ap` stays on the unigram plateau; `rope` ends lowest")
    assert findings.losses({m: at(6.4, None) for m in finals}, 6.4) == "No model leaves the unigram plateau of 6.40 nats"
    assert findings.losses(finals, None) == "`rope` ends lowest at 3.70 nats (one seed)"


def test_losses_with_seeds_need_intervals_apart():
    apart = {"ap": at(4.6, 0.1, "seeds"), "rope": at(3.7, 0.1, "seeds")}
    touching = {"ap": at(3.8, 0.1, "seeds"), "rope": at(3.7, 0.1, "seeds")}
    assert findings.losses(apart, 6.4) == "Both models leave the unigram plateau; `rope` ends lowest at 3.70 nats"
    assert findings.losses(touching, 6.4) == "Both models leave the unigram plateau; the lowest two, `rope` and `ap`, are not separable"


def test_a_small_run_says_so_first():
    found = findings.caveats([4.8e6], [1.5e6], 1, ["ap"], True, 4)
    assert found[0].startswith("This is a small run: 4.80M training tokens a model and 1.50M parameters")
    assert "`ap` did not leave the unigram plateau" in found[1]
    assert found[2].startswith("One training seed")


def test_many_stuck_models_are_not_listed_one_by_one():
    names = [f"m{i}" for i in range(20)]
    assert findings.caveats([9e9], [1e8], 5, names, True, 20)[0].startswith("None of the 20 models left the unigram plateau")
    assert findings.caveats([9e9], [1e8], 5, names, True, 21)[0].startswith("`m0`, `m1`, `m2` and 17 more did not leave")


def test_titles_over_many_tables_give_the_ends():
    top = {"dstg": Point.between(0.95), **{f"m{i}": Point.between(0.1 * i) for i in range(1, 6)}}
    assert findings.plane(top, "dstg").endswith("95.0\u202f% of its variance, 10.0\u202f% (`m1`) to 50.0\u202f% (`m5`) of the others'")
    low = {"dstg": [0.95, 0.95], **{f"m{i}": [0.1 * i, 0.0] for i in range(1, 6)}}
    assert findings.slow(low, "dstg").endswith("the others' first component 10.0\u202f% (`m1`) to 50.0\u202f% (`m5`)")
    columns = dict.fromkeys("abcde", 120)
    assert findings.needed({"a": 2, "b": 9, "c": 70, "d": None, "e": 3}, columns).endswith("takes 2 components in `a`, 70 of 120 in `c`")
    assert findings.needed(dict.fromkeys("abcde"), columns).endswith("more components than were recorded")
    assert findings.needed(dict.fromkeys("abcde", 2), columns).endswith("2 components in every table")


def test_moved_follows_the_interval():
    streams = {"split": at(0.2), "dstg": at(0.01, 0.005), "other": at(0.05, 0.02)}
    assert findings.moved(streams, {}) == (
        "When positions shift, the semantic stream moves in `split` (20.0\u202f%), but hardly moves in `dstg` (1.0\u202f%), "
        "but moves by an amount not separable from little in `other` (5.0\u202f%)"
    )
    assert findings.moved({}, {"ap": at(0.5)}) == "When positions shift, the last layer moves in `ap` (50.0\u202f%)"
    four = {"a": at(0.2), "b": at(0.3), "c": at(0.4), "d": at(0.5)}
    assert "of 4 models by 20.0\u202f% (`a`) to 50.0\u202f% (`d`)" in findings.moved(four, {})


def test_a_large_run_with_seeds_has_no_caveat():
    assert findings.caveats([9e9], [1e8], 5, [], True, 4) == []
