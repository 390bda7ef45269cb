"""How much of one model's streams is in another's hidden states: ridge regression from states to states (DSTG B.2,
figure 8)."""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ..records import Record
from .passes import Documents, Progress, as_numpy, check_finite, hidden_states
from .probes import MEMORY, Sums, check_penalty, ridge_r2, split_documents, stream_columns
from .who import Who

STREAMS = ("position", "semantic")
# Targets: of the same token, of another document's, of another document's in random order.
ENDINGS = ("", ".place", ".chance")
CONSTANT = 1e-12  # a target whose squares about its mean are a smaller share of the largest target's does not vary

_log = logging.getLogger(__name__)
Pair = tuple[str, int]  # baseline, layer


def regression_records(
    reference_model: Any,
    models: Mapping[str, Any],
    documents: Documents,
    *,
    study: str,
    reference: str = "dstg",
    seed: int | None,
    splits: int = 5,
    penalty: float = 1.0,
    batch_size: int = 8,
    progress: Progress = None,
) -> list[Record]:
    """R² of ridge regressions from the hidden states of each model onto the position and the semantic stream of a
    reference model.

    Records of each model (`model`; `part` is the reference) and layer: `regression.position`, `regression.semantic`,
    each split and their mean (`Who.splits`; n: documents). The value is the mean over the target columns of R² on the
    documents of the test (scikit-learn's Ridge and r2_score); columns that do not vary are left out. Regular tokens
    only; splits as of the probes (`split_documents`). States of layer l of a model of L blocks are set against those of
    layer l of the reference, or of the nearest relative depth, l · L_reference / L, where it has another number of
    blocks; `layer` is the model's.

    Two controls, with the targets of another document of the set. `.place`: of its token in the same place among the
    regular ones (from the start again if it has fewer): what the streams of all documents have in common, of the
    position stream most. `.chance`: of its tokens in random order: the floor, near 0.

    All models run side by side over the same batches; sums of outer products are all that is kept, at most 2 GiB of
    them at a time. What needs more is done layer by layer, with a pass of the models for each such chunk.

    Args:
        reference_model: has a position stream (`config.position_size` > 0).
        models: the baselines by name; the reference itself may be among them, its own states say all of its streams.
        documents: of all models, see `choose_documents`; m windows of n tokens.
        seed: of all these models; goes into the records only.
        batch_size: documents at a time, at least 2.

    Raises:
        ValueError: a reference without streams, a document without regular tokens, options out of range, or hidden
            states that are not finite.
    """
    config = reference_model.config
    if not getattr(config, "position_size", 0):
        raise ValueError(
            f"{reference} has no position stream to predict (position_size is 0). Give a model with two streams: dstg, "
            "split or low-rank."
        )
    check_penalty(penalty)
    if batch_size < 2:
        raise ValueError(f"The regression needs at least 2 documents at a time. Got batch_size={batch_size}.")
    if len(documents) < 2 or not documents.regular.any(1).all():
        raise ValueError(
            f"Each of at least 2 documents must have regular tokens; {int(documents.regular.any(1).sum())} have some."
        )
    test = split_documents(len(documents), splits)
    records: list[Record] = []
    for pairs in _chunks(models, config, splits):
        cross_sums = _cross_sums(reference_model, models, documents, test, pairs, batch_size, progress)
        for (name, layer), sums in cross_sums.items():
            splits_of = partial(Who(name, seed, study).splits, documents=len(documents), n=len(documents))
            for metric, values in sums.r2(stream_columns(config), penalty).items():
                records += splits_of(metric, values, tested=test.sum(1), part=reference, layer=layer)
    return records


class CrossSums:
    """Sums over tokens of [x, 1]ᵀ[x, 1, y] and of y², for states x (p wide) and three kinds of targets y (q each): what
    `Sums` needs.

    Those of all documents, and of the documents that each split tests. `x_shift` and `y_shift` are vectors near the
    means, without which states far from zero would lose their digits in the sums.
    """

    def __init__(self, x_shift: np.ndarray, y_shift: np.ndarray, splits: int) -> None:
        self.x_shift, self.y_shift = x_shift, y_shift
        self.p, self.q = len(x_shift), len(y_shift)
        columns = len(ENDINGS) * self.q
        self.total = np.zeros((self.p + 2, self.p + 1 + columns))  # the last row: squares of y
        self.test = np.zeros((splits, *self.total.shape))

    def add(self, x: np.ndarray, targets: list[np.ndarray], tested_in: np.ndarray) -> None:
        """Add tokens of documents that the splits `tested_in` test and all others train on: x (t, p), targets (t, q) of
        each kind."""
        z = np.empty((len(x), self.total.shape[1]))
        np.subtract(x, self.x_shift, out=z[:, : self.p])
        z[:, self.p] = 1.0
        for i, y in enumerate(targets):
            np.subtract(y, self.y_shift, out=z[:, self._columns(i)])
        products = z[:, : self.p + 1].T @ z
        squares = np.einsum("tc,tc->c", z, z)
        for sums in (self.total, *(self.test[s] for s in tested_in)):
            sums[:-1] += products
            sums[-1] += squares

    def r2(self, parts: Mapping[str, slice], penalty: float) -> dict[str, list[float]]:
        """Mean R² of each split for the streams of the reference and their controls, by metric; without streams that do
        not vary."""
        r2: dict[str, list[float]] = {}
        for test in self.test:
            train, held_out = self._sums(self.total - test), self._sums(test)
            spread = np.minimum(train.spread(), held_out.spread())
            with np.errstate(divide="ignore", invalid="ignore"):  # of targets that do not vary
                of_columns = ridge_r2(train, held_out, penalty)
            for i, ending in enumerate(ENDINGS):
                for stream in STREAMS:
                    columns = np.arange(i * self.q, (i + 1) * self.q)[parts[stream]]
                    varies = columns[spread[columns] > CONSTANT * spread.max()]
                    if len(varies):
                        r2.setdefault(f"regression.{stream}{ending}", []).append(float(of_columns[varies].mean()))
        complete = {metric: values for metric, values in r2.items() if len(values) == len(self.test)}
        if len(complete) < len(ENDINGS) * len(STREAMS):
            _log.warning("No regression onto a stream that does not vary; left: %s.", ", ".join(complete) or "none")
        return complete

    def _columns(self, kind: int) -> slice:
        start = self.p + 1 + kind * self.q
        return slice(start, start + self.q)

    def _sums(self, m: np.ndarray) -> Sums:
        p = self.p
        return Sums(m[p, p], m[:p, p], m[p, p + 1 :], m[:p, :p], m[:p, p + 1 :], m[-1, p + 1 :])


