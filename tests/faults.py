"""Crashes at every change of the file system, torn writes, full disks, folders without rights, clocks that jump, second
processes, kills at random moments, damage: what is resumed equals what nobody disturbed, to the last bit.
`python tests/faults.py --out docs/reliability.md` does all and writes the table; `tests/test_faults.py` does a part.

A process counts its changes of the file system below its folder by an audit hook and, just before the k-th, does to
itself what the mode says:

kill       SIGKILL.
torn       SIGKILL, after half of the temporary file that it wrote last, or the end of the last line of a log, is cut
           off: what a loss of power can leave.
full       the change fails with "No space left on device"; the command must end with status 2 and one line.
read-only  nothing below its folder can be written any more, at the first point from the start; the command must end
           with status 2 and one line, and goes on when it can.
stop       SIGTERM; the command must end with status 143 and one line, or go on to its end.
back       the clock (Python's, and the times of the files) jumps back by a day, and what was written is of tomorrow;
           the command must end well.
ahead      the clock jumps forward by a year, and what was written is of last year; the command must end well.
second     the same command is given once more while this one waits; that must be refused, or do all.

Without a count:

random     SIGKILL at random moments, up to three times.
flipped    a bit of a file of an unfinished run is flipped, one file after the other, and the command given again: it
           must name the file, or end with what it would have ended with, but for a file that it does not read, which
           `verify` must name.
vanished   the same with the file gone.
flip       a bit of a file of a finished run is flipped: `verify` must name the file.
gone       the same with the file gone.
malformed  the cases of tests/test_malformed*.py, counted in a table of their own.
"""

import argparse
import ctypes
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import fork_server
from cli_runner import sentences
from malformed_count import malformed
from run_files import losses

from whatwhere.hashes import HASHES, hashes, sha256, verify
from whatwhere.records import read_records

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")
JUMPS = {"back": -86_400.0, "ahead": 365 * 86_400.0}  # seconds
MODES = ("kill", "torn", "full", "read-only", "stop", *JUMPS, "second")
WELL = {"kill": (-9,), "torn": (-9,), "full": (2,), "read-only": (2,), "stop": (143, 0)}  # statuses, of the others 0
DAMAGE = ("flipped", "vanished")
HELD = ".held"  # ends the name of the file beside a folder whose process waits for a second one
TIMED = {"seconds", "tokens_per_second", "memory.peak"}  # metrics that the machine decides
WITHOUT_HASH = ("log.jsonl", "*.html", "README.md")
SMALL = ["--set=batch_size=8", "--set=workers=1", "--set=model.num_hidden_layers=1", "--set=model.dropout=0.1"]
TRAINED = ["--steps=12", "--set=checkpoint_every=4", "--set=log_every=4", "--set=validate_every=4", *SMALL]


def disturbed(folder: str, change: str, mode: str, cores: str, *words: str) -> None:
    """The command line in this process, disturbed just before its k-th change of the file system below a folder; prints
    how many changes there were.

    cores: that it may use; 0 for all.
    """
    last: list[str] = []
    left = [int(change)]
    if int(cores):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])

    def see(event: str, arguments: tuple[object, ...]) -> None:
        opened = event == "open" and _writes(arguments)
        if not (opened or event in CHANGES) or not isinstance(arguments[0], str | os.PathLike):
            return
        path = os.fspath(arguments[0])
        if not str(path).startswith(folder):
            return
        left[0] -= 1
        if left[0] == 0 or (mode == "full" and left[0] < 0 and opened):  # a full disk stays full
            _strike(mode, folder, last)
        if opened:
            last[:] = [str(path)]

    if int(change) and mode in JUMPS:
        mock.patch.object(time, "time", lambda now=time.time: now() - JUMPS[mode]).start()
    if change == "1" and mode == "read-only":
        _strike(mode, folder, last)
    sys.addaudithook(see)
    try:
        fork_server._whatwhere("", "", *words)
    finally:
        print(f"\n{int(change) - left[0]} changes", flush=True)


