"""Kinds of predictions: labels, words, vectors. Nothing here loads torch."""

KINDS = {"labels": "labels", "words": "masked", "vectors": None}  # kind of prediction -> head of `open_model`


def check_kind(what: str) -> None:
    """Refuse a kind of predictions that does not exist.

    Raises:
        ValueError: names the kinds that do.
    """
    if what not in KINDS:
        raise ValueError(f"Predictions are {', '.join(list(KINDS)[:-1])} or {list(KINDS)[-1]}; got {what!r}.")
