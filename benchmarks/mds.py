"""Classical MDS of Hellinger distances against scipy's pdist or scikit-learn's distances with scikit-learn's
ClassicalMDS; memory at 8,192.

Both sides go from the distributions of tokens to coordinates. The counts are drawn: Zipf's law with exponent 1.1, each
word drifting with position, 20,000 tokens a position; as on IMDB a position then has 4,000 different words, and half of
the columns less than 1 in 10 of the positions. "Dense" has every word at every position, which no corpus has. Budgets:
5 times pdist, never slower than scikit-learn.
"""

import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from scipy.sparse import csr_array, vstack
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import ClassicalMDS
from sklearn.metrics import euclidean_distances
from threadpoolctl import threadpool_limits

from whatwhere.geometry import hellinger_mds, positional_distributions

from .timing import Results, Settings, alternate, figure, row

DIMS = 64
TOKENS = 20_000
# positions and vocabulary of the comparison, positions of the large case
CASES = {"full": (512, 30_522, 8192), "quick": (256, 30_522, 4096), "micro": (24, 200, 2100)}


def drawn(n: int, vocabulary: int) -> csr_array:
    """Counts (n, vocabulary)."""
    rng = np.random.default_rng(0)
    drift = 0.2 * rng.normal(size=(4, vocabulary))
    zipf = np.arange(1, vocabulary + 1) ** -1.1
    rows = []
    for at in range(0, n, 64):
        x = np.arange(at, min(at + 64, n))[:, None] / n
        weights = zipf * np.exp(np.cos(np.pi * x * np.arange(1, 5)) @ drift)
        rows.append(csr_array(rng.poisson(TOKENS * weights / weights.sum(axis=1, keepdims=True))))
    return vstack(rows, format="csr")


def large(n: int, vocabulary: int, threads: int) -> tuple[float, float, float]:
    """Seconds of MDS, and GB of the peak of a process that does nothing else, before it (with the counts) and after."""
    with threadpool_limits(threads):
        p = positional_distributions(drawn(n, vocabulary)).p
        unit = 1e9 if sys.platform == "darwin" else 1e9 / 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        began = time.perf_counter()
        found = hellinger_mds(p, DIMS)
        seconds = time.perf_counter() - began
    assert found.coords.shape == (n, DIMS)
    return seconds, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def mds(settings: Settings) -> Results:
    """Coordinates in 64 dimensions from distributions of tokens; peak of a process at 8,192 positions."""
    results = Results()
    n, vocabulary, many = CASES[settings.scale]
    dims = min(DIMS, n // 2)
    sparse_p = positional_distributions(drawn(n, vocabulary)).p
    full_p = np.random.default_rng(0).dirichlet(np.full(vocabulary, 0.5), size=n)
    theirs = ClassicalMDS(n_components=dims, metric="precomputed")
    for name, p, dense in (("as in a corpus", sparse_p, sparse_p.toarray()), ("dense", full_p, full_p)):
        found: dict[str, np.ndarray] = {}
        runs = {
            "whatwhere": lambda p=p, found=found: found.update(ours=hellinger_mds(p, dims).coords),
            "pdist + ClassicalMDS": lambda p=dense: theirs.fit_transform(squareform(pdist(np.sqrt(p)))),
            "euclidean_distances + ClassicalMDS": lambda p=dense, found=found: found.update(
                theirs=theirs.fit_transform(euclidean_distances(np.sqrt(p)))
            ),
        }
        times = {key: figure(key, values) for key, values in alternate(runs, settings.repeats).items()}
        apart = np.abs(euclidean_distances(found["ours"]) - euclidean_distances(found["theirs"])).max()
        assert apart < 1e-6, "other coordinates"
        shape = f"{name}, n = {n}, V = {vocabulary:,}, {dims} dimensions"
        for peer, budget in (("pdist + ClassicalMDS", 5.0), ("euclidean_distances + ClassicalMDS", 1.0)):
            results.rows.append(row(f"{peer} / whatwhere", shape, times[peer], times["whatwhere"], at_least=budget))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        seconds, before, peak = pool.submit(large, many, vocabulary, torch.get_num_threads()).result()
    shape = f"as in a corpus, n = {many:,}, V = {vocabulary:,}, {DIMS} dimensions"
    note = f"{seconds:.0f} s; {before:.2f} GB with the counts, before MDS"
    results.rows.append(
        row("peak of the process, GB", shape, figure("whatwhere", [peak], unit="GB"), at_most=2.0, note=note)
    )
    return results
