"""Crashes at every change of the file system, torn writes, full disks, folders without rights, clocks that jump, second
processes, kills at random moments, damage: what is resumed equals what nobody disturbed, to the last bit.
`python tests/faults.py --out docs/reliability.md` does some of all and writes the table, with `--every 1` all of it;
`tests/test_faults.py` does a few. A point is one of these done to one work: as many at once as there are cores.

A process counts its changes of the file system below its folder by an audit hook and, just before the k-th, does to
itself what the mode says:

kill       SIGKILL. Of these and the next modes' every fifth point does it once more to the process that goes on.
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

import factories_path  # isort: skip  # noqa: F401
import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import fork_server
from fault_works import Work, changes, leftovers, names, whole, works
from malformed_count import malformed
from strikes import JUMPS, MODES, WELL

from whatwhere.records.record import read_records
from whatwhere.run.manifest import MANIFEST
from whatwhere.run.verify import verify

DAMAGE = ("flipped", "vanished")
ORDER = (*MODES, "random", *DAMAGE, "flip", "gone")  # of the columns of the table
WHOLLY = ("study",)  # whose files are damaged one by one, each in models of another kind
WITHOUT_HASH = ("log.jsonl", "*.html", "README.md")
TWICE = 5  # every so manieth point
RARER = 4  # times: the modes but for kill
PRELOADED = ["whatwhere.cli.verbs", "pandas", "pyarrow.parquet", "onnxscript", "mteb"]  # what the works import


@dataclass(frozen=True)
class Point:
    """One disturbance of a work: a mode, the change, file or number of it, and whether the second try is struck, too.

    What was counted comes with lines about what is not as it should be.
    """

    work: Work
    mode: str
    at: int | str
    twice: bool = False

    def cost(self) -> float:
        """Return about how many seconds this point takes."""
        return {"random": 3.0, "flip": 0.3}.get(self.mode, 2.0 + self.twice) * (self.work.seconds + 0.3)

    def done(self, folder: Path) -> tuple[Counter[str], list[str]]:
        out = self.work.place(folder, f"{self.mode}-{str(self.at).replace('/', '-')}")
        does = _struck if self.mode in MODES else _damaged if self.mode in DAMAGE else _flips
        got, told = (_at_random if self.mode == "random" else does)(self, out, folder)
        shutil.rmtree(out.parent, ignore_errors=True)
        about = f"{self.work.name} {self.mode} {self.at}"
        counted = {key if key.startswith("gone") else f"{self.mode} {key}": value for key, value in got.items()}
        return Counter(counted), [f"{about}: {line}" for line in told]

    def draw(self) -> random.Random:
        return random.Random(f"{self.work.name} {self.mode} {self.at}")


Done = tuple[dict[str, int], list[str]]


def points(work: Work, mode: str, folder: Path, every: int | None = None, first: int = 1) -> list[Point]:
    """What a mode does to a work that has run whole, each so manieth; None: as often as the work says."""
    if mode in MODES:
        apart = every or work.every * (1 if mode == "kill" else RARER)
        found = range(first, work.changes + 1, apart)
        return [Point(work, mode, change, (len(found) - number) % TWICE == 1) for number, change in enumerate(found)]
    if mode == "random":
        return [Point(work, mode, number) for number in range(20 if every else 10 if work.files == 1 else 5)]
    of = work.place(folder, "killed" if mode in DAMAGE else "whole")
    files = [str(path.relative_to(of)) for path in sorted(of.rglob("*")) if path.is_file() and not _free(path, of)]
    return [Point(work, mode, name) for name in files[:: every or (1 if work.name in WHOLLY else work.files)]]


def _struck(point: Point, out: Path, folder: Path) -> Done:
    """Struck before a change, and the same command again until it ends well."""
    work = point.work
    mode = point.mode
    told = list[str]()
    work.begin(out)
    status, printed = work.run(out, int(point.at), mode)
    got = {"points": 1, "ended as they should": _ended_well(mode, status, printed)}
    if point.twice and status:
        left = work.changes - int(point.at)  # about: what goes on leaves out what is done
        again = point.draw().randint(1, max(left // 2, 1))
        second, more = work.run(out, again, mode)
        if second or changes(more) >= again:
            got["twice"] = 1
            got["ended as they should"] &= _ended_well(mode, second, more)
            status = second
            printed = more
    if not got["ended as they should"]:
        told.append(f"status {status}: {printed[-600:]}")
    status, printed = work.run(out)
    if status and "is there already" not in printed:  # a whole copy is not made again
        return got, [*told, f"given again, status {status}: {printed[-600:]}"]
    left = leftovers(out)
    got |= {"equal": work.result(out) == work.expected, "clean": not left}
    return got, [*told, *([] if got["equal"] else [f"other results: {work.others(out, folder)}"]), *left]


def _ended_well(mode: str, status: int, printed: str) -> bool:
    lines = [line for line in printed.splitlines() if line.startswith("whatwhere: ")]
    is_done = mode == "second" and "is there already" in printed  # the other one did all
    well = (is_done or status in WELL.get(mode, (0,))) and "Traceback" not in printed
    if mode in ("full", "read-only"):
        well &= len(lines) == 1
    if mode in ("second", *JUMPS):
        refusals = ("is being written by process", "is there already")  # the second one: the other did all
        well &= all(any(refusal in line for refusal in refusals) for line in lines)
    return well


def _at_random(point: Point, out: Path, folder: Path) -> Done:
    """kill -9 of a running command at random moments, up to three times, then its end."""
    work = point.work
    draw = point.draw()
    work.begin(out)
    for _ in range(draw.randrange(1, 4)):
        process = work.start(out)
        process.processes[0].join(draw.random() * work.seconds)
        process.kill()
        process.output.unlink()
    status, printed = work.run(out)
    if status and "is there already" not in printed:  # a whole copy is not made again
        return {"points": 1}, [f"given again, status {status}: {printed[-600:]}"]
    left = leftovers(out)
    went_on = {"points": 1, "ended as they should": 1}
    equal = work.result(out) == work.expected
    told = [*([] if equal else [f"other results: {work.others(out, folder)}"]), *left]
    return {**went_on, "equal": equal, "clean": not left}, told


def _damaged(point: Point, out: Path, folder: Path) -> Done:
    """A bit flipped in a file of a run that was killed at two thirds, or the file gone: the same command or else
    `verify` names it, or its folder, and the rest is as if nobody had touched it, or all is."""
    work = point.work
    killed = point.work.place(folder, "killed")
    name = Path(point.at)
    work.begin(out, killed)
    if point.mode == "flipped":
        _flip(out / name, point.draw())
    else:
        (out / name).unlink()
    status, printed = work.run(out)
    lines = [line for line in printed.splitlines() if line.startswith("whatwhere: ")]
    places = [name, *([name.parent] if name.parent != Path() else [])]  # a checkpoint without its list, for example
    named = status == 2 and len(lines) == 1 and any(str(out / each) in lines[0] for each in places)
    if not status and any(str(out / name) in line for line in verify(out)[1]):  # nothing has read it
        named = work.result(out) == work.expected
        if not named:
            shutil.copy(killed / name, out / name)
            named = work.result(out) == work.expected
    equal = status == 0 and not named and work.result(out) == work.expected
    told = f"status {status}: {printed[-600:]}" if status else f"other results: {work.others(out, folder)}"
    return {"points": 1, "named": named, "equal": equal}, [] if named or equal else [told]


def _free(path: Path, folder: Path) -> bool:
    """Whether nobody promises to notice what happens to a file."""
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    listed = path.name in names(path.parent / MANIFEST)  # the log of a finished training is
    free = not listed and any(path.match(each) for each in WITHOUT_HASH)
    return hidden or free or path.name == MANIFEST or not path.stat().st_size


def _flip(path: Path, draw: random.Random) -> None:
    before = path.read_bytes()
    at = draw.randrange(len(before))
    path.write_bytes(before[:at] + bytes([before[at] ^ 1 << draw.randrange(8)]) + before[at + 1 :])


def _flips(point: Point, out: Path, folder: Path) -> Done:
    """A flipped bit in a file of a finished run, three times, and the file gone if it has a hash: `verify` names it."""
    point.work.begin(out, point.work.place(folder))
    path = out / point.at
    draw = point.draw()
    told = list[str]()
    got = Counter[str]()
    before = path.read_bytes()
    hashed = [each.parent / name for each in out.rglob(MANIFEST) for name in names(each)]
    for _ in range(3):
        _flip(path, draw)
        noticed = any(str(path) in line or path.name == MANIFEST for line in verify(out)[1]) or _unreadable(path)
        got += Counter({"points": 1, "noticed": noticed})
        told += [] if noticed else ["not noticed"]
        path.write_bytes(before)
    if path in hashed:
        path.unlink()
        noticed = any(str(path) in line for line in verify(out)[1])
        got += Counter({"gone points": 1, "gone noticed": noticed})
        told += [] if noticed else ["gone, not noticed"]
    return got, told


def _unreadable(path: Path) -> bool:
    """Whether a file outside of the hashes tells its damage itself, or nothing depends on the bit."""
    if path.suffix == ".parquet":
        try:
            read_records(path)
        except ValueError:
            return True
    return False


def rows(done: Mapping[str, Counter[str]]) -> dict[tuple[str, str], str]:
    """Return the cell of each (mode, work): how many points, or "40 of 48" where not all ended as they should."""
    found: dict[tuple[str, str], str] = {}
    for name, got in done.items():
        got = Counter({key: int(value) for key, value in got.items()})  # of one point they are truths
        for mode in ORDER:
            points = got[f"{mode} points"]
            if mode in ("flip", "gone"):
                well = got[f"{mode} noticed"]
            elif mode in DAMAGE:
                well = got[f"{mode} named"] + got[f"{mode} equal"]
            else:
                well = min(got[f"{mode} {how}"] for how in ("ended as they should", "equal", "clean"))
            if points:
                found[mode, name] = f"{points}" if well == points else f"{well} of {points}"
    return found


def table(found: Mapping[tuple[str, str], str], page: str = "") -> str:
    """Write cells as a table, a row a work and a column a mode; cells of a page that were not measured anew stay."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    kept = {
        (mode, row[0].strip("`")): cell
        for row in lines[2:]
        for mode, cell in zip(lines[0][1:], row[1:], strict=True)
        if cell
    }
    both = kept | found
    modes = [mode for mode in ORDER if any(mode == of for of, _ in both)]
    works = list(dict.fromkeys(work for _, work in both))
    body = [[f"`{work}`", *(both.get((mode, work), "") for mode in modes)] for work in works]
    return "\n".join(f"| {' | '.join(row)} |" for row in (["", *modes], ["---"] * (len(modes) + 1), *body))