def _cross_sums(
    reference_model: Any,
    models: Mapping[str, Any],
    documents: Documents,
    test: np.ndarray,
    pairs: list[Pair],
    batch_size: int,
    progress: Progress,
) -> dict[Pair, CrossSums]:
    """Sums of the given baselines and layers, from one pass of these baselines and the reference side by side."""
    # Documents that the same splits test one after the other, so that most batches need one sum.
    order = np.lexsort(test[::-1])
    depth = reference_model.config.num_hidden_layers
    # Each model once, the reference first.
    running = {id(model): model for model in (reference_model, *(models[name] for name, _ in pairs))}
    passes = [
        hidden_states(model, documents, order, batch_size, progress if model is reference_model else None)
        for model in running.values()
    ]
    sums: dict[Pair, CrossSums] = {}
    # The last document of the batch before, and its states in the reference.
    before: tuple[int, list[np.ndarray]] | None = None
    for states in zip(*passes, strict=True):
        indices, hidden = states[0][0], dict(zip(running, (h for _, h in states), strict=True))
        reference_states = [as_numpy(h) for h in states[0][1]]
        partners = [(int(indices[r - 1]), [h[r - 1] for h in reference_states]) for r in range(len(indices))]
        if before is not None:
            partners[0] = before
        # Documents that the same splits test are added together.
        patterns, which = np.unique(test[:, indices], axis=1, return_inverse=True)
        groups = [(np.flatnonzero(p), np.flatnonzero(which.ravel() == i)) for i, p in enumerate(patterns.T)]
        regular = documents.regular[indices]
        for name, layer in pairs:
            x = as_numpy(hidden[id(models[name])][layer])
            target = int(layer * depth / models[name].config.num_hidden_layers + 0.5)
            y = reference_states[target]
            if (name, layer) not in sums:
                x_mean, y_mean = (a[regular].mean(axis=0, dtype=np.float64) for a in (x, y))
                sums[name, layer] = CrossSums(x_mean, y_mean, len(test))
            for tested_in, rows in groups:
                of_rows = [
                    _targets(documents, int(indices[r]), y[r], partners[r][0], partners[r][1][target]) for r in rows
                ]
                inputs = np.concatenate([x[r][regular[r]] for r in rows])
                sums[name, layer].add(inputs, [np.concatenate(kind) for kind in zip(*of_rows, strict=True)], tested_in)
        before = int(indices[-1]), [h[-1] for h in reference_states]
    for (name, layer), of_pair in sums.items():
        check_finite(of_pair.total, f"hidden[{layer}] of {name} or its reference")
    return sums


def _targets(
    documents: Documents, document: int, states: np.ndarray, partner: int, others: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Targets (t, q) for the t regular tokens of a document: its own, another's in the same places, another's in random
    order."""
    same = states[documents.regular[document]]
    other = others[documents.regular[partner]]
    places = np.arange(len(same)) % len(other)
    return same, other[places], other[np.random.default_rng([1, document]).permutation(places)]


def _chunks(models: Mapping[str, Any], config: Any, splits: int) -> list[list[Pair]]:
    """All baselines and layers in runs whose sums fit in MEMORY."""
    chunks: list[list[Pair]] = []
    held = 0
    for layer in range(max(m.config.num_hidden_layers for m in models.values()) + 1 if models else 0):
        for name, model in models.items():
            if layer <= model.config.num_hidden_layers:
                p = model.config.hidden_size
                size = 8 * (splits + 2) * (p + 2) * (p + 1 + len(ENDINGS) * config.hidden_size)
                if not chunks or held + size > MEMORY:
                    chunks.append([])
                    held = 0
                chunks[-1].append((name, layer))
                held += size
    return chunks
