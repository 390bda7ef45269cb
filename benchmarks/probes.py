"""Structural probes against one scikit-learn Ridge fit each: seconds, ratio, largest difference of R² (budget: 10x,
1e-6).

Random features of a model's size; the time of the model itself is in neither side. The budget is against float64, as R²
must agree to 1e-6; a loop in float32 is shown beside it.
"""

from types import SimpleNamespace

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from whatwhere.analysis.passes import choose_windows
from whatwhere.analysis.probes import probe_records, split_documents
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import Record, select

from .timing import Results, Settings, clock, figure, row

SPLITS = 5
AT_LEAST = 10.0
# name, documents, tokens a document, hidden states, width, width of the position stream
CASES = [
    ("tiny, one stream", 500, 128, 5, 120, 0),
    ("tiny, two streams, three parts", 500, 128, 5, 128, 8),
    ("paper width, one hidden state", 150, 512, 1, 768, 0),
]
FEW = {"full": CASES, "quick": CASES[:1], "micro": [("micro", 20, 24, 2, 12, 0)]}


class Given(torch.nn.Module):
    """A model whose hidden states are given; the first token id of a window is its number."""

    def __init__(self, features: list[torch.Tensor], position_size: int) -> None:
        super().__init__()
        self.features = features
        self.config = SimpleNamespace(
            hidden_size=features[0].shape[-1], position_size=position_size, num_hidden_layers=len(features) - 1
        )

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, output_hidden_states: bool
    ) -> SimpleNamespace:
        return SimpleNamespace(hidden_states=tuple(f[input_ids[:, 0]] for f in self.features))


def windows(documents: int, n: int) -> list[SimpleNamespace]:
    rng = np.random.default_rng(0)
    made = []
    for i in range(documents):
        segments = np.concatenate([[-1], np.cumsum(rng.random(n - 2) < 1 / 20), [-1]])
        starts = np.searchsorted(segments[1:-1], segments[1:-1]) + 1
        lengths = np.bincount(segments[1:-1])[segments[1:-1]]
        progress = np.full(n, np.nan)
        np.divide(np.arange(1, n - 1) - starts, lengths - 1, out=progress[1:-1], where=lengths > 1)
        made.append(
            SimpleNamespace(
                input_ids=np.full(n, i),
                position_ids=np.arange(n),
                document_ids=np.zeros(n, int),
                segments=segments,
                progress=progress,
            )
        )
    return made


def peer(
    features: list[torch.Tensor], position_size: int, documents, dtype: type
) -> dict[tuple[str, str, int, int], float]:
    """One scikit-learn fit and score for each hidden state, part, target and split."""
    parts = {"all": slice(None)}
    if position_size:
        parts |= {"position": slice(0, position_size), "semantic": slice(position_size, None)}
    found = {}
    for layer, tensor in enumerate(features):
        x = tensor.numpy().astype(dtype)
        for target, y in documents.targets.items():
            rows = documents.regular & ~np.isnan(y)
            for split, test in enumerate(split_documents(np.arange(len(documents)), SPLITS)):
                fit = rows & ~test[:, None]
                tested = rows & test[:, None]
                for part, columns in parts.items():
                    ridge = Ridge(alpha=1.0).fit(x[fit][:, columns], y[fit])
                    found[f"r2.{target}", part, layer, split] = r2_score(
                        y[tested], ridge.predict(x[tested][:, columns])
                    )
    return found


def probes(settings: Settings) -> Results:
    """All hidden states, parts, three targets and five splits at once, against the loop; one run of each."""
    results = Results()
    for title, count, n, layers, width, position_size in FEW[settings.scale]:
        window_set = windows(count, n)
        chosen = choose_windows(window_set, count)
        rng = np.random.default_rng(1)
        signal = np.nan_to_num(np.stack([chosen.targets[t] for t in ("token", "segment", "intra")], axis=-1))
        features = [
            torch.from_numpy(
                (signal @ rng.normal(size=(3, width)) + 3 * rng.normal(size=(count, n, width)) + 1).astype(np.float32)
            )
            for _ in range(layers)
        ]
        model = Given(features, position_size)
        records: list[Record] = []
        seconds = clock(
            lambda model=model, window_set=window_set, count=count, records=records: records.extend(
                probe_records(model, window_set, RecordContext("m"), windows=count, splits=SPLITS)
            )
        )
        ours = figure("whatwhere", [seconds])
        for dtype in (np.float64, np.float32):
            reference: dict[tuple[str, str, int, int], float] = {}
            loop = clock(
                lambda features=features, chosen=chosen, dtype=dtype, reference=reference, width=position_size: (
                    reference.update(peer(features, width, chosen, dtype))
                )
            )
            gap = max(
                abs(select(records, metric=metric, part=part, layer=layer, index=split)[0].value - value)
                for (metric, part, layer, split), value in reference.items()
            )
            kind = np.dtype(dtype).name
            results.rows.append(
                row(
                    f"probes, scikit-learn Ridge {kind} / whatwhere",
                    f"{title}: {count} x {n} tokens, {layers} x {width}",
                    figure(f"{len(reference)} fits", [loop]),
                    ours,
                    at_least=AT_LEAST if dtype is np.float64 else None,
                    note=f"largest difference of R² {gap:.0e}",
                )
            )
    return results
