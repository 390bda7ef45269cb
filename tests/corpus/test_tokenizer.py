"""Tokenizers: ids, line breaks, BERT's own behaviour from a vocabulary file, and bad input."""

import time

import numpy as np
import pytest
from tokenizers import Regex, normalizers
from transformers import BertTokenizer

from whatwhere.corpus import add_newline_token, build_tokenizer, load_tokenizer, special_token_ids, train_tokenizer
from whatwhere.corpus import tokenizer as tokenizers

VOCABULARY = "[PAD] [unused0] [UNK] [CLS] [SEP] [MASK] a b c ##a ##b ##c the cat ##s sat . , ! [ ] cafe".split()


@pytest.fixture
def vocabulary_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return path


def test_trained_special_tokens_have_the_ids_of_encoder_config(tokenizer):
    assert special_token_ids(tokenizer) == {
        "pad_token_id": 0,
        "unk_token_id": 1,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "mask_token_id": 4,
    }
    assert tokenizer.convert_tokens_to_ids("[NL]") == 5
    assert len(tokenizer) == 120


def test_words_that_are_too_long_are_not_trained_on():
    # The trainer took half a minute over one of 200,000 characters, and Ctrl-C waited for it.
    def trained(word: str) -> dict[str, int]:
        return train_tokenizer(["alpha beta", f"alpha {word} beta"], vocab_size=60).get_vocab()

    assert trained("xy" * 100_000) == trained("") == trained("xy" * 501)
    assert {"x", "##y"} <= {*trained("xy" * 500)}


def test_training_twice_gives_the_same_ids(documents, tokenizer):
    # The trainer itself numbers pieces in the order of a hash map.
    for _ in range(5):
        assert train_tokenizer(iter(documents), vocab_size=120).get_vocab() == tokenizer.get_vocab()


def test_ids_of_continuations_and_pieces_are_sorted(tokenizer):
    pieces = tokenizer.convert_ids_to_tokens(range(6, len(tokenizer)))
    lengths = [len(p.removeprefix("##")) for p in pieces]
    assert lengths == sorted(lengths) and max(lengths) > 3


def test_max_characters_stops_reading():
    def texts():
        yield "one two three " * 10
        yield "four five six " * 10
        raise AssertionError("read on")

    assert len(train_tokenizer(texts(), vocab_size=60, max_characters=200)) <= 60


@pytest.mark.parametrize("text", ["Alpha\nbeta", "Alpha \r\n\r\n\n  beta", "Alpha\u2029beta"])
def test_a_run_of_line_breaks_is_one_newline_token(tokenizer, text):
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == "alpha [nl] beta"
    assert tokenizer(text).input_ids.count(5) == 1


def test_line_breaks_are_found_in_linear_time():
    """A run of 32,000 spaces without a break took 13 seconds; what is replaced is what the plain rule replaces."""
    plain = normalizers.Replace(Regex("\\s*[\\n\\r\u2028\u2029]\\s*"), "[NL]")
    quick = normalizers.Replace(tokenizers._LINE_BREAKS, "[NL]")
    draw = np.random.default_rng(0)
    for _ in range(500):
        text = "".join(draw.choice(list("ab \t\n\r\u2028\x0b\xa0"), size=12))
        assert quick.normalize_str(text) == plain.normalize_str(text), repr(text)
    began = time.process_time()
    assert quick.normalize_str(" " * 300_000 + "x") == " " * 300_000 + "x"
    assert time.process_time() - began < 2


def test_without_newline_token_line_breaks_are_white_space(documents):
    plain = train_tokenizer(documents, vocab_size=120, newline_token=False)
    assert "[NL]" not in plain.get_vocab()
    assert plain("alpha\nbeta").input_ids == plain("alpha beta").input_ids


def test_vocabulary_file_gives_berts_tokenizer(vocabulary_file):
    ours = load_tokenizer(vocabulary_file)
    theirs = BertTokenizer(vocab=str(vocabulary_file))
    assert special_token_ids(ours) == {
        "pad_token_id": 0,
        "unk_token_id": 2,
        "cls_token_id": 3,
        "sep_token_id": 4,
        "mask_token_id": 5,
    }
    for text in ["The CATS sat.", "Café, [MASK] x!", "abc\nabca \u4e2d a\u0000b", "cat" * 50]:
        assert ours(text).input_ids == theirs(text).input_ids
        assert ours(text, text).input_ids == theirs(text, text).input_ids


def test_cased_vocabulary_keeps_case(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*VOCABULARY, "Cat"]), encoding="utf-8")
    assert load_tokenizer(path)("Cat cat", add_special_tokens=False).input_ids == [
        len(VOCABULARY),
        VOCABULARY.index("cat"),
    ]


