"""Evidence of a claim: the records of a run about some models, and a note of the records that it reads."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from ..records.gates import insufficient_gain, labels, noise, unsettled
from ..records.metrics import repeats
from ..records.record import Record
from ..records.table import ANY, Point, Table, largest, summary

MOST_ENTRIES = 12  # of the list of records of a verdict
_PLACES = ("layer", "head", "part", "index", "step")
_COUNTS = {  # metrics of the amount of training or counting -> in words
    "tokens": "training tokens",
    "parameters": "parameters",
    "corpus.documents": "documents",
    "corpus.tokens": "tokens",
    "positions.kept": "positions",
}


class Missing(Exception):
    """Error for a record that a claim needs and the run lacks; its text names the record."""


class Evidence:
    """Records of a run about some models, over the training seeds that all of them share.

    Every record that gives a claim's value or bars is noted in `read`; losses behind the gates are not. Reads without a
    name are of the first model. seeds: [None] where no training is involved. step: step of the records, None for the
    final model, 0 for the untrained one. note: further facts about a measurement. over: source of its interval where
    that is no seed, split or document; both go into the scale of the verdict.

    Every method that reads records raises `Missing` where the run lacks them, and says which.
    """

    def __init__(self, table: Table, models: Sequence[str], step: int | None = None) -> None:
        self.table = table
        self.models = tuple(models)
        self.model = models[0]
        self.step = step
        if lacking := [model for model in models if not table.seeds.get(model)]:
            raise Missing(f"needs a model {' and a model '.join(lacking)} in the study")
        trained = [(table.seeds[model] - {None}) or {None} for model in models]
        self.seeds = sorted(set.intersection(*trained), key=lambda s: -1 if s is None else s)
        if step == 0 and self.seeds == [None]:  # a published encoder's seed is unknown, its drawn copy's is not
            drawn = {r.seed for r in table.records if r.model == self.model and r.step == 0}
            self.seeds = [*sorted(seed for seed in drawn if seed is not None)] or [None]
        if not self.seeds:
            raise Missing(f"{' and '.join(models)} have no training seed in common")
        self.note = ""
        self.over = ""
        self.read: dict[Record, None] = {}

    def untrained(self) -> "Evidence":
        """Return the evidence of the untrained models; this one notes the records that it reads.

        Raises:
            Missing: this is the evidence of untrained models.
        """
        if self.step is not None:
            raise Missing("an untrained model is its own control")
        start = Evidence(self.table, self.models, step=0)
        start.read = self.read
        return start

    def share_seeds(self, metric: str, model: str, part: str) -> None:
        """Leave out the seeds at which a further model lacks a metric.

        Raises:
            Missing: it has the metric at none of the seeds.
        """
        theirs = {r.seed for r in self.table.rows(metric, model, part=part, step=None)}
        shared = [seed for seed in self.seeds if seed in theirs]
        if not shared:
            raise Missing(f"{self.model} and {model} have no training seed in common")
        self.seeds = shared

    def rows(self, metric: str, model: str | None = None, **where: object) -> list[Record]:
        """Return records of a metric of a model at the seeds and the step of the evidence, without noting them."""
        where = {"step": self.step, **where}
        return self.table.rows(metric, model or self.model, seed=tuple(self.seeds), **where)

    def value(self, metric: str, model: str | None = None, **place: int | str | None) -> Point:
        """Return the value of a model in one place: of every split where the metric is repeated, else of single
        records.

        place: layer, head, part, index and step; columns without a value are empty.

        Raises:
            Missing: a seed has no such record.
        """
        name = model or self.model
        if self.step is not None and place.get("step") is not None:
            raise Missing("an untrained model has no checkpoints")
        place = dict.fromkeys(_PLACES) | {"step": self.step} | place
        split = repeats(metric) and place["index"] is None
        rows = self.rows(metric, name, **{**place, "index": ANY} if split else place)
        if lacking := [seed for seed in self.seeds if not any(r.seed == seed for r in rows)]:
            if repeats(metric) == "splits":
                raise Missing(f"no {metric} of {name}, part {place['part']}, at hidden[{place['layer']}]")
            where = [f", {key} {value}" for key, value in {"seed": lacking[0], **place}.items() if value is not None]
            raise Missing(f"no {metric} of {name}" + "".join(where))
        return self._summed(rows, [r for r in rows if split and r.index is not None] or rows)

    def r2(self, model: str, target: str, part: str, layer: int) -> Point:
        """Return R² of a target in a part of hidden[layer]."""
        return self.value(f"r2.{target}", model, part=part, layer=layer)

    def peak(self, model: str, target: str, part: str = "all") -> Point:
        """Return R² at the layer from 1 on with the largest mean, chosen for each seed.

        Where the position stream is read, the last layer of dstg is left out, as the stream gets no gradient there.
        """
        last = self.late(model) if model == "dstg" and part != "semantic" else self.last(model)
        return largest([self.r2(model, target, part, layer) for layer in range(1, last + 1)])

    def last(self, model: str | None = None) -> int:
        """Return the number of blocks of a model: hidden[last] is the output of the last one."""
        layers = self.table.distinct("layer", "r2.token", model or self.model)
        if not layers:
            raise Missing(f"no probes of {model or self.model}")
        return int(max(layers))

    def late(self, model: str | None = None) -> int:
        """Return the number of the last block whose position stream is trained; the one after it gets no gradient (DSTG
        3.3)."""
        blocks = self.last(model)
        if blocks < 3:
            raise Missing(f"{model or self.model} has {blocks} blocks; losing position through the layers needs three")
        return blocks - 1

    def heads(self, metric: str, part: str | None = None) -> list[Point]:
        """Return a metric of every attention head, in the order of layers and heads."""
        rows = self.table.rows(metric, self.model, part=part, step=None, index=None, seed=self.seeds[0])
        places = sorted({(r.layer or 0, r.head) for r in rows if r.head is not None})
        if not places:
            name = "" if part is None else f", part {part},"
            raise Missing(f"no {metric}{name} of the heads of {self.model}")
        return [self.value(metric, layer=at, head=head, part=part) for at, head in places]

    def labelled(self) -> np.ndarray:
        """Return the labels of the heads of the first model, (heads, seeds), in the order of `heads`: a term,
        "several", or `gates.NOTHING`.

        Raises:
            Missing: a seed has no labels, or no head was ablated alone.
        """
        of_seeds = [labels(self.table, self.model, seed) for seed in self.seeds]
        if self.step is not None or not all(of_seeds):
            raise Missing(f"no head.label of {self.model} with ablation.remove of its single heads")
        for metric in ("head.label", "ablation.remove"):
            rows = self.rows(metric)
            self.read |= dict.fromkeys(r for r in rows if r.head is not None and r.index is None)
        return np.array([[label for _, label in sorted(of_seed.items())] for of_seed in of_seeds]).T

    def at_labelled(self, metric: str) -> np.ndarray:
        """Return a metric of every head, (heads, seeds), in the order of `labelled`; nan where a head has no record, as
        of the shares of a head whose attention hardly changes.

        Raises:
            Missing: no head has such a record.
        """
        rows = [r for r in self.rows(metric, index=None, part=None) if r.head is not None]
        if not rows:
            raise Missing(f"no {metric} of the heads of {self.model}")
        self.read |= dict.fromkeys(rows)
        values = {(r.layer, r.head, r.seed): r.value for r in rows}
        places = sorted(labels(self.table, self.model, self.seeds[0]))
        return np.array([[values.get((*place, seed), np.nan) for seed in self.seeds] for place in places])

    def along(self, column: str, metric: str, part: str | None = None) -> dict[int, Point]:
        """Return a metric at every layer, or at every index (component, rank, width), that has it."""
        values = sorted(self.table.distinct(column, metric, self.model, part=part, head=None, step=None))
        if not values:
            raise Missing(f"no {metric} of {self.model}{'' if part is None else f', part {part}'}")
        return {at: self.value(metric, **{column: at, "part": part}) for at in values}

    def checkpoints(self, metric: str, part: str | None = None, model: str | None = None) -> list[int]:
        """Return every step at which all seeds of a model have a metric, ascending."""
        if self.step is not None:
            raise Missing("an untrained model has no checkpoints")
        name = model or self.model
        steps = [set(self.table.distinct("step", metric, name, part=part, seed=seed)) for seed in self.seeds]
        if not (shared := set.intersection(*steps)):
            raise Missing(f"no {metric} of the checkpoints of {name}")
        return sorted(shared)

    def last_step(self, metric: str, part: str | None = None, model: str | None = None) -> Point:
        """Return a metric of a model at the last of its checkpoints."""
        return self.value(metric, model, part=part, step=self.checkpoints(metric, part, model)[-1])

    def loss(self, model: str) -> Point:
        """Return the MLM loss on held-out documents in nats, of every document that all models of the claim share.

        Differences are then paired by document. Without such records the mean with its interval; without those the
        last validation loss of the training, which has none.
        """
        metrics = ("loss.document", "ablation.loss")  # of many documents, of the few that are ablated
        metric = next((m for m in metrics if all(self.table.rows(m, name) for name in self.models)), None)
        if metric is None:
            return self.last_step("loss", "validation", model)
        rows = {name: self.rows(metric, name) for name in self.models}
        documents = [{r.index for r in rows[m] if r.seed == seed} - {None} for m in rows for seed in self.seeds]
        shared = set.intersection(*documents)
        chosen = [r for r in rows[model] if r.index in (shared if len(shared) > 1 else {None})]
        if lacking := [seed for seed in self.seeds if not any(r.seed == seed for r in chosen)]:
            raise Missing(f"no {metric} of {model}, seed {lacking[0]}")
        return self._summed(chosen, chosen)

    def count(self, metric: str, part: str | None = None) -> int:
        """Return the number of observations behind a metric of the first model."""
        rows = self.table.rows(metric, self.model, part=part)
        if not rows or rows[0].n is None:
            raise Missing(f"no {metric} of {self.model} with its number of observations")
        return rows[0].n

    def upper(self, metric: str) -> Point:
        """Return the upper ends of the intervals of a metric of the first model, as a point."""
        point = self.value(metric)
        highs = {r.seed: r.high for r in self.rows(metric, **dict.fromkeys(_PLACES) | {"step": self.step})}
        ends = [high for seed in self.seeds if (high := highs[seed]) is not None]
        if len(ends) < len(self.seeds) or ends == point.seed_values.tolist():
            raise Missing(f"no interval of {metric} of {self.model}")
        return Point.of([[end] for end in ends], span=point.span)

    def beside(self, family: str, model: str, other: str, part: str) -> Point:
        """Return the lead of a model's score on a task over another's, paired by rows, which the interval is over.

        It is the difference of two `FAMILY.difference`, each beside the first model of the evaluation.
        """
        ends = []
        for name in (model, other):
            if not self.table.rows(f"{family}.score", name, part=part, step=self.step):
                raise Missing(f"no {family}.score of {name}, part {part}")
            rows = self.table.rows(f"{family}.difference", name, part=part, step=self.step)
            self.read |= dict.fromkeys(rows)
            ends.append(summary(rows) or Point.between(0.0))  # the first model has none beside itself
        return ends[0] - ends[1]

    def taught(self, family: str, model: str, part: str) -> Point:
        """Return the gain of a model by training on a task: its score less the score of its untrained self, paired by
        rows."""
        point = self.table.point(f"{family}.taught", model, part=part)
        if point is None:
            raise Missing(f"no {family}.taught of {model}, part {part} (whatwhere evaluate {family} --untrained)")
        self.read |= dict.fromkeys(self.table.rows(f"{family}.taught", model, part=part, step=None))
        return point

    def require(self, point: Point, least: float, what: str) -> Point:
        """Return the point if its quantity is present: at least `least` in every seed; `what` names it. Untrained
        models pass.

        Raises:
            Missing: the value of a seed is below `least`.
        """
        smallest = float(point.seed_values.min())
        if self.step is None and smallest < least:
            of_seed = " in the least seed" if len(point.seed_values) > 1 else ""
            raise Missing(f"needs {what} of {least:g}; it is {smallest:.2g}{of_seed}")
        return point

    def moved(self, *models: str) -> None:
        """Refuse position tables that do not stand above their noise (`gates.noise`), as they would show its dimensions
        and fast changes.

        Tables of a fine-tuning, and tables without a measured noise, pass. models: default the first model.

        Raises:
            Missing: a table does not stand above its noise.
        """
        for model in models or (self.model,):
            if self.step is None and not self.table.rows("accuracy.commonest", model):
                for metric in ("table.floor", "table.rms", "table.walk"):
                    self.read |= dict.fromkeys(self.rows(metric, model))
                if why := noise(self.table, model, self.seeds):
                    raise Missing(f"needs a table of {model} that stands above its noise: {why}")

    def used(self, target: str, layer: int) -> tuple[Point, Point]:
        """Return two measures of the use of the first model's position stream, beside carrying its table along.

        The first is the worth of the absolute term in nats, in the seed where it is smallest; the second is R² of a
        target in the update that the block `layer` writes into the stream.
        """
        worth = self.value("ablation.remove", part="absolute")
        least = [int(worth.seed_values.argmin())]
        worth = replace(worth, at=worth.at[least], below=worth.below[least], above=worth.above[least])
        of_seed = " in the least seed" if len(self.seeds) > 1 else ""
        use = f"the absolute term is worth {worth.value:.2g} nats{of_seed}"
        self.note = "; ".join(filter(None, (self.note, use)))
        return worth, self.r2(self.model, f"update.{target}", "position", layer)

    def undertrained(self, share: float) -> str:
        """Return a sentence on the first undertrained model, about which no claim can be made; "" without one."""
        for model in self.models:
            if gains := insufficient_gain(self.table, model, self.seeds, share):
                place = "above" if gains[0] < 0 else "below"
                needed = f"{abs(gains[0]):.2f} nats {place} token frequencies, {gains[1]:.2f} below are needed"
                return f"{model} has learned too little: {needed}"
        return ""

    def unsettled(self) -> str:
        """Return a sentence on the models whose validation losses still fall (`gates.unsettled`); "" without one."""
        return "; ".join(
            f"{model} still learns: {fall[0]:.2f} nats in the last tenth of {fall[1]:,} steps"
            for model in self.models
            if (fall := unsettled(self.table, model, self.seeds))
        )

    def scale(self, point: Point) -> str:
        """Return the amounts of training, counting and measuring behind a point, in words."""
        pieces = [f"{short(count)} {what}" for metric, what in _COUNTS.items() if (count := self._fact(metric))]
        if length := self._fact("probe.length"):
            pieces.append(f"{length:.0f} positions")
        if self.over:
            return ", ".join([*pieces, "one training of each model", f"interval over {self.over}"])
        if self.seeds != [None]:
            pieces.append(f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}")
        if point.over.startswith("seeds and"):
            pieces.append(f"interval over {point.over}")
        if len(point.at) == 1:
            many = f"{point.at.shape[1]} " if point.at.shape[1] > 1 else ""
            what = "document splits" if many and point.columns == "splits" else "documents"
            pieces.append(f"interval over {many}{what}" if point.interval else "no interval")
        return ", ".join(pieces)

    def _fact(self, metric: str) -> float | None:
        rows = self.table.rows(metric, self.model, seed=self.seeds[0], **dict.fromkeys(_PLACES))
        return rows[-1].value if rows else None

    def _summed(self, rows: Iterable[Record], read: Iterable[Record]) -> Point:
        """Return the point of some records, its rows in the order of the seeds, and note the records of `read`."""
        self.read |= dict.fromkeys(read)
        point = summary(sorted(rows, key=lambda r: self.seeds.index(r.seed)))
        assert point is not None
        return point


def entangled(table: Table, model: str) -> bool:
    """Tell if a model adds its table to the words, as far as is known: no stream and no term of the scores is position
    alone."""
    parts = {*table.distinct("part", "r2.token", model), *table.distinct("part", "scores.std", model)}
    return not parts & {"position", "absolute"}


def described(records: Iterable[Record]) -> list[str]:
    """Return the places of records in words, at most `MOST_ENTRIES`; records that differ in layer, head, index, step or
    seed share an entry."""
    groups: dict[tuple[str, str, str | None], list[Record]] = {}
    for r in records:
        groups.setdefault((r.metric, r.model, r.part), []).append(r)
    entries = [_entry(*place, rows) for place, rows in groups.items()]
    more = len(entries) - MOST_ENTRIES
    return entries if more <= 0 else [*entries[: MOST_ENTRIES - 1], f"and {more + 1} more of these metrics"]


def _entry(metric: str, model: str, part: str | None, rows: Sequence[Record]) -> str:
    of = {
        name: sorted({v for r in rows if (v := getattr(r, name)) is not None})
        for name in ("layer", "head", "step", "index", "seed")
    }
    entry = " ".join(filter(None, (metric, model, part)))
    steps = of["step"]
    for name in ("layer", "head"):
        entry += f" {name} {_spans(of[name])}" if of[name] else ""
    if steps:
        entry += ", final and" if any(r.step is None for r in rows) else ""
        few = len(steps) <= 3
        entry += f" step {_spans(steps)}" if few else f" {len(steps)} checkpoints, step {steps[0]}-{steps[-1]}"
    if of["index"]:
        entry += f", {len(of['index'])} {repeats(metric)}" if repeats(metric) else f" index {_spans(of['index'])}"
    return entry + (f", seeds {_spans(of['seed'])}" if len(of["seed"]) > 1 else "")


def _spans(values: Sequence[int]) -> str:
    """Return 1, 2, 3, 5 as "1-3, 5"."""
    runs = ([v for _, v in run] for _, run in groupby(enumerate(values), key=lambda place: place[1] - place[0]))
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def short(count: float) -> str:
    """Return a number with three digits and a letter: 4830000 as "4.83M"."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.0f}"
