"""How early a model is as good as another at its end (TUPE section 4.2 and figure 5), from the validation losses of a study."""

import math
from collections.abc import Sequence
from functools import partial

from ..records import Record, select
from .who import Who

Curve = list[tuple[int, float]]  # (step, validation loss) by step


def convergence_records(records: Sequence[Record], *, study: str) -> list[Record]:
    """For every ordered pair of models and each seed that both have: when the model reaches the baseline's final validation loss.

    `convergence.reached` (part: the baseline) is 1.0 if the model's final validation loss is not above the baseline's, else 0.0.
    `convergence.share`, only where reached: step from which on the model's loss stays at or below the baseline's final loss, as a share
    of the model's own steps, in (0, 1]. Between two validations the loss is taken as linear. A loss that dips below and rises again has
    not reached it: validations are few and noisy, and the first dip of a noisy curve comes too early. A model that is there at its first
    validation gets that step, an upper bound. n is the number of the model's validations.

    All models of a study train on the same batches, so a share of steps is a share of tokens; it is one of time or operations only where
    steps cost the same (`whatwhere study --match`). There are no intervals: only several seeds can give them. A training that diverged
    has reached nothing, and nothing is said about when others reach it.

    Args:
        records: of a study; those with metric "loss", part "validation" and a step are read.
    """
    curves = _curves(records)
    found = []
    for (model, seed), curve in curves.items():
        for (baseline, other), goal in curves.items():
            if baseline == model or other != seed or not math.isfinite(goal[-1][1]):
                continue
            step = reached(curve, goal[-1][1])
            record = partial(Who(model, seed, study).record, part=baseline, n=len(curve))
            found.append(record("convergence.reached", float(step is not None)))
            if step is not None:
                found.append(record("convergence.share", step / curve[-1][0]))
    return found


def reached(curve: Curve, loss: float) -> float | None:
    """Step, between validations by linear interpolation, from which on a curve stays at or below `loss`; None if it ends above."""
    above = [not value <= loss for _, value in curve]  # nan is above
    if above[-1]:
        return None
    if not any(above):
        return float(curve[0][0])
    last = len(above) - 1 - above[::-1].index(True)
    (a, high), (b, low) = curve[last : last + 2]
    return a + (b - a) * (high - loss) / (high - low) if math.isfinite(high) else float(b)


def _curves(records: Sequence[Record]) -> dict[tuple[str, int | None], Curve]:
    """The validation losses of each training, by step; without trainings that have none after step 0."""
    losses: dict[tuple[str, int | None], dict[int, float]] = {}
    for r in select(records, metric="loss", part="validation"):
        if r.step is not None:
            losses.setdefault((r.model, r.seed), {})[r.step] = r.value
    return {key: sorted(by_step.items()) for key, by_step in losses.items() if max(by_step) > 0}