def put(page: str, name: str, table: Callable[[str], str]) -> str:
    """A page with what stands between its marks of a name made anew from what stood there."""
    head, rest = page.split(f"<!-- {name} -->\n", 1)
    old, end = rest.split("<!-- end -->", 1)
    return f"{head}<!-- {name} -->\n{table(old)}\n<!-- end -->{end}"


def tally(chosen: Sequence[Point], folder: Path, pool: Executor) -> tuple[dict[str, Counter[str]], list[str]]:
    """Counts by work of points that are done at once, and what is not as it should be; says how far they are."""
    began = time.monotonic()
    said = 0.0
    cost = 0.0
    found = dict[str, Counter[str]]()
    wrong = list[str]()
    total = sum(point.cost() for point in chosen)
    waiting = {
        pool.submit(point.done, folder): point for point in sorted(chosen, key=Point.cost, reverse=True)
    }  # the long ones first, so that the end is not one of them alone
    for number, future in enumerate(as_completed(waiting), 1):
        point = waiting[future]
        (got, told) = future.result()
        found.setdefault(point.work.name, Counter()).update(got)
        for line in told:
            _say(line)
        wrong += told
        cost, now = cost + point.cost(), time.monotonic() - began
        if now - said > 10 or number == len(chosen):
            said = now
            _say(
                f"{number} of {len(chosen)} points, {now / 60:.1f} min, {now / cost * (total - cost) / 60:.1f} min left"
            )
    return {work: found[work] for work in dict.fromkeys(point.work.name for point in chosen)}, wrong


