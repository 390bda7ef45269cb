"""Segments (BiPE): where they end, by ids alone; what a model reads of them; the ends that a tokenizer tells."""

import pytest
import torch
from encoder_models import CLS, SEP, VOCAB, build, config, inputs
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import whatwhere as ww
from whatwhere.corpus import build_windows, open_source, train_tokenizer
from whatwhere.corpus.tokenizer import segment_end_ids, unit_tokenizer
from whatwhere.encoder.inputs import locate_in_segments
from whatwhere.models.model_tables import has_table, read_table
from whatwhere.training.pretrain import segments_message

STOP = 8  # the id of a full stop in what follows
WORDS = torch.tensor([[5, 6, 7, 9, 10, 11, 12], [13, 14, 15, 16, 17, 18, 19]])


def found(ids, mask=None, documents=None):
    """Places and numbers of one row, as lists."""
    rows = (None if row is None else torch.tensor([row]) for row in (mask, documents))
    return tuple(x[0].tolist() for x in locate_in_segments([SEP, STOP], torch.tensor([ids]), *rows))


def test_a_stop_belongs_to_the_sentence_before_it():
    """[CLS] a b . c . . [SEP] d: the stop closes its sentence, and two stops are two segments."""
    places, numbers = found([CLS, 20, 21, STOP, 22, STOP, STOP, SEP, 23])
    assert places == [0, 1, 2, 3, 0, 1, 0, 0, 0]
    assert numbers == [0, 0, 0, 0, 1, 1, 2, 3, 4]


def test_padding_counts_nowhere():
    """Padding before, inside and behind a text has no place, though its id be that of an end."""
    places, numbers = found([STOP, CLS, 20, STOP, 21, STOP, 22, STOP], mask=[0, 1, 1, 0, 1, 1, 1, 0])
    tokens = [1, 2, 4, 5, 6]
    assert [places[i] for i in tokens] == [0, 1, 2, 3, 0]
    assert [numbers[i] for i in tokens] == [0, 0, 0, 0, 1]


def test_a_document_begins_a_segment():
    """A packed document begins at place 0, whether the one before it ends with an end or is cut."""
    places, numbers = found([CLS, 20, 21, CLS, 22, STOP, CLS, 23], documents=[0, 0, 0, 1, 1, 1, 2, 2])
    assert places == [0, 1, 2, 0, 1, 2, 0, 1]
    assert numbers[:6] == [0, 0, 0, 1, 1, 1] and numbers[6] == numbers[7] > 1


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_one_segment_is_absolute_and_only_ends_are_rope(backend):
    """Without ends `bipe` is `ap`; where every token is an end it is `rope`, with row 0 added to each word."""
    model = build("bipe")
    weights = model.state_dict()
    absolute, rotated = (build(name) for name in ("ap", "rope"))
    for other in (model, absolute, rotated):
        other.set_attn_implementation(backend)
    absolute.load_state_dict(weights)
    model.config.segment_end_ids = [STOP]
    torch.testing.assert_close(model(WORDS).logits, absolute(WORDS).logits, rtol=1e-12, atol=1e-12)
    model.config.segment_end_ids = list(range(VOCAB))
    first = "encoder.position_embeddings.table.weight"
    words = "encoder.word_embeddings.weight"
    rotated.load_state_dict({k: v for k, v in weights.items() if k != first}, strict=False)
    with torch.no_grad():
        rotated.encoder.word_embeddings.weight.copy_(weights[words] + weights[first][0])
    found = model.encoder(WORDS).last_hidden_state
    torch.testing.assert_close(found, rotated.encoder(WORDS).last_hidden_state, rtol=1e-12, atol=1e-12)


def test_no_map_of_pairs_is_made():
    """Numbers of segments enter by rotation: an example holds no (n, n) tensor beside its scores."""
    model = build("bipe").encoder
    shared = model.attention_inputs(inputs("plain")["input_ids"], None, None, None)
    assert shared.distance_or_bucket is None and shared.is_ahead is None
    assert not shared.biases and shared.allowed is None
    assert shared.cos_sin is not None and shared.cos_sin[0].shape == (2, 1, 7, 12)


