"""The commands that `faults.py` disturbs, and what they come to where nobody does."""

import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fork_server
from cli_runner import sentences
from made_tasks import write_pairs, write_vectors
from run_files import losses
from strikes import HELD, disturbed, give_rights

from whatwhere.records.record import read_records
from whatwhere.run.files import sha256
from whatwhere.run.folder import RunFolder
from whatwhere.run.manifest import MANIFEST
from whatwhere.run.verify import verify

TIMED = {"seconds", "tokens_per_second", "memory.peak"}  # metrics that the machine decides
DECIDED = {
    *TIMED,
    "started",
    "peak_memory_bytes",
    "evaluation_time",
    "date",
    "start",
    "end",
}  # JSON; last mteb's
PAGED = ("log.jsonl", "report.html")  # of a study: when what happened, and how long it took; its page is `report`'s
TIME = re.compile("<dt>(Time|Started)</dt><dd>[^<]*</dd>")
SMALL = ["--set=batch_size=8", "--set=workers=1", "--set=model.num_hidden_layers=1", "--set=model.dropout=0.1"]
SMALL += ["--set=model.max_position_embeddings=32"]
TRAINED = ["--steps=12", "--set=checkpoint_every=4", "--set=log_every=4", "--set=validate_every=4", *SMALL]


@dataclass
class Work:
    """A command that is disturbed: its words, where OUT is its folder, the files that are compared by nobody, a folder
    that is there before it, and the cores that it is told of. On one core it is done in one process, the one that is
    struck."""

    name: str
    words: list[str]
    apart: tuple[str, ...] = ()
    before: Path | None = None  # is copied to the folder first
    cores: int = 1  # 0: all
    every: int = 1  # a kill each so many changes, where nothing else is asked for
    files: int = 1  # damage to each so manieth file
    changes: int = 0  # of the file system, known once it has run, as are
    seconds: float = 0.0  # that it takes
    expected: str = ""  # what it comes to

    def place(self, folder: Path, which: str = "whole") -> Path:
        """Its folder of a run; `whole` is the one that nobody disturbs. All have one name, as results hold it."""
        return folder / self.name / which / self.name

    def start(self, out: Path, change: int = 0, mode: str = "kill") -> fork_server.Processes:
        words = [word.replace("OUT", str(out)) for word in self.words]
        return fork_server.Processes(disturbed, str(out), str(change), mode, str(self.cores), *words)

    def run(self, out: Path, change: int = 0, mode: str = "kill") -> tuple[int, str]:
        """Once, disturbed at a change (0: never); status and what was printed."""
        process = self.start(out, change, mode)
        held = Path(f"{out}{HELD}")
        other = ""
        if mode == "second" and change:
            while process.running() and not held.exists():
                time.sleep(0.002)
            _, other = self.run(out)
            held.unlink(missing_ok=True)
        (status,) = process.statuses()
        printed = process.output.read_text("utf-8", errors="replace")
        process.output.unlink()
        if mode == "read-only" and change:
            give_rights(out)
        return int(status or 0), other + printed

    def begin(self, out: Path, before: Path | None = None) -> None:
        """Its folder as it is before the command, or as another was."""
        shutil.rmtree(out.parent, ignore_errors=True)
        out.parent.mkdir(parents=True)
        if before is not None or self.before is not None:
            shutil.copytree(before or self.before, out)

    def result(self, out: Path) -> str:
        """Hash of all that it came to: of every file but those that the machine decides, of records but for times."""
        return hashlib.sha256("\n".join(map(str, contents(out, self.apart))).encode()).hexdigest()

    def others(self, out: Path, folder: Path) -> list[str]:
        """Names of the files that hold something else than those of the whole."""
        there, here = (dict(contents(each, self.apart)) for each in (self.place(folder), out))
        return sorted(key for key in there | here if there.get(key) != here.get(key))


