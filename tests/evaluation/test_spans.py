"""Spans: scores as the official scripts define them, windows that keep every answer, the best spans."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_tunings import official, plainly
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import whatwhere
from whatwhere.corpus import load_tokenizer
from whatwhere.evaluation.spans import (
    BEST,
    SAID,
    Question,
    Questions,
    SpanBatches,
    answers,
    best_f1,
    best_spans,
    exact_and_f1,
    normalised,
    settled,
    threshold,
)
from whatwhere.models.open import open_model
from whatwhere.training.loop import Trainer
from whatwhere.training.training_keys import LoopConfig

ODD = "naïve İstanbul café 日本 e\u0301 👩‍🚀 \u200b½ ﬁn\tDžungla ∀x\n"


@pytest.mark.parametrize(
    ("said", "right", "version", "expected"),
    [
        ("Denver Broncos", ["Denver Broncos", "The Denver Broncos"], 1, (1, 1)),
        ("the  denver broncos!", ["Denver Broncos"], 1, (1, 1)),
        ("Broncos", ["Denver Broncos"], 1, (0, 2 / 3)),
        ("Levi's Stadium in Santa Clara", ["Santa Clara, California", "Levi's Stadium"], 1, (0, 4 / 7)),
        ("an a the", ["theatre"], 1, (0, 0)),
        ("very very", ["very"], 1, (0, 2 / 3)),  # a word counts as often as it stands in both
        ("1960s", ["1960"], 1, (0, 0)),
        ("a–b", ["b"], 1, (0, 0)),  # an en dash is no ASCII punctuation, and stays
        ("", [], 2, (1, 1)),
        ("Rollo", [], 2, (0, 0)),
        ("", ["Rollo"], 2, (0, 0)),
        ("the", [], 2, (1, 1)),
        ("the", ["."], 1, (1, 0)),  # where the two scripts part
        ("the", ["."], 2, (1, 1)),
        ("the", [".", "a dot"], 2, (0, 0)),
        ("the", [".", "a dot"], 1, (1, 0)),
    ],
)
def test_scores_are_the_official_ones(said, right, version, expected):
    assert exact_and_f1(said, right, version) == pytest.approx(expected)
    assert official(said, right, version) == pytest.approx(expected)


WORDS = st.lists(
    st.sampled_from(["the", "A", "an", "Rollo", "rollo,", "x.y", "–", "½", "É", "\u00a0", "'s"]), max_size=5
)
SAYINGS = st.one_of(WORDS.map(" ".join), st.text(max_size=12))


@given(SAYINGS, st.lists(SAYINGS, min_size=1, max_size=3), st.sampled_from([1, 2]))
def test_scores_are_those_of_a_plain_implementation(said, right, version):
    assert normalised(said) == plainly(said)
    assert exact_and_f1(said, right, version) == pytest.approx(official(said, right, version))


def made_said(margins, f1):
    said = np.zeros(len(margins), SAID)
    said["margin"] = margins
    said["f1"] = f1
    said["answered"] = True
    return said


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([0.0, 0.5, 1.0]), st.booleans()), min_size=1, max_size=12)
)
def test_the_threshold_is_the_best_of_all(rows):
    margins, f1, none = np.array(rows, float).T
    unanswerable = none > 0
    said = made_said(margins, np.where(unanswerable, 0.0, f1))
    tried = [settled(said, unanswerable, most)["f1"].mean() for most in [-np.inf, *margins, np.inf]]
    assert best_f1(said, unanswerable) == pytest.approx(max(tried) if unanswerable.any() else said["f1"].mean())
    if not unanswerable.any():
        assert threshold(said, unanswerable) == np.inf


def test_a_question_beyond_the_threshold_is_left_unanswered():
    said = made_said([-2.0, 1.0, 3.0], [0.5, 0.0, 0.25])
    unanswerable = np.array([False, True, False])
    found = settled(said, unanswerable, 0.5)
    assert found["answered"].tolist() == [True, False, False] and found["f1"].tolist() == [0.5, 1.0, 0.0]
    assert threshold(said, unanswerable) == -2.0 and best_f1(said, unanswerable) == 0.5


def byte_level():
    """A byte-level tokenizer whose pairs are <s> a </s></s> b </s>, as RoBERTa's."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [ODD] * 3, trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", cls_token="<s>", sep_token="</s>")


TOKENIZERS = {"wordpiece": load_tokenizer(whatwhere.reference()), "bytes": byte_level()}
both = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=list(TOKENIZERS))


