"""Ids in bulk: those of the tokenizer itself, word by word or not, and of as much of a text as is wanted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from whatwhere.corpus import add_newline_token, build_tokenizer, counting, train_tokenizer
from whatwhere.corpus.counting import BulkEncoder, splits_at_spaces


def copied(tokenizer) -> Tokenizer:
    return Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())


def byte_level(texts) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    return backend


@pytest.fixture(scope="module")
def backends(documents, tokenizer):
    return {
        "line breaks": copied(tokenizer),
        "wordpiece": copied(train_tokenizer(documents, 120, newline_token=False)),
        "words": copied(build_tokenizer("words", documents)),
        "characters": copied(build_tokenizer("characters", documents)),
        "byte level": byte_level(documents),
    }


NAMES = ["line breaks", "wordpiece", "words", "characters", "byte level"]


def rows(ids, starts):
    return [ids[begin:end].tolist() for begin, end in zip(starts[:-1], starts[1:], strict=True)]


def reference(backend, texts):
    return [e.ids for e in backend.encode_batch(texts, add_special_tokens=False)]


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_tokenizer(name, backends, documents):
    encoder = BulkEncoder(backends[name])
    for _ in range(2):  # the second time every word is known
        ids, starts = encoder.encode(documents)
        assert ids.dtype == np.uint32 and starts.dtype == np.int64
        assert rows(ids, starts) == reference(backends[name], documents)


def test_only_tokenizers_that_split_at_spaces_go_by_word(backends):
    assert [name for name in NAMES if splits_at_spaces(backends[name])] == ["wordpiece", "words"]


# White space, control characters, combining marks, a final sigma, Chinese, special tokens: whatever might reach across
# a space.
ODD = st.text(
    st.one_of(
        st.sampled_from(list(" \n\t\r\u00a0\u0301\u200d\u3000\u2028\x1c\x00\ufffdAbc.,'-[]Σσ中İ\U0001f600")),
        st.characters(codec="utf-8"),
    )
)


@settings(max_examples=200)
@given(st.lists(st.one_of(ODD, st.just("alpha [MASK] Beta.\n[CLS] gamma")), max_size=4))
def test_ids_of_any_text_are_those_of_the_tokenizer(backends, texts):
    for name in ("wordpiece", "words"):
        assert rows(*BulkEncoder(backends[name]).encode(texts)) == reference(backends[name], texts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("enough", [1, 5, 40])
def test_enough_tokens_are_the_first_of_all(name, enough, backends, documents):
    texts = [" ".join(documents[i : i + 9]) for i in range(0, 90, 9)] + [
        "",
        "alpha",
        "\x00 " * 900 + " ".join(documents[:20]),
    ]
    found = rows(*BulkEncoder(backends[name]).encode(texts, enough))
    for ours, theirs in zip(found, reference(backends[name], texts), strict=True):
        assert ours[:enough] == theirs[:enough]
    if enough == 1:
        assert sum(map(len, found)) < sum(map(len, reference(backends[name], texts))) / 2


def test_words_are_forgotten_when_there_are_too_many(backends, documents, monkeypatch):
    monkeypatch.setattr(counting, "MOST_WORDS", 50)
    encoder = BulkEncoder(backends["wordpiece"])
    found = [row for i in range(0, 300, 10) for row in rows(*encoder.encode(documents[i : i + 10]))]
    assert found == reference(backends["wordpiece"], documents)
    assert len(encoder._number) <= 50


def test_an_added_token_stops_word_by_word(backends, documents):
    # [NL] is looked for across spaces.
    plain = train_tokenizer(documents, 120, newline_token=False)
    assert splits_at_spaces(copied(plain)) and not splits_at_spaces(copied(add_newline_token(plain)))


def test_no_texts_give_no_ids(backends):
    for backend in backends.values():
        ids, starts = BulkEncoder(backend).encode([])
        assert len(ids) == 0 and starts.tolist() == [0]
        assert BulkEncoder(backend).encode(["", ""], 3)[1].tolist() == [0, 0, 0]
