"""Speed of text to windows on one core, against the tokenizer's `encode_batch` alone; and of batches.

Budget: at least 1 MB of text per second per core. `encode_batch` is the floor: it gives ids and offsets as objects of the library, but no
arrays, segments, splits, rows or files. CPU seconds of one process and one thread, best of three, text read beforehand.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer  # noqa: E402

from whatwhere.corpus import MaskedBatches, build_windows, open_source, train_tokenizer  # noqa: E402

REPEATS = 3


def best(work: Callable[[], Any]) -> float:
    """CPU seconds of the fastest of REPEATS calls."""
    seconds = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def main() -> None:
    source = open_source("python-docs")
    begin = time.process_time()
    documents = list(source)
    megabytes = sum(len(d.encode()) for d in documents) / 1e6
    print(f"python-docs: {len(documents):,} documents, {megabytes:.1f} MB, read in {time.process_time() - begin:.1f} s")
    begin = time.process_time()
    tokenizer = train_tokenizer(documents)
    print(f"tokenizer of {len(tokenizer)} pieces: {time.process_time() - begin:.1f} s")

    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())

    def encode() -> None:
        for at in range(0, len(documents), 400):
            backend.encode_batch(documents[at : at + 400], add_special_tokens=False)

    with tempfile.TemporaryDirectory() as folder:
        outs = (Path(folder) / str(i) for i in range(100))
        alone = best(encode)
        print(f"tokenizers encode_batch alone: {megabytes / alone:.2f} MB/s per core")
        for join in ("run-on", "none", "isolate"):
            ours = best(lambda join=join: build_windows(source, tokenizer, next(outs), join=join, workers=1, progress=False))
            speed = megabytes / ours
            verdict = "met" if speed >= 1 else "MISSED"
            print(f"windows, {join}: {speed:.2f} MB/s per core (budget 1: {verdict}), {alone / ours:.2f} of encode_batch")
        windows = build_windows(source, tokenizer, next(outs), progress=False)
        for masking in ("all", "80-10-10"):
            batches = MaskedBatches(windows["train"], masking=masking)
            batches.permutation(0)
            seconds = best(lambda batches=batches: [batches.batch(step, 32) for step in range(200)]) / 200
            print(f"batch of 32 x 128, masking {masking}: {1e3 * seconds:.2f} ms (budget 3: {'met' if seconds <= 3e-3 else 'MISSED'})")


if __name__ == "__main__":
    main()
