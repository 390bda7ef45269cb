"""Probes of grammar against a loop of scikit-learn's LogisticRegression (budget: 10x for 200 probes of 5 seeds), and
pseudo-log-likelihoods against one sentence and one mask at a time (budget: 5x).

States and sentences are those of the shipped model and of the corpus. The time of the model is in neither side of the
probes. The loop is timed on every fifteenth of its fits. CPU time of one process; of probes milliseconds a fit.
"""

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import whatwhere as ww
from whatwhere.corpus import load_tokenizer
from whatwhere.evaluation.blimp import pseudo_log_likelihoods
from whatwhere.evaluation.paragraphs import sentences_of
from whatwhere.evaluation.probe_fits import Rows, train_probes
from whatwhere.evaluation.word_states import Slot, parts_of, slot_states
from whatwhere.models.open import open_model

from .timing import Results, Settings, alternate, figure, row
from .windows import cpu

CLASSES = {"full": (2, 2, 2, 5, 10, 17, 33), "quick": (2, 17), "micro": (2, 3)}
ROWS = {"full": 10_000, "quick": 4000, "micro": 120}
SENTENCES = {"full": 200, "quick": 100, "micro": 6}
SEEDS = 5
EVERY = 15
FASTER = 10.0
LIKELIHOODS_FASTER = 5.0


def sentences(settings: Settings) -> Iterator[str]:
    """Sentences of 5 to 12 words, as BLiMP's, of the corpus; made up where figures mean nothing."""
    if settings.scale == "micro":
        return (f"A river of {i} miles runs down to the sea." for i in itertools.count())
    lines = (line for document in settings.source() for line in document.splitlines())
    return (s for line in lines for s in sentences_of(line) if 5 <= len(s.split()) <= 12)


def linguistic(settings: Settings) -> Results:
    """All probes of a task at once against scikit-learn, and likelihoods in batches against one mask at a time."""
    results = Results()
    model = open_model("reference", "masked").model
    tokenizer = load_tokenizer(ww.reference())
    _probes(results, settings, model, tokenizer)
    _likelihoods(results, settings, model, tokenizer)
    return results


def _probes(results: Results, settings: Settings, model, tokenizer) -> None:
    texts = []
    words = []
    slots = []
    for text in itertools.islice(sentences(settings), ROWS[settings.scale]):
        at = 0
        for word in text.split(" "):
            if word:
                slots.append(Slot(len(texts), at, at + len(word)))
                words.append(word)
            at += len(word) + 1
        texts.append(text)
        if len(slots) > 1.25 * ROWS[settings.scale]:
            break
    layers = range(model.config.num_hidden_layers + 1)
    states, _ = slot_states(model, tokenizer, texts, slots, layers)
    cut = len(slots) * 4 // 5
    columns = np.stack(list(parts_of(model.config).values()))
    common = [word for word, _ in Counter(words).most_common(max(CLASSES[settings.scale]))]
    rng = np.random.default_rng(0)
    tasks = []
    for number, classes in enumerate(CLASSES[settings.scale]):  # which of the commonest words comes next, or another
        of = {word: i + 1 for i, word in enumerate(common[number : number + classes - 1])}
        labels = np.array([of.get(word, 0) for word in [*words[1:], ""]])
        both = np.stack([labels, rng.permutation(labels)])
        tasks.append((classes, Rows(states[:, :cut], both[:, :cut]), Rows(states[:, cut:], both[:, cut:])))

    right: dict[str, list[float]] = {"whatwhere": [], "scikit-learn": []}

    def ours() -> None:
        for classes, train, dev in tasks:
            found = train_probes(train, dev, columns, classes, range(SEEDS)).predict(dev.features)
            right["whatwhere"].append(float((found == dev.labels).mean()))

    places = [
        (task, layer, part, variant)
        for task in tasks
        for layer in layers
        for part in columns
        for variant in (0, 1)
        for _ in range(SEEDS)
    ]

    def theirs() -> None:
        for (_, train, dev), layer, part, variant in places[::EVERY]:
            scaler = StandardScaler().fit(train.features[layer][:, part])
            x, y = (scaler.transform(rows.features[layer][:, part]) for rows in (train, dev))
            fit = LogisticRegression(max_iter=1000).fit(x, train.labels[variant])
            right["scikit-learn"].append(float(fit.score(y, dev.labels[variant])))

    timed = [
        figure("scikit-learn", [1000 * cpu(theirs) / len(places[::EVERY])], unit="ms a fit"),
        figure("whatwhere", [1000 * cpu(ours) / len(places)], unit="ms a fit"),
    ]
    shape = f"{len(places) // SEEDS} probes x {SEEDS} seeds, {cut:,} rows x {states.shape[2]}"
    shares = ", ".join(f"{name} {np.mean(values):.3f}" for name, values in right.items())
    what = "probes, scikit-learn LogisticRegression / whatwhere"
    results.rows.append(row(what, shape, *timed, at_least=FASTER, note=f"share right: {shares}"))


def _likelihoods(results: Results, settings: Settings, model, tokenizer) -> None:
    texts = list(itertools.islice(sentences(settings), SENTENCES[settings.scale]))
    found: dict[str, np.ndarray] = {}
    times = alternate(
        {
            "one mask at a time": lambda: found.update(theirs=np.array([_alone(model, tokenizer, t) for t in texts])),
            "whatwhere": lambda: found.update(ours=pseudo_log_likelihoods(model, tokenizer, texts)),
        },
        min(settings.repeats, 2),
        measure=cpu,
    )
    first, second = (figure(name, values) for name, values in times.items())
    gap = float(np.abs(found["ours"] - found["theirs"]).max())
    results.rows.append(
        row(
            "pseudo-log-likelihoods, one mask at a time / whatwhere",
            f"{len(texts)} sentences of 5 to 12 words",
            first,
            second,
            at_least=LIKELIHOODS_FASTER,
            note=f"largest difference {gap:.0e} nats",
        )
    )


@torch.no_grad()
def _alone(model, tokenizer, text: str) -> float:
    """Of one sentence, a forward pass for each of its tokens."""
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    total = 0.0
    for place in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, place] = tokenizer.mask_token_id
        total += float(torch.log_softmax(model(input_ids=masked).logits[0, place].double(), -1)[ids[0, place]])
    return total
