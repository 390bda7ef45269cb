"""Kinds of predictions (labels, words, vectors), and the poolings of vectors. Nothing here loads torch."""

KINDS = {"labels": "labels", "words": "masked", "vectors": None}  # kind of prediction -> head of `open_model`
POOLINGS = ("mean", "cls", "semantic", "position")
OF_STREAMS = ("semantic", "position")  # poolings that need two streams to differ from the mean


def check_kind(what: str) -> None:
    """Refuse a kind of predictions that does not exist.

    Raises:
        ValueError: names the kinds that do.
    """
    if what not in KINDS:
        raise ValueError(f"Predictions are {', '.join(list(KINDS)[:-1])} or {list(KINDS)[-1]}; got {what!r}.")


def check_pooling(pooling: str) -> None:
    """Refuse a pooling that does not exist.

    Raises:
        ValueError: names the poolings that do.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}; got {pooling!r}.")
