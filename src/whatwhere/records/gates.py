"""Conditions that a run must meet before a claim or a page concludes anything from it."""

from collections.abc import Iterable

from .intervals import LOSS_ROUNDING
from .table import ANY, Table

LEARNED = 0.1  # nats below the unigram plateau from which a model counts as trained at all
HALF = 0.5  # share of the best model's gain over the plateau, below which another model is undertrained
BEFORE_END = 0.9  # of the steps of a training: how far its loss falls is judged from there
FALLING = 0.05  # nats over the last tenth of the steps up to which a loss has settled
PLACED = 0.5  # share of the windows that begin with a document, from which places in windows are places in documents
ROOM = 0.1  # share of the rows of a table that windows leave free, up to which a shift moves places little
PRESENT = 0.25  # R² from which a part is said to carry a target (ap's last layer, which "loses" it, has 0.24)
READ = 0.5  # R² that a model with positions in its input must have before a model without "hardly" has any
USED = 0.1  # nats that the absolute term must be worth in every seed before position in a stream counts as kept
LABELLED = 0.5  # share of the heads whose label must be worth something before a claim about a model's heads is judged
NOTHING = "none"  # label of a head in which no single term is worth anything
CONTENT = 0.1  # nats that attention by content must be worth before a claim says that heads follow it
ONE_SEED = 0.05  # nats that another training seed alone may move a difference of losses by
TAUGHT = 0.01  # of an average score, by which pre-training must have helped before models are compared by it
FLOOR = 2 / 3  # share of white noise in a trained position table, up to which something stands above the noise
WALK = 1.5  # times AdamW's random walk, from which a table has gone farther than a gradient of noise would take it
CHANGED = "change"  # `part` of records of the change of a table by training; without it they are of the table


def labels(table: Table, model: str, seed: int | None) -> dict[tuple[int, int], str]:
    """Return the term that each head (layer, head) of one training is called after; {} where none was ablated alone.

    A head is labelled by the term that holds at least half of the divergence (`head.label`), and only where the loss
    rises without that term in that head alone by more than the interval over documents reaches; else it is `NOTHING`.
    "several", where no term holds half, stays: there is no single term to take out.
    """
    terms_of_heads: dict[tuple[int, int], str] = {}
    worth = {
        (r.layer, r.head, r.part): r.low is not None and r.low > LOSS_ROUNDING
        for r in table.rows("ablation.remove", model, seed=seed, step=None, index=None)
        if r.head is not None
    }
    terms = {part for _, _, part in worth}
    for r in table.rows("head.label", model, seed=seed, step=None) if worth else ():
        if r.layer is not None and r.head is not None and r.part is not None:
            passed = r.part not in terms or worth.get((r.layer, r.head, r.part), False)
            terms_of_heads[r.layer, r.head] = r.part if passed else NOTHING
    return terms_of_heads


def noise(table: Table, model: str, seeds: Iterable[int | None] | None = None) -> str:
    """Return a sentence on why a position table is no more than noise, or "" where it stands above its noise or no
    record tells.

    It stands above where the white floor holds at most `FLOOR` of the table itself or of its change by training, or
    where the change is `WALK` times AdamW's random walk at the rates of the training. A table that began above its
    noise and stayed there is a case for the untrained control. Values are means over the seeds that count, default all.
    """
    chosen = ANY if seeds is None else tuple(seeds)
    whole = table.point("table.floor", model, part=None, seed=chosen)
    if whole is not None and whole.value <= FLOOR:
        return ""
    part = CHANGED if table.rows("table.floor", model, part=CHANGED) else None
    floor = table.point("table.floor", model, part=part, seed=chosen)
    if floor is None or floor.value <= FLOOR:
        return ""
    reason = f"{floor.value:.0%} of {'what training added to it' if part else 'it'} is white noise".replace("%", " %")
    gone, walk = (table.point(f"table.{what}", model, part=part, seed=chosen) for what in ("rms", "walk"))
    if part and gone is not None and not gone.value:
        return "training has not changed it"
    if part is None or gone is None or walk is None or not walk.value:
        return reason
    walks = gone.value / walk.value
    return "" if gone.value >= WALK * walk.value else f"{reason}, {walks:.1f} times AdamW's random walk"


