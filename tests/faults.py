"""Crashes at every change of the file system, torn writes, full disks, kills at random moments: what is resumed equals
what nobody disturbed, to the last bit. `python tests/faults.py --out docs/reliability.md` does all and writes the
table; `tests/test_faults.py` does a part.

A process counts its changes of the file system below its folder by an audit hook and, just before the k-th, does to
itself what the mode says:

kill   SIGKILL.
torn   SIGKILL, after half of the temporary file that it wrote last, or the end of the last line of a log, is cut off:
       what a loss of power can leave.
full   the change fails with "No space left on device"; the command must end with status 2 and one line.
stop   SIGTERM; the command must end with status 143 and one line, or go on to its end.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fork_server
from cli_runner import sentences
from run_files import losses

from whatwhere.hashes import sha256, verify
from whatwhere.records import read_records

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")
MODES = ("kill", "torn", "full", "stop")
TIMED = {"seconds", "tokens_per_second", "memory.peak"}  # metrics that the machine decides
SMALL = ["--set=batch_size=8", "--set=workers=1", "--set=model.num_hidden_layers=1", "--set=model.dropout=0.1"]
TRAINED = ["--steps=12", "--set=checkpoint_every=4", "--set=log_every=4", "--set=validate_every=4", *SMALL]


def disturbed(folder: str, change: str, mode: str, *words: str) -> None:
    """The command line in this process, disturbed just before its k-th change of the file system below a folder."""
    last: list[str] = []
    left = [int(change)]

    def see(event: str, arguments: tuple[object, ...]) -> None:
        opened = event == "open" and _writes(arguments)
        if not (opened or event in CHANGES) or not isinstance(arguments[0], str | os.PathLike):
            return
        path = os.fspath(arguments[0])
        if not str(path).startswith(folder):
            return
        left[0] -= 1
        if left[0] == 0 or (mode == "full" and left[0] < 0 and opened):  # a full disk stays full
            _strike(mode, last)
        if opened:
            last[:] = [str(path)]

    sys.addaudithook(see)
    fork_server._whatwhere("", "", *words)


def _writes(arguments: tuple[object, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(sign in mode for sign in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _strike(mode: str, last: Sequence[str]) -> None:
    if mode == "full":
        raise OSError(28, "No space left on device", None)
    if mode == "stop":
        os.kill(os.getpid(), signal.SIGTERM)
        return
    if mode == "torn" and last and os.path.isfile(last[0]):
        name, size = os.path.basename(last[0]), os.path.getsize(last[0])
        if name == "log.jsonl" or name.startswith("."):
            os.truncate(last[0], max(size - 7, 0) if name == "log.jsonl" else size // 2)
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Work:
    """A command that is disturbed: its words, where OUT is its folder, what is compared at its end, and a folder that
    is there before it."""

    name: str
    words: list[str]
    compared: Callable[[Path], object]
    before: Path | None = None  # is copied to the folder first
    results: Counter[str] = field(default_factory=Counter)

    def start(self, out: Path, change: str = "0", mode: str = "kill") -> fork_server.Processes:
        words = [word.replace("OUT", str(out)) for word in self.words]
        return fork_server.Processes(disturbed, str(out), change, mode, *words)

    def run(self, out: Path, change: int = 0, mode: str = "kill") -> tuple[int, str]:
        """Once, disturbed at a change (0: never); status and what was printed."""
        process = self.start(out, str(change), mode)
        (status,) = process.statuses()
        printed = process.output.read_text("utf-8", errors="replace")
        process.output.unlink()
        return int(status or 0), printed

    def begin(self, out: Path) -> None:
        shutil.rmtree(out, ignore_errors=True)
        if self.before is not None:
            shutil.copytree(self.before, out)


def trained(out: Path) -> object:
    """Weights, log and every checkpoint of a training."""
    kept = sorted(out.glob("checkpoints/step-*/*.safetensors")) + sorted(out.glob("*.safetensors"))
    return [(str(path.relative_to(out)), sha256(path)) for path in kept], losses(out)


def measured(out: Path) -> object:
    """Records but for times, verdicts, the texts of the explorer, and the arrays of a study."""
    records = [r for r in read_records(out / "records.parquet") if r.metric not in TIMED]
    arrays = sorted(path.name for path in (out / "arrays").glob("*.npz"))
    texts = [e["name"] for e in json.loads((out / "explorer.json").read_text())] if arrays else []
    told = [(r.model, r.metric, r.seed, r.layer, r.head, r.part, r.step, r.index, r.value) for r in records]
    return sorted(told, key=str), arrays, texts


def paged(out: Path) -> object:
    """The page of a run, whose bytes depend on its records alone."""
    return sha256(out / "report.html")


def windowed(out: Path) -> object:
    """Every file of windows."""
    return [(str(p.relative_to(out)), sha256(p)) for p in sorted(out.rglob("*")) if p.is_file()]


def disturb(work: Work, folder: Path, mode: str, every: int = 1, twice: float = 0.0, first: int = 1) -> None:
    """A crash before every so manieth change, and the same command again until it ends well: counted by outcome.

    twice: share of the points at which the second try is struck as well.
    """
    whole, out, draw = folder / f"{work.name}-whole", folder / f"{work.name}-{mode}", random.Random(0)
    if not whole.exists():
        work.begin(whole)
        status, printed = work.run(whole)
        assert status == 0, printed
    expected = work.compared(whole)
    for change in range(first, 100_000, every):
        work.begin(out)
        status, printed = work.run(out, change, mode)
        if status == 0 and mode != "stop" and "stopped" not in printed:  # it has fewer changes than that
            break
        work.results[f"{mode} points"] += 1
        _check_end(work, mode, change, status, printed)
        if draw.random() < twice:
            work.run(out, draw.randrange(1, change + 20), mode)
            work.results[f"{mode} twice"] += 1
        status, printed = work.run(out)
        if status:
            work.results[f"{mode} refused"] += 1
            print(f"{work.name} {mode} {change}: status {status}: {printed[-600:]}", file=sys.stderr, flush=True)
            continue
        same = work.compared(out) == expected
        left = [p for p in out.rglob(".*")]
        work.results[f"{mode} equal"] += same
        work.results[f"{mode} clean"] += not left and not verify(out)[1]
        if not same or left:
            what = [str(p) for p in left] if left else "other results"
            print(f"{work.name} {mode} {change}: {what}", file=sys.stderr, flush=True)
        if mode == "stop" and change > 400:
            break


def _check_end(work: Work, mode: str, change: int, status: int, printed: str) -> None:
    wanted = {"kill": [-9], "torn": [-9], "full": [2], "stop": [143, 0]}[mode]
    lines = [line for line in printed.splitlines() if line.startswith("whatwhere: ")]
    well = status in wanted and "Traceback" not in printed and (mode != "full" or len(lines) == 1)
    work.results[f"{mode} ended as they should"] += well
    if not well:
        print(f"{work.name} {mode} {change}: status {status}: {printed[-600:]}", file=sys.stderr, flush=True)


def at_random(work: Work, folder: Path, times: int) -> None:
    """kill -9 of a running command at random moments, up to three times, then its end."""
    whole, out, draw = folder / f"{work.name}-whole", folder / f"{work.name}-random", random.Random(1)
    began = time.monotonic()
    if not whole.exists():
        work.begin(whole)
        assert work.run(whole)[0] == 0
    seconds = max(time.monotonic() - began, 3.0)
    expected = work.compared(whole)
    for _ in range(times):
        work.begin(out)
        for _ in range(draw.randrange(1, 4)):
            process = work.start(out)
            process.processes[0].join(draw.random() * seconds)
            process.kill()
            process.output.unlink()
        work.results["random points"] += 1
        work.results["random equal"] += work.run(out)[0] == 0 and work.compared(out) == expected
        work.results["random clean"] += not list(out.rglob(".*")) and not verify(out)[1]


def flips(work: Work, folder: Path, times: int = 3) -> None:
    """A flipped bit in every file of a finished run: `verify` names the file."""
    whole, draw = folder / f"{work.name}-whole", random.Random(2)
    for path in sorted(p for p in whole.rglob("*") if p.is_file()):
        known = any(path.match(each) for each in ("log.jsonl", "*.html", "*.yaml", "README.md"))
        if known or not (before := path.read_bytes()):
            continue
        for _ in range(times):
            at = draw.randrange(len(before))
            path.write_bytes(before[:at] + bytes([before[at] ^ 1 << draw.randrange(8)]) + before[at + 1 :])
            noticed = bool(verify(whole)[1]) or _unreadable(path)
            work.results["flip points"] += 1
            work.results["flip noticed"] += noticed
            if not noticed:
                print(f"{work.name} flip {path.relative_to(whole)} at {at}: not noticed", file=sys.stderr, flush=True)
        path.write_bytes(before)


def _unreadable(path: Path) -> bool:
    """Whether a file outside of the hashes tells its damage itself, or nothing depends on the bit."""
    if path.suffix == ".parquet":
        try:
            read_records(path)
        except ValueError:
            return True
    return False


def works(folder: Path) -> list[Work]:
    """What is disturbed: windows of a text, a training, a fine-tuning, a look at heads, a study of two models, its
    page."""
    text = folder / "corpus.txt"
    text.write_text(sentences(80), encoding="utf-8")
    rows = [f"{line.split()[0]}\t{number % 2}" for number, line in enumerate(text.read_text().split("\n\n"))]
    table = folder / "rows.tsv"
    table.write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    corpus = [f"--corpus={text}", "--length=32", "--tokenizer=characters"]
    training = Work("pretrain", ["pretrain", "--preset=dstg", *corpus, *TRAINED, "--out=OUT"], trained)
    encoder = folder / "encoder"
    assert training.run(encoder)[0] == 0
    tuning = ["finetune", str(encoder), f"--data={table}", f"--dev={table}", "--length=32", "--steps=12"]
    tuning += ["--set=checkpoint_every=4", "--set=batch_size=8", "--set=log_every=4"]
    studied = ["study", "--models=dstg,ap", *corpus, "--steps=4", "--set=workers=1", "--set=probe_documents=40"]
    studied += ["--set=training={batch_size: 8, model: {num_hidden_layers: 1}}", "--set=texts=1"]
    studied += ["--set=ablation_documents=8", "--set=join=run-on", "--set=held_out=0.3"]
    out = "--out=OUT"
    looked = ["heads", str(encoder), *corpus[:1], "--documents=10", "--ablate=4", out]
    run = folder / "study"
    study = Work("study", [*studied, out], measured)
    assert study.run(run)[0] == 0
    return [
        Work("windows", ["windows", *corpus, "--set=workers=1", out], windowed),
        training,
        Work("finetune", [*tuning, out], trained),
        Work("heads", looked, measured),
        study,
        Work("report", ["report", "OUT", "--out=OUT/report.html"], paged, before=run),
    ]


def table(done: Sequence[Work]) -> str:
    """The outcomes as Markdown."""
    lines = [
        "| what was done to it | to | points | ended as it should | bit-equal after | nothing left, hashes right |"
    ]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for mode in (*MODES, "random"):
        for work in done:
            found, points = work.results, work.results[f"{mode} points"]
            if points:
                twice = f", {found[f'{mode} twice']} twice" if found[f"{mode} twice"] else ""
                ended = found[f"{mode} ended as they should"] if mode != "random" else points
                each = (f"{points}{twice}", ended, found[f"{mode} equal"], found[f"{mode} clean"])
                lines.append(f"| {mode} | `{work.name}` | {' | '.join(map(str, each))} |")
    for work in done:
        if work.results["flip points"]:
            found = work.results
            lines.append(
                f"| one bit flipped | `{work.name}` | {found['flip points']} | {found['flip noticed']} noticed | | |"
            )
    return "\n".join(lines)


def main() -> None:
    """Disturb everything and put the table into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="every so manieth change of trainings; studies 10 times")
    parser.add_argument("--out", type=Path, help="page whose table is replaced")
    parser.add_argument("--only", help="modes, with commas")
    parser.add_argument("--works", help="windows, pretrain, finetune, heads, study, report, with commas")
    given = parser.parse_args()
    modes = given.only.split(",") if given.only else [*MODES, "random", "flip"]
    with tempfile.TemporaryDirectory() as name:
        done = works(Path(name))
        if given.works:
            done = [work for work in done if work.name in given.works.split(",")]
        for work in done:
            every = given.every * (10 if work.name == "study" else 1)
            for mode in modes:
                if mode in MODES:
                    disturb(work, Path(name), mode, every * (1 if mode == "kill" else 4), twice=0.2)
                elif mode == "random":
                    at_random(work, Path(name), 5 if work.name == "study" else 20)
                else:
                    flips(work, Path(name))
                print(work.name, mode, dict(work.results), file=sys.stderr, flush=True)
    found = table(done)
    print(found)
    if given.out is not None:
        page = given.out.read_text("utf-8")
        head, rest = page.split("<!-- faults -->\n", 1)
        given.out.write_text(f"{head}<!-- faults -->\n{found}\n{rest[rest.index('<!-- end -->') :]}", "utf-8")


if __name__ == "__main__":
    main()
