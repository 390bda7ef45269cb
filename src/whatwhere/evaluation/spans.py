"""Answers that are spans of a paragraph: windows over long paragraphs, the best spans by a model's scores, exact match
and F1 by the official definitions (Rajpurkar et al. 2016; 2018), and when no answer is the better one."""

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..corpus.batches import Batches, padded
from ..training.loop import Trainer

LONGEST = 30  # tokens of an answer, as Devlin et al. (2019) search
MOST_ASKED = 64  # tokens of a question, as theirs
SHORTEST = 16  # tokens of a window: less has no room for question and paragraph
BEST = 5  # spans of a question that are kept

# Answer of a model to a question. begin, end: characters of its best spans, 0 and 0 where there are no more; score: of
# each, a sum of two logits. margin: score of no answer less the score of the first span. exact, f1: of the
# answer, which is the first span, or none where `answered` is false.
SAID = np.dtype(
    [
        ("begin", np.int32, BEST),
        ("end", np.int32, BEST),
        ("score", np.float32, BEST),
        ("margin", np.float64),
        ("answered", np.bool_),
        ("exact", np.float64),
        ("f1", np.float64),
    ]
)


@dataclass(frozen=True)
class Question:
    """Question about a paragraph, with its right answers.

    paragraph: the number of the paragraph; answers: (character at which it begins, text) of each that is right, none
    where the paragraph has none.
    """

    id: str
    text: str
    paragraph: int
    answers: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Questions:
    """Questions on paragraphs of articles.

    articles: the article of each paragraph; version: of the official scores, 1 or 2.
    """

    paragraphs: list[str]
    articles: list[str]
    questions: list[Question]
    version: int

    def only(self, numbers: Sequence[int]) -> "Questions":
        """Select some of the questions by number."""
        return replace(self, questions=[self.questions[i] for i in numbers])


@lru_cache(1 << 16)
def normalised(text: str) -> str:
    """Normalise a text as the official scripts compare answers.

    Lower case, without ASCII punctuation, without a, an and the, one blank between words.
    """
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def exact_and_f1(prediction: str, right: Sequence[str], version: int = 2) -> tuple[float, float]:
    """Score an answer by exact match, 0 or 1, and F1 of the words, in [0, 1].

    Each is the largest over the right answers. No answer is an empty text; where none is right, `right` is empty
    (version 2
    alone). The scripts part where an answer is nothing but punctuation and articles: of version 2 it does not count
    among others that are right, and two such are equal; in version 1 their F1 is 0.
    """
    answer = normalised(prediction)
    golds = [normalised(text) for text in right]
    if version == 2:
        golds = [gold for gold in golds if gold] or [""]
    return float(answer in golds), max(_f1(answer.split(), gold.split(), version) for gold in golds)


def _f1(words: list[str], gold: list[str], version: int) -> float:
    if version == 2 and not (words and gold):
        return float(words == gold)
    common = (Counter(words) & Counter(gold)).total()
    return 2 * common / (len(words) + len(gold)) if common else 0.0  # 2PR / (P + R)


def threshold(answers: np.ndarray, unanswerable: np.ndarray) -> float:
    """Find the margin above which leaving a question unanswered gives the best mean F1, as the official script does.

    A margin is a difference of sums of logits. It is inf where every question has an answer (all are answered), -inf
    where no answer at all is best. Questions of one margin go together; the script parts them by their order in the
    file.

    Args:
        answers: (questions,) SAID with all questions answered. unanswerable: (questions,) bool.
    """
    if not unanswerable.any():
        return np.inf
    order = np.argsort(answers["margin"], kind="stable")
    margins = answers["margin"][order]
    gained = np.cumsum(answers["f1"][order] - unanswerable[order])
    last = np.append(margins[1:] != margins[:-1], True)
    return float(np.append(-np.inf, margins[last])[np.argmax(np.append(0.0, gained[last]))])


def settled(answers: np.ndarray, unanswerable: np.ndarray, most: float) -> np.ndarray:
    """Leave questions unanswered whose margin is larger than `most`, in logits, and score all of them again.

    Args:
        answers: (questions,) SAID with all questions answered. unanswerable: (questions,) bool.

    Returns:
        (questions,) SAID.
    """
    scored = answers.copy()
    scored["answered"] = answers["margin"] <= most
    for metric in ("exact", "f1"):
        scored[metric] = np.where(scored["answered"], answers[metric], unanswerable)
    return scored


def best_f1(answers: np.ndarray, unanswerable: np.ndarray) -> float:
    """Compute the mean F1, in [0, 1], at the best threshold for these questions (questions,)."""
    return float(settled(answers, unanswerable, threshold(answers, unanswerable))["f1"].mean())