def use(table: Table, model: str) -> float | None:
    """Return the worth of a model's absolute term, in nats, in the seed where it is smallest; None where it was not
    measured.

    The worth is the rise of the loss without the term in all blocks.
    """
    worth = table.point("ablation.remove", model, part="absolute")
    return None if worth is None else float(worth.seed_values.min())


def unplaced(table: Table) -> float | None:
    """Return the share of training windows that begin with a document where it is below `PLACED`, else None.

    The other windows run on from one to the next, or are later pieces of a long document. Where the share was not
    recorded, its largest possible value counts: a document begins in one window alone.
    """
    share = table.point("corpus.from_start")
    if share is None:
        documents, windows = (table.point(f"corpus.{what}", part="train") for what in ("documents", "windows"))
        share = documents / windows if documents and windows and windows.value else None
    return share.value if share is not None and share.value < PLACED else None


def shifted(table: Table, model: str) -> float | None:
    """Return the share of the rows of a model's table that training windows leave free on average, where it is above
    `ROOM`, else None.

    By up to that many rows training shifts the positions of a window, unless `shift` is false, which no record tells.
    None also where room or length of the windows were not recorded, as of encoders from elsewhere.
    """
    room = table.point("corpus.room")
    length = table.point("probe.length", model)
    if room is None or length is None:
        return None
    rows = max((r.n or 0 for r in table.rows("separation", model, part=None)), default=0) or length.value
    share = (rows - length.value + room.value) / rows
    return share if share > ROOM else None


def plateau(table: Table, model: str = "") -> float | None:
    """Return the entropy of token frequencies in nats; a model has its own value where runs of several corpora stand
    together."""
    point = table.point("loss.unigram", model) or table.point("loss.unigram")
    return point.value if point else None


def gain(table: Table, model: str, seeds: Iterable[int | None] | None = None) -> float | None:
    """Return the nats by which the least trained seed of a model ends below the plateau; None without records."""
    level = plateau(table, model)
    finals = [final for final, _ in _courses(table, model, seeds)]
    return level - max(finals) if level is not None and finals else None


def insufficient_gain(
    table: Table, model: str, seeds: Iterable[int | None] | None = None, share: float = HALF
) -> tuple[float, float] | None:
    """Return a model's gain over the plateau and the gain that it needs, in nats, where it is too small; else None.

    Needed are `LEARNED`, and a `share` of the gain of the best model on the same plateau. seeds: those that count,
    default all.
    """
    reached = gain(table, model, seeds)
    level = plateau(table, model)
    if reached is None:
        return None
    others = (gain(table, m) for m in table.models("loss", part="validation") if plateau(table, m) == level)
    needed = max(LEARNED, share * max((other for other in others if other is not None), default=0.0))
    return (reached, needed) if reached < needed else None


def unsettled(table: Table, model: str, seeds: Iterable[int | None] | None = None) -> tuple[float, int] | None:
    """Return the fall of a model's validation loss at the end, in nats over a tenth of its steps, and the steps; None
    where it has settled.

    A loss has settled where it falls by at most `FALLING`. The fall is that from the last validation before the last
    tenth of the steps to the end, of the seed that falls most. None also where the validations do not tell.
    """
    falls = [(0.0, 0)]
    for _, losses in _courses(table, model, seeds):
        last = max(losses, default=0)
        before = max((step for step in losses if step <= BEFORE_END * last and step < last), default=None)
        if before is not None:
            falls.append(((losses[before] - losses[last]) * 0.1 * last / (last - before), last))
    fall, steps = max(falls)
    return (fall, steps) if fall > FALLING else None


def _courses(table: Table, model: str, seeds: Iterable[int | None] | None) -> list[tuple[float, dict[int, float]]]:
    """Return the final validation loss and step -> validation loss of every seed that has any."""
    rows = table.rows("loss", model, part="validation", seed=ANY if seeds is None else tuple(seeds))
    courses = []
    for seed in dict.fromkeys(r.seed for r in rows):
        of_seed = {r.step: r.value for r in rows if r.seed == seed}
        steps = {step: loss for step, loss in of_seed.items() if step is not None}
        courses.append((of_seed[None] if None in of_seed else steps[max(steps)], steps))
    return courses
