"""transformers' own common tests of a model: ours pass what its BERT passes, by the tests of the version in use."""

import importlib.util
from pathlib import Path

import pytest
from common_suite import outcomes, source_folder

import whatwhere as ww
from whatwhere.encoder import PRESETS

pytestmark = pytest.mark.slow

# What BERT passes and schemes do not in which special tokens have a part of their own, or tokens end segments: vectors
# alone do not say which these are. A client gives special_tokens_mask or input_ids beside them; to guess would be a
# silent mistake.
BY_VECTORS = {"test_inputs_embeds", "test_inputs_embeds_matches_input_ids"}


@pytest.fixture(scope="module")
def source() -> Path:
    """The source distribution of the installed transformers, whose common tests are not in its wheel."""
    if importlib.util.find_spec("parameterized") is None:
        pytest.skip("transformers' tests need the package parameterized: pip install 'whatwhere[test]'")
    try:
        return source_folder()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def control(source) -> dict[str, tuple[str, str]]:
    """What transformers' BERT gives in the same tests."""
    return outcomes(source, "bert")


def test_control_passes_most_of_the_common_tests(control):
    """The harness runs the tests: BERT passes a hundred or more of them and fails none."""
    passed = [name for name, (outcome, _) in control.items() if outcome == "passed"]
    assert len(passed) >= 100
    assert not {name: reason for name, (outcome, reason) in control.items() if outcome == "failed"}


def exceptions(preset: str) -> set[str]:
    """The tests that BERT passes and the preset does not."""
    config = ww.preset(preset, "tiny")
    reads_ids = config.absolute_skips_special or config.relative_special != "none" or config.reset != "none"
    return BY_VECTORS if reads_ids or config.bilevel else set()


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_passes_what_bert_passes(preset, source, control):
    """Every common test that BERT passes passes, the listed exceptions apart, and none of these passes unnoticed."""
    ours = outcomes(source, preset)
    assert set(ours) == set(control)
    passed = {name for name, (outcome, _) in control.items() if outcome == "passed"}
    behind = {
        name: " ".join(end)
        for name, end in ours.items()
        if end[0] == "failed" or (end[0] != "passed" and name in passed)
    }
    listed = exceptions(preset)
    assert not {name: reason for name, reason in behind.items() if name not in listed}
    assert not listed - set(behind), "no exception any more: take it off the list"
