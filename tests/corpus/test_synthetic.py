"""Synthetic documents: A, B and A again, the same ones every time."""

import pytest

from whatwhere.corpus import open_source
from whatwhere.corpus.synthetic import RepeatedDocuments


def test_repeated_documents_say_a_twice():
    source = open_source("synthetic:repeat")
    documents = list(source)
    assert documents == list(open_source("synthetic:repeat")) and len(documents) == 4000
    for document in documents[:50]:
        a, b, again = document.split("\n")
        assert a == again != b and a.count(".") == b.count(".") == 3 and a[0].isupper()
    assert len(set(documents)) > 3900
    assert source.share_read() == 1.0
    assert list(RepeatedDocuments(5, seed=1)) != documents[:5]
    with pytest.raises(ValueError, match="at least one document"):
        RepeatedDocuments(0)