def whole(work: Work, folder: Path) -> Work:
    """A work that has run once, undisturbed, and once until a kill at two thirds: what it comes to is known."""
    out = work.place(folder)
    work.begin(out)
    began = time.monotonic()
    status, printed = work.run(out)
    assert status == 0, printed
    work.seconds = time.monotonic() - began
    work.changes = changes(printed)
    work.expected = work.result(out)
    work.begin(work.place(folder, "killed"))
    work.run(work.place(folder, "killed"), 2 * work.changes // 3)
    return work


def leftovers(out: Path) -> list[str]:
    """What a killed process left in a folder or beside it, and what does not agree with its hashes."""
    return [*map(str, out.parent.rglob(".*")), *verify(out)[1]]


def changes(printed: str) -> int:
    """How many changes of the file system a process says that it made; 0 where it was killed."""
    words = printed.split()
    return int(words[-2]) if words[-1:] == ["changes"] else 0


def contents(out: Path, apart: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each file of a folder and what it holds; and, as one, the names that manifests record, below `out`.

    What manifests say of the files is compared by `leftovers`; their lines depend on what was disturbed.
    """
    recorded = {str((path.parent / name).relative_to(out)) for path in out.rglob(MANIFEST) for name in names(path)}
    yield MANIFEST, str(sorted(recorded))
    for path in sorted(p for p in out.rglob("*") if p.is_file() and p.name != MANIFEST):
        name = str(path.relative_to(out))
        if name in apart or "/." in f"/{name}":  # what a killed process left is counted by itself
            continue
        if path.suffix == ".parquet":
            told = [repr(record) for record in read_records(path) if record.metric not in TIMED]
            held = "\n".join(sorted(told))
        elif path.name == "log.jsonl":
            held = str(losses(path.parent))
        elif path.suffix in (".json", ".html"):
            text = path.read_text("utf-8", errors="replace").replace(str(out), "OUT")
            try:
                held = str(undecided(json.loads(text))) if path.suffix == ".json" else TIME.sub("", text)
            except ValueError:  # it was flipped, and stayed so
                held = text
        elif path.name == "README.md":
            held = re.sub(r"^\| speed \|.*\n", "", path.read_text("utf-8"), flags=re.M)
        else:
            held = sha256(path)
        yield name, held


def names(manifest: Path) -> list[str]:
    """Return the names of the files that a manifest records."""
    return RunFolder.at(manifest.parent).listed_files()


def undecided(value: Any) -> Any:
    """JSON without what the machine decides."""
    if isinstance(value, dict):
        return {key: undecided(each) for key, each in value.items() if key not in DECIDED}
    return [undecided(each) for each in value] if isinstance(value, list) else value


def works(folder: Path) -> list[Work]:
    """What is disturbed; the encoder of some is the whole of the first, the run of a page that of the study."""
    text = folder / "corpus.txt"
    table = folder / "rows.tsv"
    text.write_text(sentences(80), encoding="utf-8")
    rows = [f"{line.split()[0]}\t{number % 2}" for number, line in enumerate(text.read_text().split("\n\n"))]
    table.write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    out = "--out=OUT"
    corpus = [f"--corpus={text}", "--length=32", "--tokenizer=characters"]
    training = Work("pretrain", ["pretrain", "--preset=dstg", *corpus, *TRAINED, out], every=6)
    encoder = str(training.place(folder))
    tuning = ["finetune", encoder, f"--data={table}", f"--dev={table}", "--length=32", "--steps=12"]
    tuning += ["--set=checkpoint_every=4", "--set=batch_size=8", "--set=log_every=4"]
    studied = ["study", "--models=dstg,ap", *corpus, "--steps=4", "--set=workers=1", "--set=probe_windows=40"]
    studied += ["--set=training={batch_size: 8, model: {num_hidden_layers: 1}}", "--set=texts=1"]
    studied += ["--set=ablation_windows=8", "--set=join=run-on", "--set=held_out=0.3", out]
    study = Work("study", studied, PAGED, every=60, files=10)
    counted = ["geometry", corpus[0], corpus[2], "--positions=16", "--dims=2,4", "--set=min_support=20"]
    counted += ["--no-intervals", "--no-smacof", out]
    vectors = f"--data={write_vectors(folder / 'vectors')}"
    read_on = ["--to=64", "--documents=10", "--methods=as-it-is,cyclic", "--adapt=none,table", "--steps=10"]
    return [
        training,
        study,
        Work("windows", ["windows", *corpus, "--set=workers=1", out], every=6),
        Work("finetune", [*tuning, out], every=6),
        Work("heads", ["heads", encoder, *corpus[:1], "--windows=10", "--ablate=4", out], every=4),
        Work("processes", studied, PAGED, every=250, files=20, cores=0),
        Work("report", ["report", "OUT", "--out=OUT/report.html"], before=study.place(folder), files=10),
        Work("geometry", counted, every=4),
        Work("spectra", ["spectra", encoder, out], every=2),
        Work("extrapolate", ["extrapolate", encoder, "--length=64", out]),
        Work("export", ["export", encoder, out], every=10, files=2),
        Work("evaluate", ["evaluate", "all", encoder, f"--data={tasks(folder / 'tasks')}", out], every=20),
        Work("mteb", ["evaluate", "mteb", encoder, "--tasks=STS12-local", vectors, out], every=4),
        Work("length", ["evaluate", "length", encoder, *corpus[:1], *read_on, out], every=20),
    ]


def tasks(folder: Path) -> Path:
    """Small files of BLiMP and of a task of GLUE."""
    folder.mkdir()
    write_pairs(folder)
    (folder / "SST-2").mkdir()
    for split, count in (("train", 40), ("dev", 20)):
        rows = [f"a {('bad', 'fine')[number % 2]} film {number}\t{number % 2}" for number in range(count)]
        (folder / f"SST-2/{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    return folder