def test_longer_texts_are_read_and_positions_are_not(tmp_path):
    """A text of more tokens than the table has rows is read; places beyond share its last row; saved models agree."""
    model = ww.EncoderForMaskedLM(config("bipe", max_position_embeddings=4)).eval()
    ids = torch.randint(9, 14, (1, 50), generator=torch.Generator().manual_seed(0))
    ids[0, [3, 20]] = STOP
    expected = model(ids).logits
    moved = model(ids, position_ids=torch.arange(50)[None] + 9).logits
    assert torch.equal(moved, expected) and model.config.position_limit is None and model.position_table() is None
    rows = model.encoder.attention_inputs(ids, None, None, None).table_rows
    assert rows[0, :6].tolist() == [0, 1, 2, 3, 0, 1] and set(rows[0, 7:21].tolist()) == {3}
    model.save_pretrained(tmp_path)
    again = ww.EncoderForMaskedLM.from_pretrained(tmp_path)
    assert again.config.segment_end_ids == [SEP, STOP, 14] and torch.equal(again(ids).logits, expected)
    assert not has_table(tmp_path)
    with pytest.raises(ValueError, match="its scheme, bipe, has rows for places in a segment"):
        read_table(tmp_path)


def test_without_ends_segments_end_at_sep():
    """A configuration that no tokenizer filled ends segments at [SEP]."""
    model = build("bipe", segment_end_ids=None)
    told = build("bipe", segment_end_ids=[SEP])
    given = inputs("plain")
    assert torch.equal(model(**given).logits, told(**given).logits)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"segment_end_ids": []}, "must be entries of a vocabulary of 40, at least one; got"),
        ({"segment_end_ids": [40]}, "must be entries of a vocabulary of 40"),
        ({"segment_end_ids": [True, "."]}, "segment_end_ids must be a list of whole numbers"),
        ({"segment_end_ids": "."}, "segment_end_ids must be a list of whole numbers"),
        ({"bilevel": False}, "segment_end_ids has no use with bilevel=False"),
        ({"rotation": "none"}, "bilevel needs a table .* absolute=learned, rotation=none"),
        ({"absolute": "none"}, "bilevel needs a table .* absolute=none, rotation=rope"),
        ({"untied": "position"}, "set untied=none; got position"),
    ],
)
def test_wrong_segments_are_refused_in_one_line(fields, message):
    with pytest.raises(ValueError, match=message) as error:
        config("bipe", **fields)
    assert "\n" not in str(error.value)


def test_ends_are_told_by_the_tokenizer():
    """Ends are the tokens of end marks alone: of word pieces, characters, and a byte-level vocabulary."""

    def ends(tokenizer):
        pieces = tokenizer.convert_ids_to_tokens(segment_end_ids(tokenizer))
        return {"[NL]" if piece == "[nl]" else piece for piece in pieces}

    texts = ["One. Two! Three? 3.14, four; five.\nA new line."]
    assert ends(train_tokenizer(texts, vocab_size=80)) == {"[SEP]", "[NL]", ".", "!", "?"}
    assert ends(train_tokenizer(texts, vocab_size=80, newline_token=False)) == {"[SEP]", ".", "!", "?"}
    assert ends(unit_tokenizer("characters", texts)) == {"[SEP]", ".", "!", "?", "\n"}
    assert ends(unit_tokenizer("words", ["tag tag other"])) == {"[SEP]"}
    pieces = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", "Ġ", "Ċ", "ĊĊ", "č", ".", "...", "Ġ.", ".com", "?!", "word."]
    names = {"cls": "<s>", "sep": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
    backend = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, **{f"{name}_token": piece for name, piece in names.items()}
    )
    assert ends(tokenizer) == {"</s>", "Ċ", "ĊĊ", "č", ".", "...", "Ġ.", "?!"}


@pytest.mark.parametrize(("words", "lacks"), [("one two three", True), ("one two. three", False)])
def test_text_without_segment_ends_is_noticed(words, lacks, tmp_path):
    """On text without punctuation `bipe` trained as a learned table, and nothing said so."""
    (tmp_path / "text.txt").write_text(f"{words}\n" * 200, encoding="utf-8")
    source = open_source(str(tmp_path / "text.txt"))
    tokenizer = train_tokenizer(source, vocab_size=60)
    windows = build_windows(source, tokenizer, tmp_path / "windows", length=8, progress=False)
    ends = segment_end_ids(tokenizer)
    told = segments_message("mine", ww.preset("bipe", vocab_size=60, segment_end_ids=ends), windows)
    assert ("mine reads each text as one" in told) == lacks
    assert segments_message("ap", ww.preset("ap", vocab_size=60), windows) == ""
