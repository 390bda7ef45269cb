"""Counts of tokens by position on one core: from windows on disk against scipy and scikit-learn, and from text against
tokenising alone.

Budgets: at least 20 million tokens a second from windows on disk; from text to the table of stress, without intervals
and SMACOF, at most 1.2 times the tokenising. CPU seconds of one process and one thread. All ways of counting must give
the same counts.
"""

import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, csr_array
from sklearn.feature_extraction.text import CountVectorizer
from tokenizers import Tokenizer

from whatwhere.corpus import Source, WindowSet, build_tokenizer, build_windows, count_source, count_windows
from whatwhere.geometry import ENCODINGS, Counts, classical_mds, hellinger, positional_distributions, stress

from .packing import Beginning
from .timing import Results, Settings, alternate, figure, row
from .windows import CHARACTERS, MOST_REPEATS, cpu

LENGTH = 128
WIDTH = 768
GROUPS = 32
AT_LEAST = 20.0
AT_MOST = 1.2


def counts(settings: Settings) -> Results:
    """Millions of tokens a second from windows on disk, and text to counts and to stress against `encode_batch`."""
    results = Results()
    source = Beginning(settings.source(), CHARACTERS[settings.scale])
    tokenizer = build_tokenizer(settings.tokenizer, source)
    with tempfile.TemporaryDirectory() as folder:
        windows = build_windows(
            source, tokenizer, Path(folder) / "w", length=LENGTH, held_out=0, workers=1, progress=False
        )["train"]
        from_windows(results, settings, windows)
    from_text(results, settings, source, tokenizer)
    return results


def from_windows(results: Results, settings: Settings, windows: WindowSet) -> None:
    """Counting what is on disk as token ids."""
    special = sorted({i for name, i in windows.special_ids.items() if name != "unk_token_id"})
    tokens = sum(int((~np.isin(ids, special)).sum()) for ids, _, _ in windows.shards())
    runs: dict[str, Callable[[], object]] = {
        "whatwhere": lambda: count_windows(windows, LENGTH, groups=1),
        f"whatwhere, {GROUPS} groups": lambda: count_windows(windows, LENGTH, groups=GROUPS),
        "scipy coo_array.tocsr": lambda: by_scipy(windows, special),
        "scikit-learn CountVectorizer": lambda: by_scikit_learn(windows, special),
    }
    wanted = count_windows(windows, LENGTH, groups=1).total()
    for theirs in (
        by_scipy(windows, special),
        by_scikit_learn(windows, special),
        count_windows(windows, LENGTH, groups=GROUPS).total(),
    ):
        assert (wanted != csr_array(theirs)).nnz == 0, "another way of counting gives other counts"
    times = alternate(runs, min(settings.repeats, MOST_REPEATS), measure=cpu)
    speed = {
        name: figure(name, [tokens / t / 1e6 for t in values], unit="M tokens/s") for name, values in times.items()
    }
    shape = f"{settings.corpus_name}, {tokens / 1e6:.1f} M tokens, n = {LENGTH}, V = {windows.vocab_size:,}, one core"
    ours, grouped, scipy, sklearn = speed.values()
    for made in (ours, grouped):
        results.rows.append(row(f"counts from windows, {made['name']}, M tokens/s", shape, made, at_least=AT_LEAST))
    for peer in (scipy, sklearn):
        results.rows.append(row(f"counts from windows, whatwhere / {peer['name']}", shape, ours, peer))
    results.rows.append(memory(windows, shape))


def memory(windows: WindowSet, shape: str) -> dict:
    """Traced peak of counting; without a dense matrix in it."""
    tracemalloc.start()
    matrix = count_windows(windows, LENGTH, groups=GROUPS).matrix
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    dense = figure("dense matrix", [matrix.shape[0] * matrix.shape[1] * 8 / 2**20], unit="MiB")
    result = sum(part.nbytes for part in (matrix.data, matrix.indices, matrix.indptr)) / 2**20
    note = f"the result itself {result:.0f} MiB, {matrix.nnz:,} non-zeros"
    return row(
        f"traced peak, {GROUPS} groups / dense matrix", shape, figure("whatwhere", [peak], unit="MiB"), dense, note=note
    )


def text_of(windows: WindowSet, special: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """ids and positions (t,) of all tokens of the text."""
    ids = []
    positions = []
    for found, _, starts in windows.shards():
        ordinary = ~np.isin(found, special)
        before = np.concatenate([[0], np.cumsum(ordinary)])
        places = np.arange(before[-1]) - np.repeat(before[starts[:-1]], np.diff(before[starts]))
        ids.append(found[ordinary])
        positions.append(places)
    return np.concatenate(ids), np.concatenate(positions)


def by_scipy(windows: WindowSet, special: list[int]) -> csr_array:
    """One entry a token, duplicates summed."""
    ids, positions = text_of(windows, special)
    return coo_array((np.ones(len(ids), np.int64), (positions, ids)), shape=(LENGTH, windows.vocab_size)).tocsr()


def by_scikit_learn(windows: WindowSet, special: list[int]) -> csr_array:
    """A document a position: all tokens that stand there."""
    ids, positions = text_of(windows, special)
    order = np.argsort(positions, kind="stable")
    documents = [
        part.tolist() for part in np.split(ids[order], np.searchsorted(positions[order], np.arange(1, LENGTH)))
    ]
    return CountVectorizer(analyzer=lambda tokens: tokens, vocabulary=range(windows.vocab_size)).transform(documents)


def from_text(results: Results, settings: Settings, source: Source, tokenizer) -> None:
    """Reading, tokenising and counting against the tokenizer's part of it."""
    documents = list(source)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())

    def encode(call: Callable[..., object]) -> Callable[[], None]:
        def run() -> None:
            for at in range(0, len(documents), 400):
                call(documents[at : at + 400], add_special_tokens=False)

        return run

    def count() -> Counts:
        return count_source(source, tokenizer, LENGTH, align="relative", groups=GROUPS, workers=1, progress=False)

    runs: dict[str, Callable[[], object]] = {
        "text to counts": count,
        "text to stress": lambda: stress_table(count()),
        "encode_batch": encode(backend.encode_batch),
        "encode_batch_fast": encode(backend.encode_batch_fast),
    }
    times = alternate(runs, min(settings.repeats, MOST_REPEATS), measure=cpu)
    made = {name: figure(name, values) for name, values in times.items()}
    shape = f"{settings.corpus_name}, {sum(map(len, documents)) / 1e6:.1f} M characters, n = {LENGTH}, one core"
    for name in ("text to counts", "text to stress"):
        for peer in ("encode_batch", "encode_batch_fast"):
            results.rows.append(row(f"{name} / {peer}", shape, made[name], made[peer], at_most=AT_MOST))


def stress_table(found: Counts) -> dict[tuple[str, str], float]:
    """Stress of every encoding and of MDS, raw and at the optimal scale."""
    distributions = positional_distributions(found.total(), min_support=1)
    dist = hellinger(distributions.p)
    n = len(dist)
    tables = {name: make(n, WIDTH) for name, make in ENCODINGS.items()} | {"mds": classical_mds(dist).coords}
    return {(name, scale): stress(table, dist, scale) for name, table in tables.items() for scale in ("raw", "optimal")}
