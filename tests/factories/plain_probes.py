"""Probes of an encoder of another package by parts that are not ours: hidden states of transformers, torch's linear
layer in a plain loop, scikit-learn's and scipy's scores, rows by the csv module and by hand."""

import csv
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.stats import pearsonr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from whatwhere.evaluation.probe_fits import Protocol, Rows

SPLITS = ("train", "dev", "test")
# The protocols of both verbs, written once more.
OF_GRAMMAR = Protocol(0.02, 10, 256, 32, dropout=0.0, warmup=0.1, patience=5, standardise=True, twice=False)
OF_HOLMES = Protocol(1e-3, 20, 16, 0, dropout=0.2, warmup=0.1, patience=5, standardise=False, twice=True)


class PlainStates:
    """States of places in texts, read one text at a time by `output_hidden_states`.

    longest: tokens that the model reads.
    """

    def __init__(self, folder: Path, longest: int) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.longest = longest
        self.read: dict[str, tuple[Tensor, list[tuple[int, int]]]] = {}

    def whole(self, text: str) -> np.ndarray:
        """Mean of all tokens of a text, special ones included, in the last hidden state."""
        return self._read(text)[0].mean(0).numpy()

    def place(self, text: str, start: int, end: int) -> np.ndarray:
        """Mean of the tokens that have a character from `start` to `end`."""
        states, offsets = self._read(text)
        inside = [i for i, (first, last) in enumerate(offsets) if first < end and last > start]
        return states[inside].mean(0).numpy()

    def _read(self, text: str) -> tuple[Tensor, list[tuple[int, int]]]:
        if text not in self.read:
            how = {"truncation": True, "max_length": self.longest, "padding": False}
            coded = self.tokenizer(text, return_offsets_mapping=True, **how)
            inputs = {name: torch.tensor([coded[name]]) for name in self.tokenizer.model_input_names}
            with torch.no_grad():
                states = self.model(**inputs, output_hidden_states=True).hidden_states[-1][0]
            self.read[text] = (states, coded["offset_mapping"])
        return self.read[text]