def _writes(arguments: tuple[object, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(sign in mode for sign in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _strike(mode: str, folder: str, last: Sequence[str]) -> None:
    if mode == "full":
        raise OSError(28, "No space left on device", None)
    if mode == "stop":
        os.kill(os.getpid(), signal.SIGTERM)
    elif mode == "read-only":
        _take_rights(Path(folder))
    elif mode in JUMPS:
        mock.patch.stopall()
        for path in Path(folder).rglob("*"):
            os.utime(path, (path.stat().st_mtime - JUMPS[mode],) * 2)
    elif mode == "second":
        held = Path(f"{folder}{HELD}")
        held.touch()
        while held.exists():
            time.sleep(0.002)
    else:
        if mode == "torn" and last and os.path.isfile(last[0]):
            name, size = os.path.basename(last[0]), os.path.getsize(last[0])
            if name == "log.jsonl" or name.startswith("."):
                os.truncate(last[0], max(size - 7, 0) if name == "log.jsonl" else size // 2)
        os.kill(os.getpid(), signal.SIGKILL)


def _take_rights(folder: Path) -> None:
    """Nobody may write below a folder nor make it; of root's processes not this one and those that it starts."""
    for place in _places(folder):
        place.chmod(place.stat().st_mode & ~0o222)
    if os.geteuid() == 0:
        system = ctypes.CDLL(None)
        for right in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            system.prctl(24, right, 0, 0, 0)  # PR_CAPBSET_DROP
        who, rights = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()  # version 3, this process
        system.capget(who, rights)
        for i in range(3):
            rights[i] &= ~0b110
        assert system.capset(who, rights) == 0


def _give_rights(folder: Path) -> None:
    for place in _places(folder):
        place.chmod(place.stat().st_mode | 0o200)


def _places(folder: Path) -> list[Path]:
    return [folder.parent, *([folder, *folder.rglob("*")] if folder.exists() else ())]


@dataclass
class Work:
    """A command that is disturbed: its words, where OUT is its folder, what is compared at its end, a folder that is
    there before it, and the cores that it may use. On one core it is done in one process, the one that is struck."""

    name: str
    words: list[str]
    compared: Callable[[Path], object]
    before: Path | None = None  # is copied to the folder first
    cores: int = 0  # 0: all
    changes: int = 0  # of the file system, known once it has run, and
    seconds: float = 0.0  # that it takes
    results: Counter[str] = field(default_factory=Counter)

    def start(self, out: Path, change: int = 0, mode: str = "kill") -> fork_server.Processes:
        words = [word.replace("OUT", str(out)) for word in self.words]
        return fork_server.Processes(disturbed, str(out), str(change), mode, str(self.cores), *words)

    def run(self, out: Path, change: int = 0, mode: str = "kill") -> tuple[int, str]:
        """Once, disturbed at a change (0: never); status and what was printed."""
        process, held, other = self.start(out, change, mode), Path(f"{out}{HELD}"), ""
        if mode == "second" and change:
            while process.running() and not held.exists():
                time.sleep(0.002)
            _, other = self.run(out)
            held.unlink(missing_ok=True)
        (status,) = process.statuses()
        printed = process.output.read_text("utf-8", errors="replace")
        process.output.unlink()
        if mode == "read-only" and change:
            _give_rights(out)
        return int(status or 0), other + printed

    def begin(self, out: Path, before: Path | None = None) -> None:
        """Its folder as it is before the command, or as another was."""
        shutil.rmtree(out, ignore_errors=True)
        if before is not None or self.before is not None:
            shutil.copytree(before or self.before, out)

    def whole(self, folder: Path) -> Path:
        """What it comes to where nobody disturbs it."""
        out = folder / f"{self.name}-whole"
        if not out.exists():
            self.begin(out)
            began = time.monotonic()
            status, printed = self.run(out)
            assert status == 0, printed
            self.seconds, self.changes = time.monotonic() - began, int(printed.split()[-2])
        return out


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


def evaluated(out: Path) -> object:
    """Records and predictions of an evaluation."""
    return measured(out), [(str(p.relative_to(out)), sha256(p)) for p in sorted(out.glob("runs/**/*.npz"))]


def paged(out: Path) -> object:
    """The page of a run, whose bytes depend on its records alone."""
    return sha256(out / "report.html")


def windowed(out: Path) -> object:
    """Every file of windows."""
    return [(str(p.relative_to(out)), sha256(p)) for p in sorted(out.rglob("*")) if p.is_file()]


def disturb(work: Work, folder: Path, mode: str, every: int = 1, twice: float = 0.0, first: int = 1) -> None:
    """Struck before every so manieth change, and the same command again until it ends well: counted by outcome.

    twice: share of the points at which the second try is struck as well.
    """
    whole, out, draw = work.whole(folder), folder / f"{work.name}-{mode}", random.Random(0)
    expected = work.compared(whole)
    for change in range(first, work.changes + 1, every):
        work.begin(out)
        status, printed = work.run(out, change, mode)
        work.results[f"{mode} points"] += 1
        _check_end(work, mode, change, status, printed)
        if draw.random() < twice:
            work.run(out, draw.randrange(1, change + 20), mode)
            work.results[f"{mode} twice"] += 1
        status, printed = work.run(out)
        if status:
            work.results[f"{mode} refused"] += 1
            _tell(work, mode, change, f"status {status}: {printed[-600:]}")
            continue
        same, left = work.compared(out) == expected, list(out.rglob(".*"))
        work.results[f"{mode} equal"] += same
        work.results[f"{mode} clean"] += not left and not verify(out)[1]
        if not same or left:
            _tell(work, mode, change, [str(p) for p in left] if left else "other results")


def _check_end(work: Work, mode: str, change: int, status: int, printed: str) -> None:
    lines = [line for line in printed.splitlines() if line.startswith("whatwhere: ")]
    well = status in WELL.get(mode, (0,)) and "Traceback" not in printed
    if mode in ("full", "read-only"):
        well &= len(lines) == 1
    if mode in ("second", *JUMPS):
        well &= all("Another process is writing" in line for line in lines)
    work.results[f"{mode} ended as they should"] += well
    if not well:
        _tell(work, mode, change, f"status {status}: {printed[-600:]}")


def _tell(work: Work, mode: str, where: object, what: object) -> None:
    print(f"{work.name} {mode} {where}: {what}", file=sys.stderr, flush=True)


def at_random(work: Work, folder: Path, times: int) -> None:
    """kill -9 of a running command at random moments, up to three times, then its end."""
    out, draw = folder / f"{work.name}-random", random.Random(1)
    expected = work.compared(work.whole(folder))
    for _ in range(times):
        work.begin(out)
        for _ in range(draw.randrange(1, 4)):
            process = work.start(out)
            process.processes[0].join(draw.random() * work.seconds)
            process.kill()
            process.output.unlink()
        work.results["random points"] += 1
        work.results["random equal"] += work.run(out)[0] == 0 and work.compared(out) == expected
        work.results["random clean"] += not list(out.rglob(".*")) and not verify(out)[1]


def damaged(work: Work, folder: Path, mode: str, every: int = 1) -> None:
    """A bit flipped in every so manieth file of a run that was killed at two thirds, or the file gone: the same command
    or else `verify` names it, or its folder, and the rest is as if nobody had touched it, or all is."""
    expected = work.compared(work.whole(folder))
    killed, out, draw = folder / f"{work.name}-killed", folder / f"{work.name}-{mode}", random.Random(3)
    if not killed.exists():
        work.begin(killed)
        work.run(killed, 2 * work.changes // 3)
    files = [path for path in sorted(killed.rglob("*")) if path.is_file() and not _free(path, killed)]
    for path in files[::every]:
        name = path.relative_to(killed)
        work.begin(out, killed)
        if mode == "flipped":
            _flip(out / name, draw)
        else:
            (out / name).unlink()
        status, printed = work.run(out)
        lines = [line for line in printed.splitlines() if line.startswith("whatwhere: ")]
        named = status == 2 and len(lines) == 1 and any(str(out / each) in lines[0] for each in (name, name.parent))
        if not status and any(str(out / name) in line for line in verify(out)[1]):  # nothing has read it
            named = work.compared(out) == expected
            if not named:
                shutil.copy(path, out / name)
                named = work.compared(out) == expected
        equal = status == 0 and not named and work.compared(out) == expected
        work.results[f"{mode} points"] += 1
        work.results[f"{mode} named"] += named
        work.results[f"{mode} equal"] += equal
        if not named and not equal:
            _tell(work, mode, name, f"status {status}: {printed[-600:]}" if status else "other results")


def _free(path: Path, folder: Path) -> bool:
    """Whether nobody promises to notice what happens to a file."""
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return hidden or not path.stat().st_size or any(path.match(each) for each in WITHOUT_HASH)


def _flip(path: Path, draw: random.Random) -> None:
    before = path.read_bytes()
    at = draw.randrange(len(before))
    path.write_bytes(before[:at] + bytes([before[at] ^ 1 << draw.randrange(8)]) + before[at + 1 :])


def flips(work: Work, folder: Path, times: int = 3) -> None:
    """A flipped bit in every file of a finished run, and every file with a hash gone: `verify` names it."""
    whole, draw = work.whole(folder), random.Random(2)
    hashed = {str(path.parent / name) for path in whole.rglob(HASHES) for name in hashes(path.parent)}
    for path in sorted(p for p in whole.rglob("*") if p.is_file() and not _free(p, whole)):
        before, name = path.read_bytes(), path.relative_to(whole)
        for _ in range(times):
            _flip(path, draw)
            told = verify(whole)[1]
            noticed = any(str(path) in line or path.name == HASHES for line in told) or _unreadable(path)
            work.results["flip points"] += 1
            work.results["flip noticed"] += noticed
            if not noticed:
                _tell(work, "flip", name, "not noticed")
            path.write_bytes(before)
        if str(path) in hashed:
            path.unlink()
            work.results["gone points"] += 1
            work.results["gone noticed"] += any(str(path) in line for line in verify(whole)[1])
            path.write_bytes(before)


def _unreadable(path: Path) -> bool:
    """Whether a file outside of the hashes tells its damage itself, or nothing depends on the bit."""
    if path.suffix == ".parquet":
        try:
            read_records(path)
        except ValueError:
            return True
    return False


def works(folder: Path, names: Sequence[str] = ()) -> list[Work]:
    """What is disturbed: windows of a text, a training, a fine-tuning, a look at heads, a study of two models, its
    page, probes and GLUE of an encoder; all, or those that are named."""
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
    if not names or "report" in names:
        assert study.run(run)[0] == 0
    judged = ["evaluate", "all", str(encoder), f"--data={tasks(folder / 'tasks')}", out]
    found = [
        Work("windows", ["windows", *corpus, "--set=workers=1", out], windowed),
        training,
        Work("finetune", [*tuning, out], trained),
        Work("heads", looked, measured),
        study,
        Work("report", ["report", "OUT", "--out=OUT/report.html"], paged, before=run),
        Work("evaluate", judged, evaluated, cores=1),
    ]
    return [work for work in found if not names or work.name in names]


def tasks(folder: Path) -> Path:
    """Small files of a task of probes, of BLiMP and of GLUE."""
    (folder / "blimp").mkdir(parents=True)
    pair = {"sentence_good": "The rivers run .", "sentence_bad": "The rivers runs .", "field": "syntax"}
    lines = [json.dumps({**pair, "UID": f"p{number % 2}"}) for number in range(6)]
    (folder / "blimp/all.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "SST-2").mkdir()
    for split, count in (("train", 40), ("dev", 20)):
        rows = [f"a {('bad', 'fine')[number % 2]} film {number}\t{number % 2}" for number in range(count)]
        (folder / f"SST-2/{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    return folder


def rows(done: Sequence[Work]) -> dict[tuple[str, str], str]:
    """The outcomes, a row of Markdown each: by what was done to what."""
    found: dict[tuple[str, str], str] = {}
    for work in done:
        got = work.results
        for mode in (*MODES, "random", *DAMAGE, "flip", "gone"):
            if not (points := got[f"{mode} points"]):
                continue
            twice = f", {got[f'{mode} twice']} twice" if got[f"{mode} twice"] else ""
            if mode in ("flip", "gone"):
                cells = (points, f"{got[f'{mode} noticed']} noticed", "", "")
            elif mode in DAMAGE:
                named, equal = got[f"{mode} named"], got[f"{mode} equal"]
                cells = (points, named + equal, equal, f"{named} named the file")
            else:
                ended = points if mode == "random" else got[f"{mode} ended as they should"]
                cells = (f"{points}{twice}", ended, got[f"{mode} equal"], got[f"{mode} clean"])
            found[mode, work.name] = f"| {mode} | `{work.name}` | {' | '.join(map(str, cells))} |"
    return found


def table(found: Mapping[tuple[str, str], str], page: str = "") -> str:
    """Rows as a table; those of a page that were not measured anew stay."""
    kept = {
        (mode, name): line for line, mode, name in re.findall(r"^(\| ([\w-]+) \| `(\w+)` \|.*)$", page, re.MULTILINE)
    }
    order, names = [*MODES, "random", *DAMAGE, "flip", "gone"], list(dict.fromkeys(name for _, name in kept | found))
    head = "| what was done to it | to | points | ended as it should | bit-equal after | nothing left, hashes right |"
    body = sorted(kept | found, key=lambda key: (order.index(key[0]), names.index(key[1])))
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- |", *((kept | found)[key] for key in body)])


def put(page: str, name: str, table: Callable[[str], str]) -> str:
    """A page with what stands between its marks of a name made anew from what stood there."""
    head, rest = page.split(f"<!-- {name} -->\n", 1)
    old, end = rest.split("<!-- end -->", 1)
    return f"{head}<!-- {name} -->\n{table(old)}\n<!-- end -->{end}"


def main() -> None:
    """Disturb everything and put the table into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--every", type=int, default=1, help="a kill each so many changes, other modes a quarter as often"
    )
    parser.add_argument("--out", type=Path, help="page whose rows of what is done are replaced; the others stay")
    parser.add_argument("--only", help="modes, with commas")
    parser.add_argument("--works", help="windows, pretrain, finetune, heads, study, report, evaluate, with commas")
    given = parser.parse_args()
    modes = given.only.split(",") if given.only else [*MODES, "random", *DAMAGE, "flip", "malformed"]
    page = "" if given.out is None else given.out.read_text("utf-8")
    with tempfile.TemporaryDirectory() as name:
        if "malformed" in modes:
            modes.remove("malformed")
            cases = malformed(Path(name))
            page = page and put(page, "malformed", lambda _: cases)
        done = works(Path(name), given.works.split(",") if given.works else ()) if modes else []
        for work in done:
            every = given.every * (10 if work.name == "study" else 1)
            for mode in modes:
                if mode in MODES:
                    disturb(work, Path(name), mode, every * (1 if mode == "kill" else 4), twice=0.2)
                elif mode == "random":
                    at_random(work, Path(name), 5 if work.name in ("study", "evaluate") else 20)
                elif mode in DAMAGE:
                    damaged(work, Path(name), mode, 10 if work.name in ("study", "report") else 1)
                else:
                    flips(work, Path(name))
                print(work.name, mode, dict(work.results), file=sys.stderr, flush=True)
    found = rows(done)
    print(table(found))
    if given.out is not None:
        given.out.write_text(put(page, "faults", lambda old: table(found, old)), "utf-8")


if __name__ == "__main__":
    main()
