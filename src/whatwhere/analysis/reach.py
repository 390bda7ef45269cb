"""Reach of attention: the mean distance over which each head looks, by each term of its scores alone and by their sum.

DSTG section 4 (3) calls the relative bias "a localized support mechanism" of the semantic heads and shows one text
(figure 3). Here is how far attention by each term alone looks, over many texts, beside what equal attention gives.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..records.metric import NOT_NEGATIVE, TERM, Metric
from ..records.metrics import add_metrics
from ..records.record import Record
from .analyses import OF_WINDOWS, SCORED, TRAINING, Analysis, AnalysisInput
from .attention_weights import TOTAL, WeightReader, Weights
from .passes import Batch, ChosenWindows, Progress, read
from .record_context import RecordContext

READ_WINDOWS = 64  # that the reach is measured on
EVEN = "even"

add_metrics(
    {
        "reach": Metric(name="mean distance", unit="tokens", part=TERM, method="reach", range=NOT_NEGATIVE),
        "reach.mean": Metric(
            name="mean distance over all heads", unit="tokens", part=TERM, method="reach", range=NOT_NEGATIVE
        ),
        "reach.even": Metric(name="mean distance by equal weights", unit="tokens", method="reach", range=NOT_NEGATIVE),
    },
    methods={
        "reach": """
The reach of a head is the mean distance in tokens from a regular token to the regular tokens that it looks at, weighted
by a softmax of one term of the scores alone, or of their sum. Special tokens are left out as keys, for where they stand
says nothing, and the weights of the others are scaled to one. Equal weights have a reach of a third of the text.
""",
    },
)


class ReachReader(WeightReader):
    """Reader of the mean distance that attention looks over, for every block, head and term, in tokens.

    Records: `reach`, the mean over windows of the mean over their regular queries i of Σ_j p_ij |i - j| ÷ Σ_j p_ij
    over regular keys j; `reach.mean`, its mean over all heads; `reach.even`, the same for equal weights. Queries whose
    weight on regular keys is 0 in float32 are left out.
    """

    def weights(self, batch: Batch, block: int, part: str, weights: Weights) -> None:
        regular = batch.regular
        self.keep((block, part), batch, mean_distance(weights.values, regular))
        if block == 0 and part == TOTAL:
            equal = torch.ones_like(weights.values[:1, :1])
            if weights.allowed is not None:
                equal = equal * weights.allowed
            self.keep(EVEN, batch, mean_distance(equal, regular)[:, 0])

    def records(self, context: RecordContext) -> list[Record]:
        values, places = self.places()  # (windows, places, h)
        of_places = [part for _, part in places["layer", "part"]]
        parts = list(dict.fromkeys(of_places))
        means = np.stack([values[:, np.equal(of_places, part)].mean((1, 2)) for part in parts], axis=1)
        even = self.values[EVEN]
        return [
            *context.records(
                "reach", self.mean(values), {**places, "head": range(values.shape[-1])}, n=self.count(values)
            ),
            *context.records("reach.mean", self.mean(means), {"part": parts}, n=self.count(means)),
            *context.records("reach.even", self.mean(even), {}, n=self.count(even)),
        ]


def mean_distance(weights: Tensor, regular: Tensor) -> Tensor:
    """Return how far each head looks on average, in tokens: (b, h).

    The mean distance from a regular token to the regular tokens by their weights, averaged over the regular tokens; nan
    for a window where no regular token has a weight above 0 on a regular token.

    weights: (b or 1, h, n, n), not negative. regular: (b, n).
    """
    n = regular.shape[1]
    places = torch.arange(n, device=weights.device, dtype=weights.dtype)
    distance = (places[:, None] - places).abs()
    on_regular = weights * regular[:, None, None, :]  # (b, h, n, n)
    whole = on_regular.sum(-1)
    counts = regular[:, None] & (whole > 0)
    ratio = torch.where(counts, (on_regular * distance).sum(-1) / whole, 0.0)
    return ratio.sum(-1).double() / counts.sum(-1)


def reach_records(
    model: Any, windows: ChosenWindows, context: RecordContext, progress: Progress = None
) -> list[Record]:
    """Measure the reach of every head by every term (see `ReachReader`) on these documents.

    Raises:
        ValueError: the model's scores are no sum of named terms.
    """
    reader = ReachReader()
    read(model, windows, [reader], progress=progress)
    return reader.records(context)


def _untrained(s: AnalysisInput) -> list[Record]:
    # A T5 bias begins with zeros, as far as equal attention: a control of the claim that it looks near.
    return reach_records(s.untrained, s.evenly_spaced(SCORED), s.context.at(0))


ANALYSES = (
    Analysis(
        "reach",
        OF_WINDOWS,
        lambda s: reach_records(s.model, s.evenly_spaced(READ_WINDOWS), s.context, s.progress_of("reach")),
        needs=("windows", "has_terms"),
    ),
    Analysis("untrained reach", TRAINING, _untrained, needs=("windows", "untrained", "has_terms")),
)
