"""How much of a stream, and of a probe's target, is a matter of position alone: shares of variance between positions.

A linear probe says what a line through the states can read (DSTG section 5); its R² falls with the frequencies of a position table, not
only with forgetting. The share of a stream's variance that lies between positions asks what is there at all. For a target, the best
function of position alone is the ceiling that no pure position stream can exceed.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..intervals import jackknife_interval
from ..records import Record
from .features import Documents, choose_documents
from .passes import Batch, Reader
from .probes import probe_targets, split_documents, stream_columns
from .who import Who

GROUPS = 16  # of articles, left out one after the other for the interval
ROUNDING = 1e-13  # of the squares of float32 states: a variance below that share is none
CORPUS = ""  # `model` of the records of ceilings: facts about the texts


def corrected_share(counts: np.ndarray, between: float, total: float) -> float:
    """Share of the variance between groups without what chance adds: (η² - c) / (1 - c), c = (groups - 1) / (tokens - 1).

    η² = between / total is that of one-way analysis of variance. If groups mean nothing, so that every order of the tokens over them is as
    likely, its mean over the orders is exactly c, whatever their sizes: the corrected share is then 0 on average (and may be negative),
    and it is 1 for a pure function of the group. It equals Kelley's ε², 1 - (within / (tokens - groups)) / (total / (tokens - 1)).

    Args:
        counts: (groups,) tokens of each; empty groups do not count. between, total: sums of squares about the mean.

    Returns:
        At most 1; nan without variance, or where no group has two tokens.
    """
    tokens, groups = float(counts.sum()), int(np.count_nonzero(counts))
    if not total > 0 or tokens <= groups:
        return float("nan")
    chance = (groups - 1) / (tokens - 1)
    return (between / total - chance) / (1 - chance)


class PositionVariance(Reader):
    """A `passes.Reader` of hidden states: share of the variance of each layer that lies between positions.

    Records `variance.position` for each layer (0 = embedding) and part ("all", and with two streams "position" and "semantic"):
    `corrected_share` of the states of regular tokens grouped by position id, squares summed over the columns of the part. 1: the states are
    a function of position; 0: position says nothing of them, not even in a way that no line shows. Interval: 95 %, jackknife over at
    most 16 groups of articles (documents where they are their own), as a bootstrap would add the bias of few tokens a position once
    more. n: documents. A part without variance has no record.

    Tokens of a document share its subject, so a share of documents in the variance makes the correction too large, by at most c.

    Memory: sums by group and position, 8 · 16 · positions · hidden_size · layers bytes whatever the documents (tiny: 10 MB).
    """

    wants_hidden = True

    def __init__(self, model: Any) -> None:
        config = model.config
        self.parts = stream_columns(config.hidden_size, getattr(config, "position_size", 0))
        self.layers, self.width = config.num_hidden_layers + 1, config.hidden_size
        self._documents = 0
        self._groups = np.zeros(0, dtype=np.int64)  # (documents,)
        self._counts = torch.zeros(0)  # (groups, positions)
        self._sums: list[Tensor] = []  # of each layer (groups, positions, width), about `_shift`
        self._squares: list[Tensor] = []  # (groups, parts)
        self._shift: list[Tensor] = []  # (width,), a mean of the first batch, so that squares do not cancel

    def hidden(self, batch: Batch, hidden: tuple[Tensor, ...]) -> None:
        """The states of a batch.

        Raises:
            ValueError: states of regular tokens that are not finite.
        """
        regular = torch.from_numpy(batch.documents.regular[batch.indices])
        if not self._sums:
            self._begin(batch.documents, hidden, regular)
        self._documents += len(batch.indices)
        groups, positions = self._counts.shape
        cells = torch.from_numpy(self._groups[batch.indices][:, None] * positions + batch.documents.position_ids[batch.indices])[regular]
        self._counts.view(-1).index_add_(0, cells, torch.ones(len(cells), dtype=torch.float64))
        for layer, states in enumerate(hidden):
            x = states.detach().cpu()[regular].double() - self._shift[layer]  # (tokens, width)
            squares = torch.stack([torch.linalg.vecdot(x[:, columns], x[:, columns]) for columns in self.parts.values()], dim=1)
            if not torch.isfinite(squares).all():
                raise ValueError(f"hidden[{layer}] has NaN or infinite values. The model diverged; use an earlier checkpoint.")
            self._sums[layer].view(groups * positions, -1).index_add_(0, cells, x)
            self._squares[layer].index_add_(0, cells // positions, squares)

    def _begin(self, documents: Documents, hidden: tuple[Tensor, ...], regular: Tensor) -> None:
        articles = np.arange(len(documents)) if documents.articles is None else np.unique(documents.articles, return_inverse=True)[1]
        self._groups = articles * min(GROUPS, articles.max() + 1) // (articles.max() + 1)
        groups, positions = int(self._groups.max()) + 1, int(documents.position_ids.max()) + 1
        self._counts = torch.zeros(groups, positions, dtype=torch.float64)
        for states in hidden:
            self._sums.append(torch.zeros(groups, positions, self.width, dtype=torch.float64))
            self._squares.append(torch.zeros(groups, len(self.parts), dtype=torch.float64))
            own = states.detach().cpu()[regular].double()
            self._shift.append(own.mean(0) if len(own) else torch.zeros(self.width, dtype=torch.float64))

    def records(self, who: Who) -> list[Record]:
        """The records of all documents of the pass; see the class.

        Raises:
            ValueError: nothing was read.
        """
        if not self._sums:
            raise ValueError("No documents were read: give this reader to passes.read(model, documents, [reader]) first.")
        found = []
        for layer in range(self.layers):
            whole = self._shares(layer, None)
            left = [self._shares(layer, g) for g in range(len(self._counts))] if len(self._counts) > 1 else []
            for part, value in whole.items():
                if np.isfinite(value):
                    low, high = jackknife_interval(value, [shares[part] for shares in left]) or (None, None)
                    found.append(who.record("variance.position", value, low, high, layer=layer, part=part, n=self._documents))
        return found

    def _shares(self, layer: int, left_out: int | None) -> dict[str, float]:
        """Corrected share of each part, of all groups or of all but one."""

        def total(of_groups: Tensor) -> np.ndarray:
            summed = of_groups.sum(0)
            return np.asarray(summed if left_out is None else summed - of_groups[left_out])

        counts, sums, squares = total(self._counts), total(self._sums[layer]), total(self._squares[layer])
        tokens, whole, shift = counts.sum(), sums.sum(0), np.asarray(self._shift[layer])
        between = (sums**2 / np.maximum(counts, 1)[:, None]).sum(0) - whole**2 / tokens  # (width,)
        found = {}
        for i, (part, columns) in enumerate(self.parts.items()):
            spread = squares[i] - float((whole[columns] ** 2).sum()) / tokens
            raw = spread + float(((whole / tokens + shift)[columns] ** 2).sum()) * tokens  # about 0, not about the mean
            found[part] = corrected_share(counts, float(between[columns].sum()), spread if spread > ROUNDING * raw else 0.0)
        return found


def ceiling_records(window_set: Any, *, study: str, documents: int = 500, splits: int = 5) -> list[Record]:
    """R² of the best function of position alone for the segment index and the progress in segments: what a stream that knows position only
    can reach in the probes.

    `r2.segment.ceiling`, `r2.intra.ceiling`, facts about the corpus (model ""): the mean of the target at each position in the training
    documents of a split, tested on its test documents; the documents and splits are those of `probe_records`. A position without training
    token predicts the mean of all. One record a split (index; n: tokens tested), and the mean (n: tokens) with
    `intervals.split_interval`. A target that does not vary has none, as in the probes; position itself has the ceiling 1.

    Raises:
        ValueError: as `choose_documents`, or no split.
    """
    if splits < 1:
        raise ValueError(f"A ceiling needs at least 1 split of the documents, 2 for an interval. Got splits={splits}.")
    chosen = choose_documents(window_set, documents)
    test = split_documents(len(chosen), splits)
    targets = probe_targets(chosen, test)
    records: list[Record] = []
    for target in ("segment", "intra"):
        if target not in targets.columns:
            continue
        y = targets.values[..., targets.columns.index(target)]
        has = targets.kinds == 0 if target == "intra" else targets.kinds >= 0
        values = [_position_r2(chosen.position_ids, y, has & ~held_out[:, None], has & held_out[:, None]) for held_out in test]
        tokens, who = targets.tokens(target), Who(CORPUS, study=study)
        records += who.splits(f"r2.{target}.ceiling", values, len(chosen), test @ tokens, int(tokens.sum()))
    return records


def _position_r2(positions: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """R² on the tokens of `test` of the means of y by position over the tokens of `train`; all (m, n)."""
    rows = int(positions.max()) + 1
    counts = np.bincount(positions[train], minlength=rows)
    means = np.bincount(positions[train], weights=y[train], minlength=rows) / np.maximum(counts, 1)
    fitted = np.where(counts > 0, means, y[train].mean())[positions[test]]
    return float(1 - np.sum((y[test] - fitted) ** 2) / np.sum((y[test] - y[test].mean()) ** 2))
