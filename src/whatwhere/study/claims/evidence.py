"""What a claim reads: the records of a run that speak of some models, and which of them were read."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...records import Record
from .values import Value, largest

LEARNED = 0.1  # nats below the unigram plateau from which a model counts as trained
FALLING = 0.05  # nats by which the validation loss of a model that is still learning fell over the last tenth of its steps
PLACED = 0.5  # share of the training windows that begin with a document, from which table rows are places in documents
MOST_ENTRIES = 12  # of the list of records of a verdict
FIXED_TABLES = ("sinusoidal",)  # tables that no training made


class Missing(Exception):
    """A record that a claim needs is not there; the text says which."""


@dataclass(frozen=True)
class Key:
    """Where a record stands."""

    metric: str
    model: str
    seed: int | None = None
    layer: int | None = None
    head: int | None = None
    part: str | None = None
    index: int | None = None
    step: int | None = None


@dataclass
class Book:
    """All records of a run by where they stand, finite ones only; read once for all claims."""

    records: dict[Key, Record] = field(default_factory=dict)
    by_metric: dict[tuple[str, str], list[Key]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Book":
        """The book of some records; of two in one place the later one counts."""
        book = cls()
        for r in records:
            if math.isfinite(r.value):
                key = Key(r.metric, r.model, r.seed, r.layer, r.head, r.part, r.index, r.step)
                if key not in book.records:
                    book.by_metric.setdefault((r.metric, r.model), []).append(key)
                book.records[key] = r
        return book

    def models(self, metric: str, part: str | None = "any", stepped: bool | None = None) -> list[str]:
        """Names of what has records of a metric, in their order; part "any" means whichever; stepped: with a step, without, or either."""
        return [
            model
            for (name, model), keys in self.by_metric.items()
            if name == metric and any(part in ("any", k.part) and stepped in (None, k.step is not None) for k in keys)
        ]


class Evidence:
    """The records of a run that speak of some models, over the training seeds that all of them have (None: no training is involved).

    Every read is noted; `read` says in words what was.
    """

    def __init__(self, book: Book, models: Sequence[str]) -> None:
        self.book = book
        self.models = tuple(models)
        found: dict[str, set[int | None]] = {model: set() for model in models}
        for (_, name), keys in book.by_metric.items():
            if name in found:
                found[name] |= {k.seed for k in keys}
        if lacking := [model for model, seeds in found.items() if not seeds]:
            raise Missing(f"needs a model {' and a model '.join(lacking)} in the study")
        trained = [(seeds - {None}) or {None} for seeds in found.values()]
        self.seeds = sorted(set.intersection(*trained), key=lambda s: -1 if s is None else s)
        if not self.seeds:
            raise Missing(f"{' and '.join(models)} have no training seed in common")
        self._read: dict[Key, None] = {}
        self._step: int | None = None

    def untrained(self) -> "Evidence":
        """The same before the first step: every read is of the record of step 0. What it reads is noted as read by this one."""
        if self._step is not None:
            raise Missing("an untrained model is its own control")
        start = Evidence(self.book, self.models)
        start._step, start._read = 0, self._read
        return start

    @property
    def step(self) -> int | None:
        """Whose records are read: None of the final model, 0 of the untrained one."""
        return self._step

    def value(
        self,
        metric: str,
        model: str | None = None,
        *,
        layer: int | None = None,
        head: int | None = None,
        part: str | None = None,
        index: int | None = None,
        step: int | None = None,
    ) -> Value:
        """A single value of a model (the first of the claim's): (seeds, 1), with the interval that its records carry."""
        found = [self._get(Key(metric, model or self.models[0], seed, layer, head, part, index, step)) for seed in self.seeds]
        below = [r.value - r.low if r.low is not None and r.high is not None else 0.0 for r in found]
        above = [r.high - r.value if r.low is not None and r.high is not None else 0.0 for r in found]
        return Value(np.array([[r.value] for r in found]), np.maximum(below, 0.0), np.maximum(above, 0.0))

    def r2(self, model: str, target: str, part: str, layer: int) -> Value:
        """R² at hidden[layer] in every split: (seeds, splits)."""
        return self.splits(f"r2.{target}", model, part, layer)

    def splits(self, metric: str, model: str, part: str, layer: int) -> Value:
        """Values of every split of the documents: (seeds, splits)."""
        place = (self.seeds[0], layer, None, part)
        keys = [k for k in self._keys(metric, model) if (k.seed, k.layer, k.head, k.part) == place and k.step is None]
        splits = sorted(k.index for k in keys if k.index is not None)
        if not splits:
            raise Missing(f"no {metric} of {model}, part {part}, at hidden[{layer}]")
        return Value.of([[self._get(Key(metric, model, seed, layer, None, part, s)).value for s in splits] for seed in self.seeds])

    def peak(self, model: str, target: str, part: str) -> Value:
        """R² at the layer from 1 on with the largest mean, chosen for each seed: (seeds, splits)."""
        return largest([self.r2(model, target, part, layer) for layer in range(1, self.last(model) + 1)])

    def last(self, model: str) -> int:
        """Number of blocks of a model: hidden[last] is the output of the last one."""
        found = [k.layer for k in self._keys("r2.token", model) if k.layer is not None]
        if not found:
            raise Missing(f"no probes of {model}")
        return max(found)

    def late(self, model: str) -> int:
        """Output of the last block whose position stream is trained; the one after it gets no gradient (DSTG 3.3)."""
        layer = self.last(model) - 1
        if layer < 2:
            raise Missing(f"{model} has {layer + 1} blocks; losing position through the layers needs three")
        return layer

    def heads(self, metric: str, part: str | None = None, model: str | None = None, layer: int | None = None) -> list[Value]:
        """A metric of every attention head of a model (of every layer, or of one), in the order of layers and heads."""
        name = model or self.models[0]
        keys = [k for k in self._keys(metric, name) if k.head is not None and k.part == part and k.step is None and k.index is None]
        places = sorted({(k.layer or 0, k.head) for k in keys if k.seed == self.seeds[0] and layer in (None, k.layer)})  # type: ignore[type-var]
        if not places:
            raise Missing(f"no {metric}{'' if part is None else f', part {part},'} of the heads of {name}")
        return [self.value(metric, name, layer=at, head=head, part=part) for at, head in places]

    def layers(self, metric: str, part: str | None = None, model: str | None = None) -> dict[int, Value]:
        """A metric of a model at every layer that has it."""
        name = model or self.models[0]
        keys = [k for k in self._keys(metric, name) if k.part == part and k.head is None and k.step is None]
        found = sorted({k.layer for k in keys if k.layer is not None})
        if not found:
            raise Missing(f"no {metric} of {name}{'' if part is None else f', part {part}'}")
        return {layer: self.value(metric, name, layer=layer, part=part) for layer in found}

    def indices(self, metric: str, part: str | None = None, model: str | None = None) -> dict[int, Value]:
        """A metric of a model at every index (component, rank, width) that has it."""
        name = model or self.models[0]
        keys = self._keys(metric, name)
        found = sorted({k.index for k in keys if k.index is not None and k.part == part and k.step is None and k.seed == self.seeds[0]})
        if not found:
            raise Missing(f"no {metric} of {name}{'' if part is None else f', part {part}'}")
        return {index: self.value(metric, name, part=part, index=index) for index in found}

    def steps(self, metric: str, part: str | None = None, model: str | None = None) -> dict[int, Value]:
        """A metric of a model at every checkpoint that all seeds have, by step."""
        name = model or self.models[0]
        return {step: self.value(metric, name, part=part, step=step) for step in self._steps(metric, part, name)}

    def last_step(self, metric: str, part: str | None = None, model: str | None = None) -> Value:
        """A metric of a model at the last of these checkpoints."""
        name = model or self.models[0]
        return self.value(metric, name, part=part, step=self._steps(metric, part, name)[-1])

    def _steps(self, metric: str, part: str | None, model: str) -> list[int]:
        if self._step is not None:
            raise Missing("an untrained model has no checkpoints")
        found = [{k.step for k in self._keys(metric, model) if k.seed == s and k.part == part} - {None} for s in self.seeds]
        if not (shared := set.intersection(*found)):
            raise Missing(f"no {metric} of the checkpoints of {model}")
        return sorted(step for step in shared if step is not None)

    def has(self, metric: str, model: str | None = None) -> bool:
        """Whether there is any record of a metric of a model."""
        return bool(self._keys(metric, model or self.models[0]))

    def loss(self, model: str) -> Value:
        """MLM loss on held-out documents in nats, as `ablation.loss` has it for all models of the claim: of every document that they
        share, (seeds, documents), so that a difference is paired; else the means with their intervals. Without such records the last
        validation loss of the training, which has no interval."""
        if not all(self.has("ablation.loss", name) for name in self.models):
            return self.last_step("loss", "validation", model)
        keys = [[k for k in self._keys("ablation.loss", name) if k.index is not None and k.step is None] for name in self.models]
        found = [{k.index for k in of_model if k.seed == seed} for of_model in keys for seed in self.seeds]
        shared = sorted(index for index in set.intersection(*found) if index is not None)
        if len(shared) < 2:
            return self.value("ablation.loss", model)
        values = [[self._get(Key("ablation.loss", model, seed, index=i)).value for i in shared] for seed in self.seeds]
        return Value.of(values, apart=True)

    def count(self, metric: str, part: str | None = None) -> int:
        """The observations behind a metric of the first model."""
        keys = [k for k in self._keys(metric, self.models[0]) if k.part == part]
        n = self.book.records[keys[0]].n if keys else None
        if n is None:
            raise Missing(f"no {metric} of {self.models[0]} with its number of observations")
        return n

    def low_high(self, metric: str, side: str) -> Value:
        """One end of the interval of a record of the first model, as a value of its own: (seeds, 1)."""
        ends = [getattr(self._get(Key(metric, self.models[0], seed)), side) for seed in self.seeds]
        if None in ends:
            raise Missing(f"no interval of {metric} of {self.models[0]}")
        return Value.of([[float(end)] for end in ends])

    def interval(self, value: Value) -> tuple[float, float] | None:
        """The 95 % interval of a value of these models."""
        found = self.book.records.get(Key("probe.documents", self.models[0], self.seeds[0]))
        return value.interval(int(found.value) if found else 500)

    def plateau(self) -> str | None:
        """Which model has not left the unigram plateau: it has learned token frequencies at most, so no claim can be about it."""
        unigram = self.book.records.get(Key("loss.unigram", ""))
        if unigram is None:
            return None
        for model in self.models:
            for seed in self.seeds:
                keys = [k for k in self._keys("loss", model) if k.seed == seed and k.part == "validation" and k.step is not None]
                if keys and not (loss := self.book.records[max(keys, key=lambda k: k.step or 0)].value) <= unigram.value - LEARNED:
                    return f"{model} has learned token frequencies only: loss {loss:.2f} nats, the unigram plateau is {unigram.value:.2f}"
        return None

    def learning(self) -> str:
        """Which models' validation losses fell by more than `FALLING` from the last validation before the last tenth of the steps to
        the end, in words; "" if none."""
        words = []
        for model in self.models:
            falls = [fall for seed in self.seeds if (fall := self._fall(model, seed)) is not None]
            if falls and max(falls)[0] > FALLING:
                nats, steps = max(falls)
                words.append(f"{model} still learning: loss fell {nats:.2f} nats in the last {steps} steps")
        return "; ".join(words)

    def _fall(self, model: str, seed: int | None) -> tuple[float, int] | None:
        """Nats by which the validation loss fell over the last tenth of the steps or more, and over how many; None for one validation."""
        keys = [k for k in self._keys("loss", model) if k.seed == seed and k.part == "validation"]
        losses = {k.step: self.book.records[k].value for k in keys if k.step is not None}
        last = max(losses, default=0)
        before = max((step for step in losses if step <= 0.9 * last and step < last), default=None)
        return None if before is None else (losses[before] - losses[last], last - before)

    def scale(self, value: Value | None = None) -> str:
        """How much was trained or counted and measured, in words."""
        words = []
        for metric, word in (
            ("tokens", "training tokens"),
            ("parameters", "parameters"),
            ("corpus.documents", "documents"),
            ("corpus.tokens", "tokens"),
            ("positions.kept", "positions"),
        ):
            if (found := self.book.records.get(Key(metric, self.models[0], self.seeds[0]))) is not None:
                words.append(f"{short(found.value)} {word}")
        if (length := self.book.records.get(Key("probe.length", self.models[0], self.seeds[0]))) is not None:
            words.append(f"{length.value:.0f} positions")
        if self.seeds != [None]:
            words.append(f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}")
        if value is not None and len(value.at) == 1:
            splits = value.at.shape[1]
            over = f"interval over {splits} document splits" if splits > 1 else "interval over documents"
            over = f"interval over {splits} documents" if value.apart else over
            words.append(over if self.interval(value) else "no interval")
        return ", ".join(words)

    @property
    def read(self) -> list[str]:
        """The records read so far in words, at most `MOST_ENTRIES`."""
        return described(self._read)

    def _keys(self, metric: str, model: str) -> list[Key]:
        return self.book.by_metric.get((metric, model), [])

    def _get(self, key: Key) -> Record:
        if self._step is not None:
            if key.step is not None:
                raise Missing("an untrained model has no checkpoints")
            key = replace(key, step=self._step)
        record = self.book.records.get(key)
        if record is None:
            places = ("seed", "layer", "head", "part", "index", "step")
            named = [(name, getattr(key, name)) for name in places if getattr(key, name) is not None]
            raise Missing(f"no {key.metric} of {key.model}" + "".join(f", {name} {v}" for name, v in named))
        self._read[key] = None
        return record


def placed(e: Evidence) -> None:
    """Refuse to hold a model's table against the corpus where its rows are no places in documents."""
    found = e.book.records.get(Key("corpus.from_start", ""))
    if found is not None and found.value < PLACED:
        share = f"{found.value:.1%}".replace("%", " %")
        raise Missing(f"windows run on: {share} begin with a document, so table rows are no places in documents")


def corpora(book: Book) -> list[str]:
    """The corpora whose geometry was measured: "corpus" in a study, its own name in a geometry run."""
    return book.models("stress.raw", "sinusoidal", stepped=False)


def tables(book: Book) -> list[str]:
    """The position tables of a run that a training made, as far as the records show it."""
    return [name for name in book.models("n50", None, stepped=False) if name not in FIXED_TABLES]


def words(book: Book) -> list[str]:
    """The models whose word tables were measured."""
    return book.models("n50", "words")


def checkpoints(book: Book) -> list[str]:
    """The models whose position tables were measured at every checkpoint."""
    return book.models("separation", stepped=True)


def projected(book: Book) -> list[str]:
    """The models through whose query and key matrices the sinusoidal table was sent."""
    return book.models("projected.stress.raw", "sinusoidal")


def swapped(book: Book) -> list[str]:
    """The models whose loss was measured with two tokens in each other's place."""
    return book.models("swap.loss")


def with_conditions(book: Book) -> list[str]:
    """The models whose mean embeddings at the positions of a corpus were compared."""
    return book.models("h1")


def described(keys: Iterable[Key]) -> list[str]:
    """Places of records in words: those that differ in layer, head, index, step or seed are one entry with ranges."""
    groups: dict[tuple[str, str, str | None], list[Key]] = {}
    for key in keys:
        groups.setdefault((key.metric, key.model, key.part), []).append(key)
    entries = [_entry(*place, found) for place, found in groups.items()]
    more = len(entries) - MOST_ENTRIES
    return entries if more <= 0 else [*entries[: MOST_ENTRIES - 1], f"and {more + 1} more of these metrics"]


def _entry(metric: str, model: str, part: str | None, keys: Sequence[Key]) -> str:
    words = [metric, *([model] if model else []), *([part] if part else [])]
    for name in ("layer", "head"):
        words += _range(name, [getattr(k, name) for k in keys])
    steps = [k.step for k in keys]
    if None in steps and set(steps) != {None}:
        words[-1] += ", final and"
    words += _range("step", steps)
    indices = {k.index for k in keys if k.index is not None}
    split = metric.startswith(("r2.", "regression."))
    documents = metric == "ablation.loss"
    words += [] if split or documents else _range("index", [k.index for k in keys])
    seeds = sorted({k.seed for k in keys if k.seed is not None})
    said = " ".join(words)
    if split and indices:
        said += f", {len(indices)} splits"
    if documents and indices:
        said += f", {len(indices)} documents"
    return said + (f", seeds {_spans(seeds)}" if len(seeds) > 1 else "")


def _range(name: str, values: Sequence[int | None]) -> list[str]:
    found = sorted({v for v in values if v is not None})
    if name == "step" and len(found) > 3:
        return [f"{len(found)} checkpoints, step {found[0]}-{found[-1]}"]
    return [f"{name} {_spans(found)}"] if found else []


def _spans(values: Sequence[int]) -> str:
    """1, 2, 3, 5 as "1-3, 5"."""
    spans: list[list[int]] = []
    for v in values:
        if spans and v == spans[-1][1] + 1:
            spans[-1][1] = v
        else:
            spans.append([v, v])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def short(count: float) -> str:
    """4830000 as "4.83M"."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.0f}"
