"""Segment boundaries from characters, and the targets of DSTG section 5 against loops over the tokens."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from whatwhere.corpus.segments import DOCUMENT, SEGMENT, SPECIAL, segment_starts, token_segments
from whatwhere.corpus.shards import Part, encode_parts


def split(text: str) -> list[str]:
    cuts = [0, *segment_starts(text).tolist(), len(text)]
    return [text[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]


@pytest.mark.parametrize(
    "pieces",
    [
        ["One. ", "Two! ", "Three? ", "Four… ", "Five"],
        ['He said "No." ', "(Really?) ", "“Yes!” ", "Then left."],
        ["it was bad . ", "i hated it . ", "lower case"],
        ["Line without stop\n", "next line\r\n\r\n", "paragraph.\n  ", "end"],
        ["Pi is 3.14 in math.pi, not 3.15. ", "Right"],
        ["See e.g. Fig. 3, cf. J. R. Smith, U.S. Army. ", "Next"],
        ["Take x. ", "If not, wait... ", "done"],
        ["In 1990. ", "Then 2.\n", "1. First\n ", "2. Second"],
        ["Dr. No"],
        ["At a line end Dr.\n", "breaks"],
        [""],
        ["."],
        ["No white space.After it"],
    ],
)
def test_sentences_and_lines_are_segments(pieces):
    assert split("".join(pieces)) == pieces


@given(st.text(alphabet=list("ab .!?…\"')\n1U"), max_size=60))
def test_segment_starts_ascend_at_visible_characters(text):
    """Starts are ascending inside the text and at visible characters."""
    starts = segment_starts(text)
    assert (np.diff(starts) > 0).all()
    assert all(0 < s < len(text) and not text[s].isspace() and text[s - 1].isspace() for s in starts)


@pytest.mark.parametrize(
    "text", ["." * 1_000_000, "x" * 1_000_000, "\n" * 1_000_000, '."' * 500_000, " " * 1_000_000 + "x"]
)
def test_segments_are_found_in_linear_time(text):
    """A megabyte of one kind is read in linear time."""
    assert len(segment_starts(text)) <= 1  # a quadratic search would take hours


@given(st.lists(st.sampled_from([0, SEGMENT, SPECIAL, SPECIAL | DOCUMENT, SEGMENT | DOCUMENT]), max_size=40))
def test_targets_equal_the_definition(marks):
    segments, progress = token_segments(np.array(marks, dtype=np.uint8))
    expected = []
    current = -1
    started = False
    for mark in marks:
        if mark & SPECIAL:
            expected.append(-1)
            continue
        if mark & SEGMENT or not started:
            current, started = current + 1, True
        expected.append(current)
    assert segments.tolist() == expected
    for i, k in enumerate(expected):
        members = [j for j, other in enumerate(expected) if other == k]
        if k < 0 or len(members) == 1:
            assert math.isnan(progress[i])
        else:
            assert progress[i] == pytest.approx(members.index(i) / (len(members) - 1))


def test_the_worked_example_has_its_segments_and_progress():
    marks = np.array([SPECIAL, 0, 0, SEGMENT, SPECIAL, SEGMENT, 0, 0, SPECIAL], dtype=np.uint8)
    segments, progress = token_segments(marks)
    assert segments.tolist() == [-1, 0, 0, 1, -1, 2, 2, 2, -1]
    np.testing.assert_array_equal(progress, np.float32([np.nan, 0, 1, np.nan, np.nan, 0, 0.5, 1, np.nan]))
    assert segments.dtype == np.int32 and progress.dtype == np.float32


def test_tokens_with_a_leading_space_begin_their_segment():
    """A token that holds the space before its word counted to the segment before: all starts were one token late."""
    text = "The cat sat there. Second one came home. Third thing is here."
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = trainers.BpeTrainer(vocab_size=2000, show_progress=False, min_frequency=1)
    backend.train_from_iterator([text] * 20, words)
    ((ids, marks),) = encode_parts(backend, [Part(text, True, 0.0)])
    begun = [backend.id_to_token(int(i)) for i, mark in zip(ids, marks, strict=True) if mark & SEGMENT]
    assert begun == ["The", "ĠSecond", "ĠThird"]