def prepared(folder: Path, names: Sequence[str], pool: Executor) -> list[Work]:
    """The works of these names, or all, once they have run whole: first those whose results others read."""
    named = [work for work in works(folder) if not names or work.name in names or work.name == "pretrain"]
    if "report" in names and "study" not in names:
        named += [work for work in works(folder) if work.name == "study"]
    first = {work.name: pool.submit(whole, work, folder) for work in named if work.name in ("pretrain", "study")}
    done = {name: future.result() for name, future in first.items()}
    rest = {work.name: pool.submit(whole, work, folder) for work in named if work.name not in done}
    done |= {name: future.result() for name, future in rest.items()}
    return [work for name, work in done.items() if not names or name in names]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def workers() -> Executor:
    """As many processes as there are cores, each with a point at a time."""
    return ProcessPoolExecutor(len(os.sched_getaffinity(0)), fork_server.CONTEXT, _serve)


def _serve() -> None:
    """Begin a worker: it has a server of its own, as one forked from a server does not know that one."""
    fork_server.CONTEXT.set_forkserver_preload([*fork_server.PRELOADED, *PRELOADED])
    fork_server.Processes(int, "0").finish()  # until all is imported, which is no time of a work


def main() -> None:
    """Disturb everything and put the table into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--every",
        type=int,
        help="each so many changes and files, 1 for all; without it what ends in a quarter of an hour: a kill as often "
        f"as the work says, other modes {RARER} times as rarely",
    )
    parser.add_argument("--out", type=Path, help="page whose cells of what is done are replaced; the others stay")
    parser.add_argument("--only", help="modes, with commas")
    parser.add_argument("--works", help="pretrain, study, windows ..., with commas: the names in the table")
    given = parser.parse_args()
    modes = given.only.split(",") if given.only else [*MODES, "random", *DAMAGE, "flip", "malformed"]
    page = "" if given.out is None else given.out.read_text("utf-8")
    found = {}
    with tempfile.TemporaryDirectory() as name, workers() as pool:
        folder = Path(name)
        cases = pool.submit(malformed, folder) if "malformed" in modes else None
        if struck := [mode for mode in modes if mode != "malformed"]:
            done = prepared(folder, given.works.split(",") if given.works else (), pool)
            chosen = [point for work in done for mode in struck for point in points(work, mode, folder, given.every)]
            found = rows(tally(chosen, folder, pool)[0])
        if cases is not None:
            page = page and put(page, "malformed", lambda _: cases.result())
    print(table(found))
    if given.out is not None:
        given.out.write_text(put(page, "faults", lambda old: table(found, old)), "utf-8")


if __name__ == "__main__":
    main()
