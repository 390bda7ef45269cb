"""A command on a cluster by itself: prints its peak of memory in kilobytes after every 50th shard, and at the end."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from whatwhere.corpus import build_tokenizer, build_windows, open_source
from whatwhere.run.cluster import connect
from whatwhere.run.lock import lock
from whatwhere.run.shard_pool import ShardPool


def print_peak(shards: int) -> None:
    """Print a number of shards, and the peak so far: not getrusage's, which begins with that of the parent process."""
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(shards, peak)


def main(text: str, address: str, folder: str) -> None:
    """Make windows of a text in shards of 50,000 characters."""
    out = Path(folder)
    source = open_source(text)
    tokenizer = build_tokenizer("words", source)
    in_any_order = ShardPool.map

    def watched(*arguments) -> Iterator[object]:
        number = 0
        for number, result in enumerate(in_any_order(*arguments), 1):
            if number % 50 == 0:
                print_peak(number)
            yield result
        print_peak(number)

    ShardPool.map = watched
    with connect(address, out) as cluster, lock(out):
        options = {"length": 32, "shard_characters": 50_000, "progress": False, "cluster": cluster}
        build_windows(source, tokenizer, out / "windows", **options)


if __name__ == "__main__":
    main(*sys.argv[1:])