def plain_probe(
    rows: Rows, dev: Rows, mask: np.ndarray, classes: int, seed: int, protocol: Protocol, variant: int = 0
) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """Train one probe by torch's own layers, losses and schedule, with the draws of `train_probes`.

    Returns:
        The lowest loss of the development rows, and what predicts features (n, d) as the probe of that epoch does.
    """
    d = mask.shape[1]
    generator = torch.Generator().manual_seed(seed)
    width = len(rows.labels) * max(classes, 1)
    drawn = torch.rand(d + 1, width, generator=generator) * 2 - 1
    drawn = drawn / mask.sum() ** 0.5
    part = slice(variant * max(classes, 1), (variant + 1) * max(classes, 1))
    layer = torch.nn.Linear(d, max(classes, 1))
    layer.weight.data = (drawn[:-1, part] * torch.from_numpy(mask[0])[:, None]).T.contiguous()
    layer.bias.data = drawn[-1, part].clone()
    adam = torch.optim.Adam(layer.parameters(), lr=protocol.rate)
    batch_size = min(protocol.batch_size, len(rows), max(16, len(rows) // max(protocol.batches, 1)))
    steps = -(-len(rows) // batch_size) * protocol.epochs
    rise = protocol.warmup * steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda i: i / max(rise, 1) if i < rise else max(0.0, (steps - i) / max(1, steps - rise))
    )
    x = torch.from_numpy(rows.features[0])
    y = torch.from_numpy(rows.labels[variant])
    mean, spread = (x.mean(0), x.std(0, correction=0)) if protocol.standardise else (0.0, 1.0)

    def outputs(features: Tensor, keep: Tensor | float = 1.0) -> Tensor:
        return layer((features - mean) / spread * keep * torch.from_numpy(mask[0]))

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        if not classes:
            return torch.nn.functional.smooth_l1_loss(scores[:, 0], labels)
        return torch.nn.functional.cross_entropy(scores.softmax(-1) if protocol.twice else scores, labels)

    best = np.inf
    weights = layer.state_dict()
    waited = 0
    for _ in range(protocol.epochs):
        order = torch.randperm(len(rows), generator=generator)
        for begin in range(0, len(rows), batch_size):
            at = order[begin : begin + batch_size]
            keep: Tensor | float = 1.0
            if protocol.dropout:
                keep = (torch.rand(len(at), d, generator=generator) >= protocol.dropout) / (1 - protocol.dropout)
            adam.zero_grad()
            loss(outputs(x[at], keep), y[at]).backward()
            adam.step()
            schedule.step()
        with torch.no_grad():
            now = float(loss(outputs(torch.from_numpy(dev.features[0])), torch.from_numpy(dev.labels[variant])))
        waited = 0 if now < best else waited + 1
        if now < best:
            best = now
            weights = {name: value.clone() for name, value in layer.state_dict().items()}
        if waited == protocol.patience > 0:
            break

    @torch.no_grad()
    def predict(features: np.ndarray) -> np.ndarray:
        layer.load_state_dict(weights)
        said = outputs(torch.from_numpy(features))
        return (said.argmax(-1) if classes else said[:, 0]).numpy()

    return best, predict


def _trees(data: Path, split: str) -> list[tuple[list[tuple[str, str]], str]]:
    """Words with tag and tense of each sentence of a treebank, in the order that a split is read in."""
    text = (data / f"ud-ewt/en_made-ud-{split}.conllu").read_text("utf-8")
    sentences = []
    for block in text.strip().split("\n\n"):
        rows = [line.split("\t") for line in block.splitlines()[1:]]
        root = next(row for row in rows if row[7] == "root")
        sentences.append(([(row[1], row[3]) for row in rows], root[5].split("|")[0].removeprefix("Tense=")))
    place = SPLITS.index(split)
    return [sentences[i] for i in np.random.default_rng(place).permutation(len(sentences))]


def _grammar_rows(
    task: str, data: Path, states: PlainStates, split: str, most: int
) -> tuple[np.ndarray, Sequence[str]]:
    """Features and labels of the first rows: each word and its tag, or sentences and their tense, equally many each."""
    sentences = _trees(data, split)
    rows = []
    if task == "tense":
        count = min(Counter(tense for _, tense in sentences).values())
        used = Counter[str]()
        for words, tense in sentences:
            text = " ".join(form for form, _ in words)
            used[tense] += 1
            if used[tense] <= count:
                rows.append((states.place(text, 0, len(text)), tense))
    else:
        for words, _ in sentences:
            text = " ".join(form for form, _ in words)
            start = 0
            for form, tag in words:
                rows.append((states.place(text, start, start + len(form)), tag))
                start += len(form) + 1
    features, labels = zip(*rows[:most], strict=True)
    return np.array(features), labels


def linguistic_scores(
    folder: Path, longest: int, data: Path, task: str, seeds: int, limit: int
) -> tuple[float, float, float]:
    """Probe words' tags ("pos") or sentences' tenses ("tense") of a treebank.

    Returns:
        Mean over the seeds of the share right and of the macro F1, and the share right of scikit-learn's regression.
    """
    states = PlainStates(folder, longest)
    most = {"train": limit, "dev": -(-limit // 4), "test": limit}
    splits = {split: _grammar_rows(task, data, states, split, most[split]) for split in SPLITS}
    counts = Counter(splits["train"][1])
    names = sorted(counts, key=lambda name: (-counts[name], name))
    of = {s: (x, np.array([names.index(label) for label in labels])) for s, (x, labels) in splits.items()}
    x, y = of["train"]
    control = [np.zeros_like(y)] * (task == "pos")  # a second labelling draws weights, too
    train = Rows(x[None], np.stack([y, *control]))
    dev = Rows(of["dev"][0][None], of["dev"][1][None])
    mask = np.ones((1, x.shape[-1]), bool)
    scores = []
    for seed in range(seeds):
        _, predict = plain_probe(train, dev, mask, len(names), seed, OF_GRAMMAR)
        said = predict(of["test"][0])
        scores.append((accuracy_score(of["test"][1], said), f1_score(of["test"][1], said, average="macro")))
    scale = StandardScaler().fit(x)
    regression = LogisticRegression(max_iter=2000).fit(scale.transform(x), y)
    share, f1 = np.mean(scores, axis=0)
    return share, f1, regression.score(scale.transform(of["test"][0]), of["test"][1])


def _state_of(kind: str, row: dict[str, str], states: PlainStates) -> np.ndarray:
    """State of a row of Holmes: whole texts, or the mean of its places, inputs side by side."""
    inputs = literal_eval(row["inputs"])
    context = literal_eval(row["context"] or "[]")
    between = f" {states.tokenizer.sep_token} "
    if kind == "SENTENCE_PAIR_CROSS":
        return states.whole(between.join(inputs))
    if kind in ("SENTENCE", "SENTENCE_PAIR_BI"):
        return np.concatenate([states.whole(text) for text in inputs])
    if kind == "SENTENCE_PAIR_TOKENS_CROSS":
        text = between.join(context)
        shift = (0, len(context[0]) + len(between))
        return np.concatenate([states.place(text, a + shift[which], b + shift[which]) for _, which, a, b in inputs])
    places = [states.place(context[which], a, b) for _, which, a, b, *_ in inputs]
    if kind == "SENTENCE_SPANS":
        belongs = [entry[4] for entry in inputs]
        ends = [[p for p, b in zip(places, belongs, strict=True) if b == number] for number in (0, 1)]
        return np.concatenate([np.mean(end, axis=0) for end in ends])
    return np.concatenate(places)


def vary(folder: Path, numbers: bool = False) -> None:
    """Put other words of equal length into a data set of Holmes, and other labels, or noise on numbers, into a part."""
    path = folder / "samples.csv"
    rng = np.random.default_rng(3)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for word, others in {"river": ["water", "album", "music"], "song": ["lake", "band", "king"]}.items():
            other = str(rng.choice([word, *others]))
            row |= {name: row[name].replace(word, other) for name in ("inputs", "context")}
        changed = int(rng.random() < 0.1)
        row["label"] = str(float(row["label"]) + 0.3 * rng.normal() if numbers else int(float(row["label"])) ^ changed)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def holmes_score(folder: Path, longest: int, data_set: Path, kind: str, seeds: int, numbers: bool = False) -> float:
    """Probe a data set of Holmes; return the mean over the seeds of macro F1, or of the correlation of numbers."""
    states = PlainStates(folder, longest)
    with (data_set / "samples.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    of = {}
    for split in SPLITS:
        chosen = [row for row in rows if row["set-0"] == split]
        features = np.array([_state_of(kind, row, states) for row in chosen])
        labels = np.array([float(row["label"]) for row in chosen], np.float32 if numbers else np.int64)
        of[split] = Rows(features[None], labels[None])
    mask = np.ones((1, of["test"].features.shape[-1]), bool)
    scores = []
    for seed in range(seeds):
        _, predict = plain_probe(of["train"], of["dev"], mask, 0 if numbers else 2, seed, OF_HOLMES)
        said = predict(of["test"].features[0])
        right = of["test"].labels[0]
        scores.append(pearsonr(said, right)[0] if numbers else f1_score(right, said, average="macro"))
    return float(np.mean(scores))
