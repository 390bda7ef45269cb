"""GLUE and SQuAD on an encoder of another package by parts that are not ours: transformers' heads and tokenizers,
torch's optimizer, and the official scripts' sums as loops."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification, AutoTokenizer

LONGEST = 30  # tokens of an answer (Devlin et al. 2019)
RATE = 1e-4  # of a model 768 wide
# The recipes `short` at that rate.
SHORT = {"rate": RATE, "epochs": 5, "batch_size": 32, "warmup": 0.06, "a_pass": 2, "patience": 15}
SHORT_SQUAD = {"rate": RATE, "epochs": 3, "batch_size": 16, "warmup": 0.1, "a_pass": 3, "patience": 15}
Metric = Callable[[np.ndarray, np.ndarray], float]


def two_halves(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that choose and rows that judge, and the reverse."""
    order = np.random.default_rng(0).permutation(rows)
    return order[: rows // 2], order[rows // 2 :]


def fine_tuned(
    model: Any,
    rows: int,
    batch_of: Callable[[list[int]], dict[str, Tensor]],
    predict: Callable[[Any], Any],
    *,
    rate: float,
    batch_size: int,
    epochs: int,
    warmup: float,
    a_pass: int,
    patience: int,
) -> list[Any]:
    """Train by AdamW with seed 0 and return the predictions of each evaluation, `a_pass` of them in a pass.

    rate: of a model 768 wide. warmup: share of the steps. No evaluation may be waited for in vain for `patience` times.
    """
    steps_of_pass = rows // batch_size
    steps = epochs * steps_of_pass
    every = max(1, steps_of_pass // a_pass)
    assert -(-steps // every) <= patience
    rising = round(warmup * steps)
    matrices = [p for name, p in model.named_parameters() if p.ndim > 1 and "_embeddings" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim < 2 or "_embeddings" in name]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    peak = rate * 768 / model.config.hidden_size
    adam = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.999), eps=1e-6)
    queue: list[int] = []
    for epoch in range(epochs):
        draw = np.random.Generator(np.random.Philox(np.random.SeedSequence((0, epoch))))
        queue += draw.permutation(rows).tolist()
    predictions = []
    for step in range(steps):
        share = (step + 1) / rising if step < rising else (steps - step) / (steps - rising)
        for group in adam.param_groups:
            group["lr"] = peak * share
        model.train()
        model(**batch_of(queue[step * batch_size : (step + 1) * batch_size])).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        if (step + 1) % every == 0 or step + 1 == steps:
            model.eval()
            with torch.no_grad():
                predictions.append(predict(model))
    return predictions


def classified(
    folder: Path,
    train: tuple[Sequence[Any], np.ndarray],
    dev: Sequence[Sequence[Any]],
    length: int,
    classes: int,
    **recipe: Any,
) -> list[list[np.ndarray]]:
    """Fine-tune transformers' classifier; return for each evaluation the predictions of each list of `dev`.

    train: tuples of a text or two, and their class numbers or, with no class, numbers to regress.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=classes or 1)
    texts, labels = train
    middle, spread = (labels.mean(), labels.std()) if not classes else (0, 1)
    targets = (labels - middle) / spread if not classes else labels

    def encoded(rows: Sequence[Any]) -> dict[str, Tensor]:
        how = {"truncation": True, "max_length": length, "padding": True, "return_tensors": "pt"}
        return dict(tokenizer(*map(list, zip(*rows, strict=True)), **how))

    def batch_of(numbers: list[int]) -> dict[str, Tensor]:
        chosen = torch.tensor(targets[numbers], dtype=torch.long if classes else torch.float32)
        return {**encoded([texts[i] for i in numbers]), "labels": chosen}

    def predict(model: Any) -> list[np.ndarray]:
        logits = [torch.cat([model(**encoded([row])).logits for row in rows]) for rows in dev]
        return [(x.argmax(-1) if classes else x[:, 0] * spread + middle).numpy() for x in logits]

    return fine_tuned(model, len(texts), batch_of, predict, **recipe)


def judged(predictions: Sequence[np.ndarray], labels: np.ndarray, first: Metric, metric: Metric) -> float:
    """Score each half of the rows by `metric`, at the evaluation that is best by `first` on the other half."""
    scores = []
    one, two = two_halves(len(labels))
    for choosing, judging in ((one, two), (two, one)):
        best = max(predictions, key=lambda p: first(p[choosing], labels[choosing]))
        scores.append(metric(best[judging], labels[judging]))
    return float(np.mean(scores))


def plainly(text: str) -> str:
    """Normalise an answer as the official scripts of SQuAD do, by characters and without a regular expression."""
    marks = [*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127)]
    text = "".join(c for c in text.lower() if ord(c) not in marks)
    runs = ["".join(run) for _, run in itertools.groupby(text, str.isalnum)]
    return " ".join("".join(" " if run in ("a", "an", "the") else run for run in runs).split())


def plain_f1(said: str, right: str, version: int) -> float:
    """Precision and recall over words, each word of the right answer used up once."""
    words = plainly(said).split()
    left = plainly(right).split()
    if not words or not left:
        return float(words == left) if version == 2 else 0.0
    wanted = len(left)
    same = 0
    for word in words:
        if word in left:
            left.remove(word)
            same += 1
    precision = same / len(words)
    recall = same / wanted
    return 2 * precision * recall / (precision + recall) if same else 0.0


def official(said: str, right: Sequence[str], version: int) -> tuple[float, float]:
    """Exact match and F1 of an answer, as the official script of a version counts them."""
    if version == 2:
        right = [text for text in right if plainly(text)] or [""]
    return (
        max(float(plainly(said) == plainly(text)) for text in right),
        max(plain_f1(said, text, version) for text in right),
    )


def asked_in(read: dict[str, Any]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Question, paragraph and right answers of each question of a file of SQuAD, in order."""
    paragraphs = [paragraph for article in read["data"] for paragraph in article["paragraphs"]]
    return [(q["question"], paragraph["context"], q["answers"]) for paragraph in paragraphs for q in paragraph["qas"]]


def _windows(tokenizer: Any, question: str, paragraph: str, length: int, stride: int) -> list[dict[str, Any]]:
    """Rows of transformers' tokenizer for a question, with the tokens of its paragraph and their characters."""
    room = length - tokenizer.num_special_tokens_to_add(pair=True) - len(tokenizer.tokenize(question))
    overlap = room - min(stride, room // 2)
    how = {"truncation": "only_second", "max_length": length, "stride": overlap, "return_overflowing_tokens": True}
    coded = tokenizer(question, paragraph, **how, return_offsets_mapping=True)
    windows = []
    for number in range(len(coded["input_ids"])):
        of_paragraph = [i for i, sequence in enumerate(coded.sequence_ids(number)) if sequence == 1]
        inputs = {name: coded[name][number] for name in tokenizer.model_input_names}
        windows.append({"inputs": inputs, "tokens": of_paragraph, "offsets": coded["offset_mapping"][number]})
    return windows


def _ends(window: dict[str, Any], answers: list[dict[str, Any]]) -> tuple[int, int]:
    """First and last token of the first right answer, both 0 where there is none or a part of it is outside."""
    if not answers:
        return 0, 0
    first = answers[0]["answer_start"]
    last = first + len(answers[0]["text"])
    offsets = window["offsets"]
    inside = [i for i in window["tokens"] if offsets[i][1] > first and offsets[i][0] < last]
    is_whole = bool(inside) and offsets[inside[0]][0] <= first and offsets[inside[-1]][1] >= last
    return (inside[0], inside[-1]) if is_whole else (0, 0)


def answered(
    folder: Path, train: dict[str, Any], dev: dict[str, Any], length: int, stride: int, **recipe: Any
) -> list[list[tuple[str, float]]]:
    """Fine-tune transformers' head of questions; return of each evaluation the text of the best span of each question
    of `dev`, and by how much the score of no answer is larger than its own."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    model = AutoModelForQuestionAnswering.from_pretrained(folder)
    rows = []
    for question, paragraph, answers in asked_in(train):
        for window in _windows(tokenizer, question, paragraph, length, stride):
            rows.append((window["inputs"], _ends(window, answers)))
    asked = [(paragraph, _windows(tokenizer, q, paragraph, length, stride)) for q, paragraph, _ in asked_in(dev)]

    def batch_of(numbers: list[int]) -> dict[str, Tensor]:
        inputs = tokenizer.pad([rows[i][0] for i in numbers], return_tensors="pt")
        starts, ends = torch.tensor([rows[i][1] for i in numbers]).T
        return {**inputs, "start_positions": starts, "end_positions": ends}

    def best_of(model: Any, paragraph: str, windows: list[dict[str, Any]]) -> tuple[str, float]:
        nothing = np.inf
        best = -np.inf
        text = ""
        for window in windows:
            output = model(**{name: torch.tensor([values]) for name, values in window["inputs"].items()})
            start = output.start_logits[0].tolist()
            end = output.end_logits[0].tolist()
            nothing = min(nothing, start[0] + end[0])
            for i, j in itertools.combinations_with_replacement(window["tokens"], 2):
                if j - i < LONGEST and start[i] + end[j] > best:
                    best = start[i] + end[j]
                    text = paragraph[window["offsets"][i][0] : window["offsets"][j][1]]
        return text, nothing - best

    def predict(model: Any) -> list[tuple[str, float]]:
        return [best_of(model, *question) for question in asked]

    return fine_tuned(model, len(rows), batch_of, predict, **recipe)


def scored(
    answers: Sequence[tuple[str, float]], dev: dict[str, Any], choosing: np.ndarray, version: int
) -> tuple[np.ndarray, np.ndarray]:
    """Exact match and F1 of each question, unanswered above the margin that is best for the questions `choosing`.

    The margin is found as the official script does: from no answer at all, one question more at a time.
    """
    right = [[answer["text"] for answer in answers] for _, _, answers in asked_in(dev)]
    scores = np.array([official(text, texts, version) for (text, _), texts in zip(answers, right, strict=True)])
    margins = np.array([margin for _, margin in answers])
    none = np.array([not texts for texts in right])
    most = np.inf
    if none[choosing].any():
        most = -np.inf
        gained = 0.0
        best = 0.0
        for question in sorted(choosing.tolist(), key=lambda i: margins[i]):
            gained += -1 if none[question] else scores[question, 1]
            if gained > best:
                best = gained
                most = margins[question]
    kept = np.where((margins <= most)[:, None], scores, none[:, None])
    return kept[:, 0], kept[:, 1]


def squad_values(answers: Sequence[Sequence[tuple[str, float]]], dev: dict[str, Any], version: int) -> dict[str, float]:
    """Values of the records of questions, by metric, from the answers of each evaluation."""
    rows = np.arange(len(asked_in(dev)))
    exact, f1 = max((scored(said, dev, rows, version) for said in answers), key=lambda scores: scores[1].mean())
    values = {"squad.best": f1.mean(), "squad.best.exact": exact.mean()}
    one, two = two_halves(len(rows))
    halves = []
    for choosing, judging in ((one, two), (two, one)):
        of_half = [scored(said, dev, choosing, version) for said in answers]
        exact, f1 = max(of_half, key=lambda scores: scores[1][choosing].mean())
        halves.append((exact[judging].mean(), f1[judging].mean()))
    values["squad.exact"], values["squad.f1"] = np.mean(halves, axis=0)
    return values