def asked(paragraph, *right, text="What stands here?"):
    return Questions([paragraph], [""], [Question(f"q{i}", text, 0, (each,)) for i, each in enumerate(right)], 1)


@both
def test_rows_are_tokenizer_output_of_the_pair(tokenizer):
    """A row is what the tokenizer makes of the pair."""
    batches = SpanBatches(asked(ODD, (0, "naïve"), text="Where is it?"), tokenizer, 128, 64, types=True)
    expected = tokenizer("Where is it?", ODD, return_token_type_ids=True)
    (batch,) = batches.in_order(8)
    assert batch["input_ids"].tolist() == [expected["input_ids"]]
    assert batch["token_type_ids"].tolist() == [expected["token_type_ids"]]
    assert batch["attention_mask"].all() and len(batches) == 1


@both
@pytest.mark.parametrize("stride", [5, 200])
def test_windows_are_the_overflow_of_the_tokenizer(tokenizer, stride):
    paragraph = ODD * 12
    batches = SpanBatches(asked(paragraph, (0, "naïve")), tokenizer, 48, stride, types=True)
    room = 48 - int(batches.heads[0]) - 1  # [SEP] at the end
    step = min(stride, room // 2)
    how = {"truncation": "only_second", "max_length": 48, "stride": room - step, "return_overflowing_tokens": True}
    expected = tokenizer("What stands here?", paragraph, return_token_type_ids=True, **how)
    assert len(batches) == len(expected["input_ids"]) > 3
    for window in range(len(batches)):
        row = batches._collate([(0, window)])
        assert row["input_ids"][0].tolist() == expected["input_ids"][window]
        assert row["token_type_ids"][0].tolist() == expected["token_type_ids"][window]


PIECES = st.one_of(st.sampled_from(ODD.split(" ")), st.text(st.characters(exclude_categories=["Cs"]), max_size=4))


@both
@settings(max_examples=40)
@given(data=st.data())
def test_every_answer_is_found_from_its_window(tokenizer, data):
    """Every answer that fits is found again from its window."""
    paragraph = data.draw(st.lists(PIECES, min_size=1, max_size=30).map(" ".join).filter(str.strip))
    begin = data.draw(st.integers(0, len(paragraph) - 1))
    text = paragraph[begin : begin + data.draw(st.integers(1, 12))]
    length = data.draw(st.integers(16, 40))
    stride = data.draw(st.integers(1, 20))
    batches = SpanBatches(asked(paragraph, (begin, text)), tokenizer, length, stride)
    encoded = tokenizer(paragraph, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets = encoded["offset_mapping"]
    firsts = batches.windows[:, 1]
    lasts = batches.windows[:, 2]
    room = length - int(batches.heads[0]) - 1  # [SEP] at the end
    assert firsts[0] == 0 and lasts[-1] == len(offsets) and np.all(firsts[1:] <= lasts[:-1])
    assert np.all(lasts - firsts <= room) and np.all(np.diff(firsts) <= stride)
    mine = [i for i, (b, e) in enumerate(offsets) if e > begin and b < begin + len(text)]
    overlap = min(lasts[:-1] - firsts[1:], default=room)
    found = [(i, *span) for i, span in enumerate(batches.spans) if span.any()]
    assert len(found) == sum(bool(mine) and f <= mine[0] and mine[-1] < e for f, e in zip(firsts, lasts, strict=True))
    assert found or not mine or len(mine) > overlap + 1 or len(mine) > room
    for window, first, last in found:
        row = batches._collate([(0, window)])
        assert row["start_positions"] == first and row["end_positions"] == last and row["input_ids"].shape[1] <= length
        assert row["input_ids"][0, first : last + 1].tolist() == [encoded["input_ids"][i] for i in mine]
        b, e = batches.characters(window, first, last)
        assert (b, e) == (offsets[mine[0]][0], offsets[mine[-1]][1])
        if b == begin and e == begin + len(text):
            assert paragraph[b:e] == text


def test_answers_of_whole_words_are_returned_exactly():
    """An answer of whole words is given back to the letter."""
    paragraph = " ".join(f"word{i} naïve İx" for i in range(40))
    words = [
        (place, word) for place in range(len(paragraph)) for word in ("naïve İx",) if paragraph.startswith(word, place)
    ]
    batches = SpanBatches(asked(paragraph, *words), TOKENIZERS["wordpiece"], 48, 16)
    seen = set()
    for window, (first, last) in enumerate(batches.spans):
        if first:
            number = int(batches.windows[window, 0])
            begin, end = batches.characters(window, first, last)
            assert (begin, paragraph[begin:end]) == words[number]
            seen.add(number)
    assert seen == set(range(40)) and batches.unmarked == 0


def test_long_questions_are_cut():
    """Long questions lose their end and windows without room are refused."""
    tokenizer = TOKENIZERS["wordpiece"]
    batches = SpanBatches(asked("river", (0, "river"), text="why " * 100), tokenizer, 200, 64)
    assert batches.cut == 1 and batches.heads[0] == 64 + 2
    with pytest.raises(ValueError, match="Windows of 15 tokens hold no question and paragraph. Use at least 16"):
        SpanBatches(asked("river", (0, "river")), tokenizer, 15, 8)


def by_loops(start, end, inside, longest):
    """All spans of a row, best first."""
    n = len(start)
    found = [
        (float(start[i] + end[j]), i, j)
        for i in range(n)
        for j in range(i, min(n, i + longest))
        if inside[i] and inside[j]
    ]
    return sorted(found, reverse=True)


@pytest.mark.parametrize("longest", [1, 3, 30])
def test_best_spans_are_those_of_a_loop(longest):
    rng = np.random.default_rng(longest)
    start, end = (torch.from_numpy(rng.normal(size=(6, 17))) for _ in range(2))
    inside = torch.zeros(6, 17, dtype=torch.bool)
    for row, (begin, stop) in enumerate([(0, 17), (5, 17), (3, 9), (8, 9), (4, 6), (2, 2)]):
        inside[row, begin:stop] = True
    first, last, score = best_spans(start, end, inside, longest=longest, best=4)
    for row in range(6):
        expected = by_loops(start[row], end[row], inside[row], longest)[:4]
        found = zip(score[row].tolist(), first[row].tolist(), last[row].tolist(), strict=True)
        assert [s for s in found if s[0] > -np.inf] == [pytest.approx(span) for span in expected]


def test_answers_are_best_over_a_questions_windows():
    """Against one window at a time, unbatched, and loops."""
    tokenizer = TOKENIZERS["wordpiece"]
    rng = np.random.default_rng(0)
    paragraphs = [" ".join(rng.choice(["river", "music", "lake", "song", "the"], n)) for n in (4, 90, 40)]
    data = Questions(
        paragraphs, [""] * 3, [Question(str(i), "which one?", i, ((0, "river"),) * (i > 0)) for i in range(3)], 2
    )
    rows = SpanBatches(data, tokenizer, 32, 10)
    assert len(rows) > 8 and np.bincount(rows.windows[:, 0])[0] == 1
    model = open_model("reference", "answers").model
    trainer = Trainer(model, LoopConfig(precision="fp32"), 1)
    found = answers(trainer, rows, 4)
    for number, question in enumerate(data.questions):
        spans = {}
        nothing = []
        for window in np.flatnonzero(rows.windows[:, 0] == number):
            row = rows._collate([(0, window)])
            with torch.no_grad():
                out = model(row["input_ids"])
            n = row["input_ids"].shape[1]
            head = rows.heads[window]
            nothing.append(float(out.start_logits[0, 0] + out.end_logits[0, 0]))
            inside = [head <= i < n - 1 for i in range(n)]
            for score, first, last in by_loops(out.start_logits[0], out.end_logits[0], inside, 30):
                place = rows.characters(window, first, last)
                spans[place] = max(score, spans.get(place, -np.inf))
        best = sorted(spans.items(), key=lambda item: -item[1])[:BEST]
        assert found["score"][number] == pytest.approx([score for _, score in best], abs=1e-4)
        assert (found["begin"][number, 0], found["end"][number, 0]) == best[0][0]
        assert found["margin"][number] == pytest.approx(min(nothing) - best[0][1], abs=1e-4)
        said = paragraphs[number][slice(*best[0][0])]
        assert (found["exact"][number], found["f1"][number]) == exact_and_f1(said, [t for _, t in question.answers])
    assert found["answered"].all()


def test_a_step_in_parts_equals_one_step():
    """Rows count where a batch has no labels."""
    paragraph = "river music lake song the lake river"
    rows = SpanBatches(
        asked(paragraph, *[(6, "music"), (12, "lake"), (0, "river")] * 2), TOKENIZERS["wordpiece"], 32, 8
    )
    steps = []
    for accumulate in (1, 3):
        config = LoopConfig(precision="fp32", batch_size=6, accumulate=accumulate)
        trainer = Trainer(open_model("reference", "answers").model, config, 2)
        steps.append(trainer.take_step(0, trainer.make_micro_batches(rows.micro_batch, 0)))
    assert steps[0] == pytest.approx(steps[1], rel=1e-5)