class SpanBatches(Batches):
    """Batches of windows `[CLS] question [SEP] part of the paragraph [SEP]` with the places of the answer's tokens.

    The places are the answer's first and last token: of the first of several answers, and 0, [CLS], where it
    is not whole in the window. Windows are padded to the longest. A paragraph that is too long for a window has
    several, from every `stride` tokens on, or from every half of the room for the paragraph where that is less, so that
    neighbours overlap. A row of an epoch is a window.

    labels: (questions,) true where none is right. windows: (windows, 3) number of the question, first token of its
    paragraph, and the token after the last. heads: (windows,) tokens before the paragraph's. spans: (windows, 2) the
    places. cut: questions that are longer than 64 tokens, or half a window, and lose their end. unmarked: answers
    without a token.

    A batch: `input_ids`, `attention_mask`, with `types` also `token_type_ids`, (b, n) int64; `start_positions` and
    `end_positions`, (b,) int64.

    Args:
        length: most tokens of a window, special ones included. types: also token_type_ids (BERT).

    Raises:
        ValueError: windows too short to hold anything.
    """

    def __init__(
        self, data: Questions, tokenizer: Any, length: int, stride: int, seed: int = 0, *, types: bool = False
    ) -> None:
        if length < SHORTEST:
            raise ValueError(f"Windows of {length} tokens hold no question and paragraph. Use at least {SHORTEST}.")
        backend = tokenizer.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        self.data = data
        self.types = types
        self.pad_id = int(tokenizer.pad_token_id)
        self.labels = np.array([not question.answers for question in data.questions])
        self._frame, self._type_ids = _frame(backend)
        room = length - sum(map(len, self._frame))
        most_asked = min(MOST_ASKED, room // 2)
        question_ids = [ids for ids, _ in _encoded(backend, [question.text for question in data.questions])]
        self.cut = sum(len(ids) > most_asked for ids in question_ids)
        self._question_ids = [ids[:most_asked] for ids in question_ids]
        used = sorted({question.paragraph for question in data.questions})
        self._read = dict(zip(used, _encoded(backend, [data.paragraphs[i] for i in used]), strict=True))
        heads = np.array([len(self._frame[0]) + len(ids) + len(self._frame[1]) for ids in self._question_ids])
        self.unmarked = 0
        windows = []
        spans = []
        for number, question in enumerate(data.questions):
            ids, offsets = self._read[question.paragraph]
            room_for_text = room - len(self._question_ids[number])
            step = max(1, min(stride, room_for_text // 2))
            answer = _tokens(offsets, *question.answers[0]) if question.answers else None
            self.unmarked += bool(question.answers) and answer is None
            for first in range(0, max(1, len(ids) - room_for_text + step), step):
                last = min(first + room_for_text, len(ids))
                whole = answer is not None and first <= answer[0] and answer[1] < last
                windows.append((number, first, last))
                spans.append([heads[number] + token - first for token in answer] if answer and whole else [0, 0])
        super().__init__(len(windows), seed)
        self.windows = np.array(windows)
        self.spans = np.array(spans)
        self.heads = heads[self.windows[:, 0]]

    def _collate(self, chosen: list[tuple[int, int]]) -> dict[str, Tensor]:
        """Make a batch of int64 tensors: input_ids, attention_mask, perhaps token_type_ids (b, n), and places (b,)."""
        rows = []
        types = []
        for _, index in chosen:
            number, first, last = self.windows[index]
            paragraph, _ = self._read[self.data.questions[number].paragraph]
            before, between, after = self._frame
            parts = (before, self._question_ids[number], between, paragraph[first:last], after)
            rows.append(np.concatenate(parts))
            types.append(np.repeat(self._type_ids, [len(part) for part in parts]))
        input_ids = padded(rows, self.pad_id)
        lengths = np.array([len(row) for row in rows])
        starts, ends = self.spans[[index for _, index in chosen]].T
        batch = {
            "input_ids": input_ids,
            "attention_mask": (np.arange(input_ids.shape[1]) < lengths[:, None]).astype(np.int64),
            "start_positions": starts.copy(),
            "end_positions": ends.copy(),
        }
        if self.types:
            batch["token_type_ids"] = padded(types, 0)
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def characters(self, window: int, first: int, last: int) -> tuple[int, int]:
        """Find the first character and the last + 1 of a window's span in its paragraph.

        Args:
            first, last: places in the row.
        """
        number, begin, _ = self.windows[window]
        _, offsets = self._read[self.data.questions[number].paragraph]
        shift = begin - self.heads[window]
        return int(offsets[first + shift, 0]), int(offsets[last + shift, 1])


def _frame(backend: Any) -> tuple[list[np.ndarray], list[int]]:
    """Return the ids of special tokens before, between and after a pair of texts, and the type of each row part."""
    pair = backend.encode("a", "a")
    of = np.array([-1 if text is None else text for text in pair.sequence_ids])
    one = np.flatnonzero(of == 0)
    two = np.flatnonzero(of == 1)
    cuts = [0, one[0], one[-1] + 1, two[0], two[-1] + 1, len(of)]
    parts = [slice(*ends) for ends in zip(cuts, cuts[1:], strict=False)]
    ids = np.array(pair.ids, np.int64)
    types = [pair.type_ids[part][0] if pair.ids[part] else 0 for part in parts]
    return [ids[parts[i]] for i in (0, 2, 4)], types


def _encoded(backend: Any, texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ids (n,) and characters (n, 2) of the tokens of each text, without special ones."""
    for begin in range(0, len(texts), 1000):  # encodings are many times as large as ids and offsets
        for encoding in backend.encode_batch(texts[begin : begin + 1000], add_special_tokens=False):
            yield np.array(encoding.ids, np.int64), np.array(encoding.offsets, np.int64).reshape(-1, 2)


def _tokens(offsets: np.ndarray, begin: int, text: str) -> tuple[int, int] | None:
    """Find the first and the last token that have a character of an answer; None if no token has."""
    of_answer = np.flatnonzero((offsets[:, 1] > begin) & (offsets[:, 0] < begin + len(text)))
    return (int(of_answer[0]), int(of_answer[-1])) if len(of_answer) else None


def best_spans(
    start: Tensor, end: Tensor, inside: Tensor, *, longest: int = LONGEST, best: int = BEST
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the best spans of each window, best first: first token, last token, and the sum of their two scores.

    A span ends where it begins or later, has at most `longest` tokens, and begins and ends inside.

    Args:
        start, end: (b, n) logits. inside: (b, n) bool, tokens of the paragraph.

    Returns:
        Each (b, best), or as many as there can be; -inf scores where there are no more.
    """
    outside = ~inside
    ends = torch.nn.functional.pad(end.masked_fill(outside, -torch.inf), (0, longest - 1), value=-torch.inf)
    scores = start.masked_fill(outside, -torch.inf).unsqueeze(2) + ends.unfold(1, longest, 1)  # (b, n, longest)
    best_scores, at = scores.flatten(1).topk(min(best, scores[0].numel()))
    first = at // longest
    return first, first + at % longest, best_scores


@torch.no_grad()
def answers(trainer: Trainer, rows: SpanBatches, batch_size: int) -> np.ndarray:
    """Answer all questions by their best spans over their windows: (questions,) SAID.

    The score of no answer is the least of the windows' scores of [CLS] (Devlin et al. 2019).
    """
    trainer.model.eval()
    spans: list[list[tuple[float, int, int]]] = [[] for _ in rows.data.questions]
    nothing = np.full(len(spans), np.inf)
    window = 0
    for batch in rows.in_order(max(batch_size, 32)):
        inputs = {k: v.to(trainer.accelerator.device) for k, v in batch.items() if not k.endswith("_positions")}
        with trainer.accelerator.autocast():
            logits = trainer.model(**inputs)
        start = logits.start_logits.float().cpu()
        end = logits.end_logits.float().cpu()
        window_rows = slice(window, window + len(start))
        heads = torch.from_numpy(rows.heads[window_rows])[:, None]
        counts = torch.from_numpy(rows.windows[window_rows, 2] - rows.windows[window_rows, 1])[:, None]
        at = torch.arange(start.shape[1])
        firsts, lasts, scores = best_spans(start, end, (at >= heads) & (at < heads + counts))
        for none, *best in zip(start[:, 0] + end[:, 0], firsts.tolist(), lasts.tolist(), scores.tolist(), strict=True):
            number = rows.windows[window, 0]
            nothing[number] = min(nothing[number], float(none))
            spans[number] += [
                (score, *rows.characters(window, first, last))
                for first, last, score in zip(*best, strict=True)
                if score > -np.inf
            ]
            window += 1
    return _fill_answers(rows.data, spans, nothing)


def _fill_answers(data: Questions, spans: Sequence[list[tuple[float, int, int]]], nothing: np.ndarray) -> np.ndarray:
    """Fill SAID from the spans (score, begin, end) of each question, which overlapping windows give twice."""
    answers = np.zeros(len(spans), SAID)
    answers["answered"] = True
    answers["score"] = -np.inf
    answers["margin"] = np.inf
    for i, (question, spans_of_question) in enumerate(zip(data.questions, spans, strict=True)):
        best: dict[tuple[int, int], float] = {}
        for score, *place in sorted(spans_of_question, key=lambda span: -span[0]):
            best.setdefault((place[0], place[1]), score)
        for rank, ((begin, end), score) in enumerate(list(best.items())[:BEST]):
            answers["begin"][i, rank] = begin
            answers["end"][i, rank] = end
            answers["score"][i, rank] = score
        if best:
            answers["margin"][i] = nothing[i] - next(iter(best.values()))
        text = data.paragraphs[question.paragraph][answers["begin"][i, 0] : answers["end"][i, 0]]
        answers["exact"][i], answers["f1"][i] = exact_and_f1(
            text, [right for _, right in question.answers], data.version
        )
    return answers


def best_texts(data: Questions, answers: np.ndarray) -> dict[str, list[tuple[str, float]]]:
    """Collect the best spans of each question by its id, as text and score, from SAID (questions,)."""
    return {
        question.id: [
            (data.paragraphs[question.paragraph][begin:end], float(score))
            for begin, end, score in zip(one["begin"], one["end"], one["score"], strict=True)
            if end > begin
        ]
        for question, one in zip(data.questions, answers, strict=True)
    }
