"""What must be true of a run before anything is concluded from it, the same for the ledger and for every page."""

from collections.abc import Iterable

from .intervals import LOSS_ROUNDING
from .table import ANY, Table

LEARNED = 0.1  # nats below the unigram plateau from which a model counts as trained at all
HALF = 0.5  # of the gain of the run's best model over the plateau, below which another is too young to be compared
FALLING = 0.05  # nats over the last tenth of the steps up to which a loss has settled
PLACED = 0.5  # share of the windows that begin with a document, from which places in windows are places in documents
PRESENT = 0.25  # R² from which a part is said to carry a target (ap's last layer, which "loses" it, has 0.24)
READ = 0.5  # R² that a model which is given positions must have before one that is not "hardly" has any
USED = 0.1  # nats that the absolute term must be worth in every seed before position in a stream counts as kept
LABELLED = 0.5  # share of the heads whose label must be worth something before anything is said of a model's heads
NOTHING = "none"  # label of a head in which no single term is worth anything
CONTENT = 0.1  # nats that attention by content must be worth before heads are said to follow it
ONE_SEED = 0.05  # nats that another training seed alone may move a difference of losses by
TAUGHT = 0.01  # of an average score, by which pre-training must have helped before models are compared by it
FLOOR = 2 / 3  # share of white noise in what training made of a position table, up to which something stands above it
WALK = 1.5  # times AdamW's random walk, from which a table has gone farther than a gradient of noise would take it
CHANGED = "change"  # `part` of records of what training added to a table; without it they are of the table itself


def labels(table: Table, model: str, seed: int | None) -> dict[tuple[int, int], str]:
    """Return the term that each head (layer, head) of one training is called after; {} where none was ablated alone.

    A head is labelled by the term that holds at least half of the divergence (`head.label`), and only where the loss
    rises without that term in that head alone by more than the interval over documents reaches; else it is `NOTHING`.
    "several", where no term holds half, stays: there is no single term to take out.
    """
    found: dict[tuple[int, int], str] = {}
    worth = {
        (r.layer, r.head, r.part): r.low is not None and r.low > LOSS_ROUNDING
        for r in table.rows("ablation.remove", model, seed=seed, step=None, index=None)
        if r.head is not None
    }
    terms = {part for _, _, part in worth}
    for r in table.rows("head.label", model, seed=seed, step=None) if worth else ():
        if r.layer is not None and r.head is not None and r.part is not None:
            passed = r.part not in terms or worth.get((r.layer, r.head, r.part), False)
            found[r.layer, r.head] = r.part if passed else NOTHING
    return found


def noise(table: Table, model: str, seeds: Iterable[int | None] | None = None) -> str:
    """Return why a position table is no more than noise, in words, or "" where it stands above its noise or no record
    tells.

    It stands above where the white floor holds at most `FLOOR` of the table itself or of what training added to it, or
    where that is `WALK` times AdamW's random walk at the rates that were used. A table that began above its noise and
    stayed there is one for the untrained control. Values are means over the seeds that count, default all.
    """
    chosen = ANY if seeds is None else tuple(seeds)
    whole = table.point("table.floor", model, part=None, seed=chosen)
    if whole is not None and whole.value <= FLOOR:
        return ""
    part = CHANGED if table.rows("table.floor", model, part=CHANGED) else None
    floor = table.point("table.floor", model, part=part, seed=chosen)
    if floor is None or floor.value <= FLOOR:
        return ""
    said = f"{floor.value:.0%} of {'what training added to it' if part else 'it'} is white noise".replace("%", " %")
    gone, walk = (table.point(f"table.{what}", model, part=part, seed=chosen) for what in ("rms", "walk"))
    if part and gone is not None and not gone.value:
        return "training has not changed it"
    if part is None or gone is None or walk is None or not walk.value:
        return said
    return "" if gone.value >= WALK * walk.value else f"{said}, {gone.value / walk.value:.1f} times AdamW's random walk"


def use(table: Table, model: str) -> float | None:
    """Return what a model's absolute term is worth in the seed where it is worth least: nats by which the loss rises
    without it in all blocks; None where that was not measured."""
    worth = table.point("ablation.remove", model, part="absolute")
    return None if worth is None else float(worth.each.min())


def unplaced(table: Table) -> float | None:
    """Return the share of the training windows that begin with a document, where it is below `PLACED`: the others run
    on from one window to the next, or are later pieces of a long document.

    Where the share was not recorded, it is the most that it can be: a document begins in one window alone.
    """
    share = table.point("corpus.from_start")
    if share is None:
        documents, windows = (table.point(f"corpus.{what}", part="train") for what in ("documents", "windows"))
        share = documents / windows if documents and windows and windows.value else None
    return share.value if share is not None and share.value < PLACED else None


def plateau(table: Table, model: str = "") -> float | None:
    """Entropy of token frequencies in nats; a model's own, where runs of several corpora stand side by side."""
    point = table.point("loss.unigram", model) or table.point("loss.unigram")
    return point.value if point else None


def gain(table: Table, model: str, seeds: Iterable[int | None] | None = None) -> float | None:
    """Nats by which the least trained seed of a model ends below the plateau; None where nothing was recorded."""
    level = plateau(table, model)
    finals = [final for final, _ in _courses(table, model, seeds)]
    return level - max(finals) if level is not None and finals else None


def unlearned(
    table: Table, model: str, seeds: Iterable[int | None] | None = None, share: float = HALF
) -> tuple[float, float] | None:
    """Gain of a model over the plateau and the gain that it needs, in nats, where it is too small; else None.

    Needed are `LEARNED`, and a `share` of the gain of the best model on the same plateau. seeds: those that count,
    default all.
    """
    own = gain(table, model, seeds)
    level = plateau(table, model)
    if own is None:
        return None
    others = (gain(table, m) for m in table.models("loss", part="validation") if plateau(table, m) == level)
    needed = max(LEARNED, share * max((other for other in others if other is not None), default=0.0))
    return (own, needed) if own < needed else None


def unsettled(table: Table, model: str, seeds: Iterable[int | None] | None = None) -> tuple[float, int] | None:
    """Fall of a model's validation loss at the end, in nats over a tenth of its steps, and the steps, where it still
    falls by more than `FALLING`.

    From the last validation before the last tenth of the steps to the end, of the seed that falls most. None where no
    seed still learns, or the validations do not tell.
    """
    falls = [(0.0, 0)]
    for _, losses in _courses(table, model, seeds):
        last = max(losses, default=0)
        before = max((step for step in losses if step <= 0.9 * last and step < last), default=None)
        if before is not None:
            falls.append(((losses[before] - losses[last]) * 0.1 * last / (last - before), last))
    fall, steps = max(falls)
    return (fall, steps) if fall > FALLING else None


def _courses(table: Table, model: str, seeds: Iterable[int | None] | None) -> list[tuple[float, dict[int, float]]]:
    """Final validation loss and step -> validation loss of every seed that has any."""
    rows = table.rows("loss", model, part="validation", seed=ANY if seeds is None else tuple(seeds))
    courses = []
    for seed in dict.fromkeys(r.seed for r in rows):
        of_seed = {r.step: r.value for r in rows if r.seed == seed}
        steps = {step: loss for step, loss in of_seed.items() if step is not None}
        courses.append((of_seed[None] if None in of_seed else steps[max(steps)], steps))
    return courses
