"""Layouts of rows against slow definitions: every token once and in order, full rows, frames, marks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whatwhere.corpus.segments import DOCUMENT, PIECE, SEGMENT, SPECIAL
from whatwhere.corpus.shards import SHORTEST, Part, build_rows, document_share, encode_parts

CLS = 2
SEP = 3


def rows_of(row) -> list[list[int]]:
    return [row.ids[a:b].tolist() for a, b in zip(row.starts, row.starts[1:], strict=False)]


def build(tokenizer, texts, length, join, threshold=0.0, pieces="all"):
    parts = [Part(text, True, document_share(text)) for text in texts]
    return build_rows(tokenizer.backend_tokenizer, parts, length, join, threshold, CLS, SEP, pieces)


def plain_ids(tokenizer, texts) -> list[list[int]]:
    return [tokenizer(text, add_special_tokens=False).input_ids for text in texts]


words = st.lists(st.sampled_from(["alpha", "beta.", "gamma\n", "xyz"]), min_size=1, max_size=12).map(" ".join)


@given(st.lists(words, min_size=1, max_size=8), st.integers(3, 20))
def test_run_on_rows_hold_every_token_once(tokenizer, texts, length):
    """Run on rows are full and hold every token once."""
    rows = rows_of(build(tokenizer, texts, length, "run-on")["train"])
    assert all(row[0] == CLS and row[-1] == SEP and row[1] != SEP for row in rows)
    assert all(len(row) == length for row in rows[:-1]) and 3 <= len(rows[-1]) <= length
    inside = [token for row in rows for token in row[1:-1] if token != SEP]
    assert inside == sum(plain_ids(tokenizer, texts), [])


def test_run_on_rows_equal_the_worked_example(tokenizer):
    a, b, c = plain_ids(tokenizer, ["alpha", "beta", "gamma"])
    assert [len(x) for x in (a, b, c)] == [1, 1, 1]
    rows = build(tokenizer, ["alpha", "beta", "gamma alpha"], 6, "run-on")["train"]
    # The separator between the second and third document would open the second row, so it is left out.
    assert rows_of(rows) == [[CLS, *a, SEP, *b, SEP, SEP], [CLS, *c, *a, SEP]]
    first = SEGMENT | DOCUMENT
    assert rows.marks.tolist() == [SPECIAL, first, SPECIAL, first, SPECIAL, SPECIAL, SPECIAL, first, 0, SPECIAL]


@given(st.lists(words, min_size=1, max_size=8), st.integers(3, 20))
def test_pieces_are_of_one_document_each(tokenizer, texts, length):
    result = build(tokenizer, texts, length, "none")["train"]
    expected = []
    left_out = 0
    for ids in plain_ids(tokenizer, texts):
        for at in range(0, len(ids), length - 2):
            piece = ids[at : at + length - 2]
            if at and len(piece) < min(SHORTEST, length - 2):
                left_out += len(piece)
            else:
                expected.append([CLS, *piece, SEP])
    assert rows_of(result) == expected
    assert result.left_out == left_out


@given(st.lists(words, min_size=1, max_size=8), st.integers(3, 20))
def test_isolated_rows_are_the_pieces_packed_in_order(tokenizer, texts, length):
    pieces = rows_of(build(tokenizer, texts, length, "none")["train"])
    result = build(tokenizer, texts, length, "isolate")["train"]
    expected: list[list[int]] = []
    for piece in pieces:
        if expected and len(expected[-1]) + len(piece) <= length:
            expected[-1] += piece
        else:
            expected.append(list(piece))
    assert rows_of(result) == expected
    opens = np.flatnonzero(result.marks & PIECE)
    assert (result.ids[opens] == CLS).all() and len(opens) == len(pieces)
    begins = np.flatnonzero(result.marks & DOCUMENT)
    assert len(begins) == len(texts) and (result.ids[begins - 1] == CLS).all()


@given(st.lists(words, min_size=1, max_size=8), st.integers(3, 20), st.sampled_from(["none", "isolate"]))
def test_first_pieces_equal_truncated_texts(tokenizer, texts, length, join):
    """First pieces are the texts as a tokenizer truncates them."""
    result = build(tokenizer, texts, length, join, pieces="first")["train"]
    whole = plain_ids(tokenizer, texts)
    expected = [[CLS, *ids[: length - 2], SEP] for ids in whole]
    assert sum(rows_of(result), []) == sum(expected, [])
    assert result.left_out == sum(max(0, len(ids) - (length - 2)) for ids in whole)
    if join == "none":
        assert rows_of(result) == expected
        assert (result.marks[result.starts[:-1] + 1] & DOCUMENT).all()


def test_later_parts_are_no_first_pieces(tokenizer):
    """The later parts of a document are no first pieces."""
    parts = [Part("alpha ", True, 0.5), Part("beta", False, 0.5), Part("gamma", True, 0.5)]
    rows = build_rows(tokenizer.backend_tokenizer, parts, 16, "none", 0.0, CLS, SEP, "first")["train"]
    a, b, c = plain_ids(tokenizer, ["alpha", "beta", "gamma"])
    assert rows_of(rows) == [[CLS, *a, SEP], [CLS, *c, SEP]] and rows.left_out == len(b)


def test_parts_of_one_document_follow_without_separator(tokenizer):
    parts = [Part("alpha ", True, 0.5), Part("beta", False, 0.5), Part("gamma", True, 0.5)]
    rows = rows_of(build_rows(tokenizer.backend_tokenizer, parts, 16, "run-on", 0.0, CLS, SEP)["train"])
    a, b, c = plain_ids(tokenizer, ["alpha", "beta", "gamma"])
    assert rows == [[CLS, *a, *b, SEP, *c, SEP]]


@given(st.lists(words, min_size=1, max_size=8), st.floats(0, 1))
def test_documents_are_split_by_their_share(tokenizer, texts, threshold):
    both = build(tokenizer, texts, 16, "none", threshold)
    held = [t for t in texts if document_share(t) < threshold]
    assert both["held_out"].documents == len(held)
    assert both["train"].documents == len(texts) - len(held)
    assert (
        rows_of(both["held_out"]) == rows_of(build(tokenizer, held, 16, "none")["train"])
        if held
        else not both["held_out"].ids.size
    )


def test_special_tokens_in_the_text_are_plain_text(tokenizer):
    ids = encode_parts(tokenizer.backend_tokenizer, [Part("[SEP] alpha [MASK][CLS]\n[PAD]", True, 0.0)])[0][0]
    assert not set(ids.tolist()) & {0, 2, 3, 4}
    assert tokenizer("[MASK]", add_special_tokens=False).input_ids == [4]  # the caller's tokenizer is as it was


def test_segment_marks_come_from_the_characters(tokenizer):
    ids, marks = encode_parts(tokenizer.backend_tokenizer, [Part("Alpha beta. Gamma\nalpha. alpha", True, 0.0)])[0]
    tokens = tokenizer.convert_ids_to_tokens(ids.tolist())
    opens = [token for token, mark in zip(tokens, marks, strict=True) if mark & SEGMENT]
    assert tokens == ["alpha", "beta", ".", "gamma", "[nl]", "alpha", ".", "alpha"]
    assert opens == ["alpha", "gamma", "alpha", "alpha"]
    assert marks.tolist() == [2, 0, 0, 2, 0, 2, 0, 2]


@pytest.mark.parametrize("text", ["\x00 \x01 alpha\x00", "\ufffd", "\u200b", "e\u0301" * 50, "\U0001f600 alpha"])
def test_strange_characters_do_no_harm(tokenizer, text):
    rows = build(tokenizer, [text], 16, "run-on")["train"]
    assert rows.documents == 1 and len(rows.ids) == len(rows.marks)


def test_truncation_of_a_loaded_tokenizer_is_off(tokenizer):
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=8)
    assert len(encode_parts(backend, [Part("alpha " * 9, True, 0.0)])[0][0]) == 9
