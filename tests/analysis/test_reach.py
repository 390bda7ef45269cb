"""Reach of attention by term: against loops over documents, queries and keys in float64, and weights set by hand."""

import numpy as np
import pytest
import torch
from encoder_models import build
from naive_attention import may_look, naive_weights, terms_of
from small_documents import documents

from whatwhere.analysis.passes import read
from whatwhere.analysis.reach import ReachReader, mean_distance
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select

WHO = RecordContext("m", 0, "s")


def distances(p, chosen, b):
    """Mean distances of the regular queries of a document by weights (n, n), as the definition says."""
    queries = np.flatnonzero(chosen.regular[b])
    keys = [[j for j in queries if may_look(chosen, b, i, j)] for i in queries]
    return np.mean(
        [
            sum(p[i, j] * abs(i - j) for j in near) / sum(p[i, j] for j in near)
            for i, near in zip(queries, keys, strict=True)
        ]
    )


@pytest.mark.parametrize(
    ("case", "kind"),
    [("dstg", "plain"), ("dstg", "padded"), ("dstg", "packed"), ("rp", "inner"), ("rp", "packed"), ("ap", "padded")],
)
def test_reach_is_that_of_the_loops(case, kind):
    model = build(case)
    chosen = documents(4, n=20, **({} if kind == "plain" else {kind: True}))
    reader = ReachReader()
    read(model, chosen, [reader], batch_size=3)
    records = reader.records(WHO)
    everyone = range(len(chosen))
    weights = naive_weights(terms_of(model, chosen), chosen)
    for part, w in weights.items():
        all_heads = []
        for layer, head in np.ndindex(2, 2):
            means = [distances(w[layer, b, head], chosen, b) for b in everyone]
            (found,) = select(records, metric="reach", part=part, layer=layer + 1, head=head)
            assert found.value == pytest.approx(np.mean(means), rel=1e-9)
            assert found.low <= found.value <= found.high and (found.n, found.unit) == (4, "tokens")
            all_heads.append(found.value)
        (mean,) = select(records, metric="reach.mean", part=part)
        assert mean.value == pytest.approx(np.mean(all_heads), rel=1e-9)
    (even,) = select(records, metric="reach.even")
    assert even.value == pytest.approx(np.mean([distances(np.ones((20, 20)), chosen, b) for b in everyone]), rel=1e-6)


def test_equal_weights_reach_a_third_of_the_text():
    """Mean of |i - j| over i, j of 1 ... n is (n² - 1) / 3n."""
    n = 12
    equal = mean_distance(torch.ones(1, 1, n, n), torch.ones(2, n, dtype=torch.bool))
    np.testing.assert_allclose(equal.numpy(), (n * n - 1) / (3 * n), rtol=1e-6)
    one_before = torch.zeros(1, 1, n, n)
    one_before[..., range(1, n), range(n - 1)] = 1  # the first token looks at nothing, and is left out
    assert mean_distance(one_before, torch.ones(1, n, dtype=torch.bool)).item() == 1
