"""Ridge regressions from the hidden states of models to the streams of a reference (DSTG B.2, figure 8).

They say how much of what one model's streams hold is in another's states: in float64, as the probes.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ..records.metric import BASELINE, R2, SPLITS, Metric, with_endings
from ..records.metrics import add_metrics
from ..records.record import Record
from .passes import ChosenWindows, Progress, as_numpy, check_finite, hidden_states
from .probes import (
    CONSTANT,
    STREAMS,
    SplitSums,
    chunks_of,
    ridge_r2,
    split_documents,
    stream_columns,
    tested_together,
)
from .record_context import RecordContext

# Targets of a regression: of the same token, of another document's, of another document's in random order.
ENDINGS = ("", ".place", ".chance")

_log = logging.getLogger(__name__)

add_metrics(
    {
        **with_endings(
            "regression.",
            [stream + ending for stream in STREAMS for ending in ("", ".place", ".chance")],
            Metric(
                name="R² of a stream",
                unit=R2,
                part=BASELINE,
                index="split",
                over=SPLITS,
                repeats="splits",
                method="regression",
            ),
        ),
    },
    methods={
        "regression": """
How much of a stream another model has is asked by a ridge regression from its hidden state of a layer to the reference
model’s stream of the same layer, over tokens, R² on documents that the regression has not seen (DSTG, appendix B.2).
The regression may turn and stretch the state freely, so it says that the stream can be read there, not that it is used.
""",
    },
)


def regression_records(
    reference_model: Any,
    models: Mapping[str, Any],
    windows: ChosenWindows,
    *,
    run_name: str,
    reference: str = "dstg",
    seed: int | None,
    splits: int = 5,
    batch_size: int = 8,
    progress: Progress = None,
) -> list[Record]:
    """Measure R² of ridge regressions from the hidden states of each model onto the streams of a reference model.

    Records of each model (`model`; `part` is the reference) and layer: `regression.position`, `regression.semantic`,
    each split and their mean (`RecordContext.splits`; n: documents, in a split the tested ones). The value is the mean
    over the target columns of R²; columns that do not vary are left out. Regular tokens only; splits as of the probes
    (`split_documents`). States of layer l of a model of L blocks are compared with the states of layer l of the
    reference, or of the nearest relative depth, l · L_reference / L, where it has another number of blocks; `layer` is
    the model's.

    Two controls, with the targets of a window of another document (of another window where all are of one). `.place`:
    of its token in the same place among the regular ones (from the start again if it has fewer): the part that the
    streams of all documents share, mostly of the position stream. `.chance`: of its tokens in random order: the floor,
    near 0.

    All models run side by side over the same batches; what needs more than `MEMORY` has a pass for each chunk.

    Args:
        reference_model: has a position stream (`config.position_size` > 0).
        models: the baselines by name; the reference itself may be among them, its own states say all of its streams.
        seed: of all these models; goes into the records only.
        batch_size: windows at a time.

    Raises:
        ValueError: a reference without streams, a document without regular tokens, or hidden states that are not
            finite.
    """
    config = reference_model.config
    if not getattr(config, "position_size", 0):
        raise ValueError(
            f"{reference} has no position stream to predict (position_size is 0). Give a model with two streams: dstg, "
            "split or low-rank."
        )
    if len(windows) < 2 or not windows.regular.any(1).all():
        raise ValueError(
            f"Only {int(windows.regular.any(1).sum())} of {len(windows)} windows have regular tokens. Give at "
            "least 2 windows, all with regular tokens."
        )
    which = windows.which()
    test = split_documents(which, splits)
    tests = [len(np.unique(which[held_out])) for held_out in test]
    deepest = max((model.config.num_hidden_layers for model in models.values()), default=-1)
    sizes = {
        (name, layer): SplitSums.size(model.config.hidden_size, len(ENDINGS) * config.hidden_size)
        for layer in range(deepest + 1)
        for name, model in models.items()
        if layer <= model.config.num_hidden_layers
    }
    records: list[Record] = []
    for pairs in chunks_of(sizes, splits):
        of_pairs = _regression_sums(reference_model, models, windows, test, pairs, batch_size, progress)
        for (name, layer), sums in of_pairs.items():
            splits_of = partial(
                RecordContext(name, seed, run_name).splits, documents=windows.document_count, n=windows.document_count
            )
            for metric, values in _regression_r2(sums, stream_columns(config)).items():
                records += splits_of(metric, values, tested=tests, part=reference, layer=layer)
    return records


def _regression_sums(
    reference_model: Any,
    models: Mapping[str, Any],
    windows: ChosenWindows,
    test: np.ndarray,
    pairs: list[tuple[str, int]],
    batch_size: int,
    progress: Progress,
) -> dict[tuple[str, int], SplitSums]:
    """Return the sums of some baselines and layers, from one pass of these baselines and the reference side by side."""
    # Windows that the same splits test one after the other, so that most batches need one sum.
    order = np.lexsort(test[::-1])
    which = windows.which() if windows.document_count > 1 else np.arange(len(windows))
    depth = reference_model.config.num_hidden_layers
    # Each model once, the reference first.
    running = {id(model): model for model in (reference_model, *(models[name] for name, _ in pairs))}
    passes = [
        hidden_states(model, windows, order, batch_size, progress if model is reference_model else None)
        for model in running.values()
    ]
    sums: dict[tuple[str, int], SplitSums] = {}
    shifts: dict[int, np.ndarray] = {}  # of the targets, by layer of the reference
    # (window, its states in the reference): the last one seen, and the last one of another document than that.
    first_other = order[np.flatnonzero(which[order] != which[order[0]])[:1]]
    ((_, states_of_other),) = hidden_states(reference_model, windows, first_other)
    other = (int(first_other[0]), [as_numpy(h)[0] for h in states_of_other])
    last = other
    for states in zip(*passes, strict=True):
        indices = states[0][0]
        hidden = dict(zip(running, (h for _, h in states), strict=True))
        reference_states = [as_numpy(h) for h in states[0][1]]
        partners = []
        for r, window in enumerate(indices):
            partners.append(last if which[last[0]] != which[window] else other)
            other = partners[-1]
            last = int(window), [h[r] for h in reference_states]
        regular = windows.regular[indices]
        for name, layer in pairs:
            x = as_numpy(hidden[id(models[name])][layer])
            target = int(layer * depth / models[name].config.num_hidden_layers + 0.5)
            y = reference_states[target]
            if (name, layer) not in sums:
                x_mean, y_mean = (a[regular].mean(axis=0, dtype=np.float64) for a in (x, y))
                shifts.setdefault(target, np.tile(y_mean, len(ENDINGS)))
                sums[name, layer] = SplitSums(x_mean, len(shifts[target]), len(test))
            for tested_in, rows in tested_together(test, indices):
                of_rows = [
                    _targets(windows, int(indices[r]), y[r], partners[r][0], partners[r][1][target]) for r in rows
                ]
                inputs = np.concatenate([x[r][regular[r]] for r in rows])
                sums[name, layer].add(inputs, np.concatenate(of_rows) - shifts[target], tested_in)
    for (name, layer), of_pair in sums.items():
        check_finite(of_pair.total, f"hidden[{layer}] of {name} or its reference")
    return sums


def _targets(windows: ChosenWindows, window: int, states: np.ndarray, partner: int, others: np.ndarray) -> np.ndarray:
    """Return the targets (t, 3 q) of the t regular tokens of a window, by ending: its own, another's in the same
    places, another's in random order."""
    same = states[windows.regular[window]]
    other = others[windows.regular[partner]]
    places = np.arange(len(same)) % len(other)
    return np.hstack([same, other[places], other[np.random.default_rng([1, window]).permutation(places)]])


def _regression_r2(sums: SplitSums, parts: Mapping[str, slice]) -> dict[str, list[float]]:
    """Compute the mean R² of each split for the streams of the reference and their controls, by metric, without streams
    that do not vary."""
    r2: dict[str, list[float]] = defaultdict(list)
    width = sums.q // len(ENDINGS)
    for train, test in sums.pairs():
        spread = np.minimum(train.spread(), test.spread())
        with np.errstate(divide="ignore", invalid="ignore"):  # of targets that do not vary
            of_columns = ridge_r2(train, test)
        for i, ending in enumerate(ENDINGS):
            for stream in STREAMS:
                columns = np.arange(i * width, (i + 1) * width)[parts[stream]]
                varies = columns[spread[columns] > CONSTANT * spread.max()]
                if len(varies):
                    r2[f"regression.{stream}{ending}"].append(float(of_columns[varies].mean()))
    complete = {metric: values for metric, values in r2.items() if len(values) == len(sums.test)}
    if len(complete) < len(ENDINGS) * len(STREAMS):
        _log.warning("No regression onto a stream that does not vary; left: %s.", ", ".join(complete) or "none")
    return complete
