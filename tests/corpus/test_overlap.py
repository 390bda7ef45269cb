"""Documents that are parts of others are found as a naive search finds them, and share a group when they are
counted."""

import random

import numpy as np

from whatwhere.corpus import build_tokenizer, count_source, open_source
from whatwhere.corpus.counting import containing


def test_containing_equals_a_search_over_all_pairs():
    draw = random.Random(0)
    texts = [" ".join(draw.choices("abcde", k=draw.randint(0, 9))) for _ in range(300)]
    found = containing(texts)
    for text in set(texts):
        holders = [other for other in set(texts) if other != text and f" {text} " in f" {other} " and text]
        if found[text] == text:
            assert not holders, (text, holders[:1])
        else:
            assert found[text] in holders and containing([*texts])[found[text]] == found[text]


def test_words_are_not_cut():
    assert containing(["art", "a part of it", "part of"]) == {
        "art": "art",
        "a part of it": "a part of it",
        "part of": "a part of it",
    }


def test_phrases_of_a_sentence_are_counted_in_its_group(tmp_path):
    sentences = [" ".join(f"w{(7 * i + k) % 50}" for k in range(12)) for i in range(50)]
    phrases = [" ".join(s.split()[a : a + 5]) for s in sentences for a in (0, 4)]
    (tmp_path / "all.txt").write_text("\n".join([*phrases, *sentences]), encoding="utf-8")
    source = open_source(tmp_path / "all.txt", document="line")
    tokenizer = build_tokenizer("words", source)
    apart, together = (
        count_source(source, tokenizer, 12, groups=8, phrases=phrases, progress=False) for phrases in (False, True)
    )
    np.testing.assert_array_equal(apart.total().toarray(), together.total().toarray())
    assert together.facts["phrases"] and together.documents.sum() == apart.documents.sum()
    assert not np.array_equal(apart.documents, together.documents)
    assert (
        np.all(together.documents[np.flatnonzero(together.documents)] >= 1)
        and len(np.flatnonzero(together.documents)) <= 8
    )