def test_newline_token_is_added_at_the_end_once(vocabulary_file):
    plain = load_tokenizer(vocabulary_file)
    with_lines = add_newline_token(plain)
    assert len(with_lines) == len(VOCABULARY) + 1
    assert with_lines.convert_tokens_to_ids("[NL]") == len(VOCABULARY)
    assert with_lines("the\ncat").input_ids == [3, 12, len(VOCABULARY), 13, 4]
    assert plain("the\ncat").input_ids == [3, 12, 13, 4]
    assert add_newline_token(with_lines) is with_lines
    assert special_token_ids(with_lines) == special_token_ids(plain)


def test_saved_tokenizer_reads_the_same(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "t")
    loaded = load_tokenizer(tmp_path / "t")
    text = "Alpha [MASK] beta.\n\nGamma"
    assert loaded(text).input_ids == tokenizer(text).input_ids
    assert special_token_ids(loaded) == special_token_ids(tokenizer)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r"no token \[MASK\]"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n", "twice"),
        (b"[PAD]\n\xff\n", "not UTF-8"),
    ],
)
def test_a_bad_vocabulary_file_is_an_error(tmp_path, content, wanted):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=wanted):
        load_tokenizer(path)


@pytest.mark.parametrize("spec", ["nothing/here/at-all", "./missing", "missing-vocab.txt"])
def test_a_missing_tokenizer_is_an_error(spec):
    with pytest.raises(ValueError, match="No tokenizer at"):
        load_tokenizer(spec)


def test_a_folder_without_tokenizer_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="lacks tokenizer.json, and its other files make no tokenizer. Use a complete"):
        load_tokenizer(tmp_path)


def test_words_are_those_of_the_corpus_by_falling_count():
    texts = ["def f(x): return x", "def g(y):\n\treturn [MASK] y", "def"]
    tokenizer = build_tokenizer("words", texts)
    assert special_token_ids(tokenizer) == dict(
        zip(("pad_token_id", "unk_token_id", "cls_token_id", "sep_token_id", "mask_token_id"), range(5), strict=True)
    )
    assert tokenizer.convert_ids_to_tokens(range(5, len(tokenizer))) == ["def", "return", "f(x):", "g(y):", "x", "y"]
    assert tokenizer("def g(y): z").input_ids == [2, 5, 8, 1, 3]
    assert len(build_tokenizer("words", texts, vocab_size=7)) == 7


def test_characters_are_tokens_white_space_too():
    tokenizer = build_tokenizer("characters", ["abba\n\t c"])
    assert tokenizer.convert_ids_to_tokens(range(5, len(tokenizer))) == ["a", "b", "\t", "\n", " ", "c"]
    assert tokenizer("a\nd", add_special_tokens=False).input_ids == [5, 8, 1]
    with_lines = build_tokenizer("characters", ["abba\n\t c"], newline_token=True)
    assert with_lines("a\n\nb", add_special_tokens=False).input_ids == [5, len(tokenizer), 6]


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_a_saved_tokenizer_of_units_reads_the_same(unit, documents, tmp_path):
    tokenizer = build_tokenizer(unit, documents)
    tokenizer.save_pretrained(tmp_path / "t")
    assert load_tokenizer(tmp_path / "t")(documents).input_ids == tokenizer(documents).input_ids
    assert build_tokenizer(unit, documents).get_vocab() == tokenizer.get_vocab()


def test_build_tokenizer_trains_or_loads_as_named(documents, vocabulary_file):
    assert (
        build_tokenizer(None, documents, 120, newline_token=True).get_vocab()
        == train_tokenizer(documents, 120).get_vocab()
    )
    assert build_tokenizer(vocabulary_file, documents).get_vocab() == load_tokenizer(vocabulary_file).get_vocab()


def test_training_on_nothing_is_an_error():
    with pytest.raises(ValueError, match="No text to take words from in the texts: it is empty"):
        build_tokenizer("words", [])
    with pytest.raises(ValueError, match="vocab_size=5"):
        build_tokenizer("characters", ["text"], vocab_size=5)
    with pytest.raises(ValueError, match="it is empty"):
        train_tokenizer([], vocab_size=100)
    with pytest.raises(ValueError, match="vocab_size=5"):
        train_tokenizer(["text"], vocab_size=5)


def test_a_folder_that_lost_its_special_tokens_is_named(tokenizer, tmp_path):
    # "The tokenizer has no pad_token": of a run whose tokenizer_config.json was gone nobody knew which was meant.
    tokenizer.save_pretrained(tmp_path / "t")
    (tmp_path / "t/tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=f"The tokenizer {tmp_path / 't'} has no pad_token.* all files of its folder"):
        load_tokenizer(tmp_path / "t")
