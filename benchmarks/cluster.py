"""Work on the workers of a Dask cluster of this machine, against its own processes and against fewer workers; needs the
extra `cluster`."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from transformers import PreTrainedTokenizerFast

from whatwhere.corpus import Source, build_tokenizer, build_windows, count_source, open_source
from whatwhere.run.cluster import connect
from whatwhere.run.lock import lock

from .packing import Beginning
from .timing import Results, Settings, alternate, clock, figure, row

CHARACTERS = {"full": 150_000_000, "quick": 8_000_000, "micro": 60_000}  # of windows and counts
CHARACTERS_OF_STUDIES = {"full": 50_000_000, "quick": 8_000_000, "micro": 60_000}
STEPS = {"full": 300, "quick": 40, "micro": 2}  # of each model of a study
MODELS = "dstg,ap,rp,rope"  # of `make demo`
LENGTH = 128
POSITIONS = 512
MICRO = (
    "all_analyses=false",
    "length=32",
    "vocab_size=300",
    "training.batch_size=2",
    "training.model.num_hidden_layers=1",
)
LONGEST = 120  # seconds until something that does not come is an error
LONGEST_STUDY = 3600  # seconds until half of a study's trainings have begun
Work = Callable[[Path, str, Source, PreTrainedTokenizerFast], None]


def cluster(settings: Settings) -> Results:
    """Seconds of windows, counts and studies by how many workers there are, and of a study of which one is killed."""
    results = Results()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, sizes in {"text": CHARACTERS_OF_STUDIES, "long": CHARACTERS}.items():
            beginning = Beginning(settings.source(), sizes[settings.scale])
            # Not packed: the command would unpack it on a core that the workers need.
            with (folder / f"{name}.jsonl").open("w") as file:
                file.writelines(json.dumps({"text": document}) + "\n" for document in beginning)
        _text(results, settings, folder, open_source(str(folder / "long.jsonl")))
        _demo(results, settings, folder)
        _kill(results, settings, folder)
    return results


def _text(results: Results, settings: Settings, folder: Path, source: Source) -> None:
    """Windows and counts on one worker and on two. No other cluster runs: an idle one takes a twentieth of a core."""
    tokenizer = build_tokenizer(settings.tokenizer, source)
    shape = f"{settings.corpus_name}, {sum(map(len, source)) / 1e6:.1f} M characters"
    for what, work in (("windows", _windows), ("counts of 512 positions", _counts)):

        def on_new_workers(count: int, work: Work = work) -> float:
            with _dask(Path(tempfile.mkdtemp(dir=folder)) / "dask", count) as address:
                return clock(lambda: work(folder, address, source, tokenizer))

        times = alternate({"one worker": 1, "two workers": 2}, 1, on_new_workers)
        first, second = (figure(name, values) for name, values in times.items())
        results.rows.append(row(f"{what}, one worker / two", shape, first, second, at_least=1.8))


def _windows(folder: Path, address: str, source: Source, tokenizer: PreTrainedTokenizerFast) -> None:
    out = Path(tempfile.mkdtemp(dir=folder))
    with connect(address, out) as workers, lock(out):
        build_windows(source, tokenizer, out / "windows", length=LENGTH, progress=False, cluster=workers)


def _counts(folder: Path, address: str, source: Source, tokenizer: PreTrainedTokenizerFast) -> None:
    out = Path(tempfile.mkdtemp(dir=folder))
    with connect(address, out) as workers, lock(out):
        count_source(source, tokenizer, POSITIONS, progress=False, cluster=workers)


def _demo(results: Results, settings: Settings, folder: Path) -> None:
    """The study of `make demo` on two workers and in two processes of this machine."""
    words = _words(settings, folder, MODELS, 1)
    shape = f"{MODELS}, tiny, {STEPS[settings.scale]} steps, everything inside, {os.cpu_count()} cores"
    with _dask(folder / "demo", 2) as address:
        runs: dict[str, Callable[[], object]] = {
            "two workers": lambda: _finish(_study(folder, words, address)[0]),
            "processes": lambda: _finish(_study(folder, words)[0]),
        }
        times = _once(runs)
    first, second = (figure(name, values) for name, values in times.items())
    results.rows.append(row("a study, two workers / processes", shape, first, second, at_most=1.05))


def _kill(results: Results, settings: Settings, folder: Path) -> None:
    """A study of eight trainings on three workers, of which one is killed when half of them have begun."""
    from distributed import Client

    words = [*_words(settings, folder, "rope", 8), "--set", "all_analyses=false"]
    shape = f"8 × rope, tiny, {STEPS[settings.scale]} steps, three workers, {os.cpu_count()} cores"

    def run(kills: bool) -> None:
        with _dask(folder / f"kill-{time.time_ns()}", 3) as address:
            study, out = _study(folder, words, address)
            if kills:
                _wait_for(lambda: len(list(out.glob("models/rope/seed-*/log.jsonl"))) >= 5, LONGEST_STUDY)
                with Client(scheduler_file=address, set_as_default=False) as client:
                    psutil.Process(next(iter(client.run(os.getpid).values()))).kill()
            _finish(study)

    times = _once({"one killed": lambda: run(True), "undisturbed": lambda: run(False)})
    first, second = (figure(name, values) for name, values in times.items())
    results.rows.append(row("a study with a worker killed / undisturbed", shape, first, second, at_most=1.3))


def _once(runs: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of each study, without one of warm-up: each begins in a process of its own and takes minutes."""
    return {name: [clock(run)] for name, run in runs.items()}


def _words(settings: Settings, folder: Path, models: str, seeds: int) -> list[str]:
    small = [word for key in MICRO for word in ("--set", key)] if settings.scale == "micro" else []
    steps = str(STEPS[settings.scale])
    corpus = str(folder / "text.jsonl")
    return ["study", "--corpus", corpus, "--models", models, "--seeds", str(seeds), "--steps", steps, *small]


def _study(folder: Path, words: list[str], address: str | None = None) -> "tuple[subprocess.Popen[bytes], Path]":
    """Start a command in a process of its own; return it and its new folder of results."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "study"
    on = ["--on", address] if address else ["--set", "at_once=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "whatwhere", *words, "--out", str(out), *on]
    return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), out


def _finish(study: "subprocess.Popen[bytes]") -> None:
    assert study.wait() == 0, "a study failed; run its command alone to see why"


@contextmanager
def _dask(folder: Path, workers: int) -> Iterator[str]:
    """Run a scheduler and workers of one thread each for the block; yield the file that names the scheduler."""
    from distributed import Client

    folder.mkdir()
    file = folder / "scheduler.json"
    place = ["--scheduler-file", str(file), "--no-dashboard"]
    servers = [_server("scheduler", *place, "--port", "0")]
    try:
        _wait_for(file.is_file)
        # The modules are loaded before anything is timed.
        more = ["--nthreads", "1", "--local-directory", str(folder), "--preload", "whatwhere.study.model_task"]
        servers += [_server("worker", *place, *more) for _ in range(workers)]
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=LONGEST)
        yield str(file)
    finally:
        for server in reversed(servers):
            for process in [*psutil.Process(server.pid).children(recursive=True), server]:
                process.kill()
            server.wait()


def _server(kind: str, *words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-W", "ignore", "-m", f"distributed.cli.dask_{kind}", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_for(is_there: Callable[[], bool], longest: float = LONGEST) -> None:
    end = time.monotonic() + longest
    while not is_there():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
