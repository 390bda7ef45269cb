"""What a model must have learned before anything is said of it, the same for the ledger and for every page."""

from collections.abc import Iterable

from .points import ANY, Table

LEARNED = 0.1  # nats below the unigram plateau from which a model counts as trained
FALLING = 0.05  # nats by which the loss of a model that is still learning fell over the last tenth of its steps


PLACED = 0.5  # share of the windows that begin with a document, from which places in windows are places in documents


def unplaced(table: Table) -> float | None:
    """Share of the training windows that begin with a document, where it is below `PLACED`: they run on."""
    share = table.point("corpus.from_start")
    return share.value if share is not None and share.value < PLACED else None


def plateau(table: Table, model: str = "") -> float | None:
    """Entropy of token frequencies in nats; a model's own, where runs of several corpora stand side by side."""
    point = table.point("loss.unigram", model) or table.point("loss.unigram")
    return point.value if point else None


def unlearned(table: Table, model: str, seeds: Iterable[int | None] | None = None) -> float | None:
    """Final validation loss of the first seed in which a model is not `LEARNED` nats below the unigram plateau.

    seeds: those that count, default all. None where every seed has learned more, or nothing was recorded.
    """
    level = plateau(table, model)
    finals = [final for final, _ in _losses(table, model, seeds)]
    return next((loss for loss in finals if level is not None and loss > level - LEARNED), None)


def falling(table: Table, model: str, seeds: Iterable[int | None] | None = None) -> tuple[float, int] | None:
    """Largest fall of a model's validation loss in nats, and over how many steps, where it is more than `FALLING`.

    From the last validation before the last tenth of the steps to the end. None where no seed still learns.
    """
    falls = []
    for _, losses in _losses(table, model, seeds):
        last = max(losses, default=0)
        before = max((step for step in losses if step <= 0.9 * last and step < last), default=None)
        if before is not None:
            falls.append((losses[before] - losses[last], last - before))
    return max(falls) if falls and max(falls)[0] > FALLING else None


def _losses(table: Table, model: str, seeds: Iterable[int | None] | None) -> list[tuple[float, dict[int, float]]]:
    """Final validation loss and step -> validation loss of every seed that has any."""
    rows = table.rows("loss", model, part="validation", seed=ANY if seeds is None else tuple(seeds))
    courses = []
    for seed in dict.fromkeys(r.seed for r in rows):
        of_seed = {r.step: r.value for r in rows if r.seed == seed}
        steps = {step: loss for step, loss in of_seed.items() if step is not None}
        courses.append((of_seed[None] if None in of_seed else steps[max(steps)], steps))
    return courses
