"""Progress of long work: bars on stderr, and the functions that move them."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Show = Callable[[str, int, int, str], None]  # told how far a long work is: (what, done, in all, a word on it)


@contextlib.contextmanager
def training_bar(label: str, start: int, progress: bool | Show) -> Iterator[Show]:
    """Yield a function that shows how far a training is: the given one, or a bar on stderr."""
    if callable(progress):
        yield progress
        return
    with make_bars(disable=not progress) as bar:
        task = bar.add_task(label, total=None, completed=start, word="")
        yield lambda what, done, total, word: bar.update(task, completed=done, total=total, word=word)


def show_counts(show: Show, what: str) -> Callable[[int, int], None]:
    """Return a function of (done, total) that tells `show` how far the work named `what` is."""
    return lambda done, total: show(what, done, total, "")


def make_bars(**options: Any) -> Progress:
    """Return bars on stderr, each with its label, share, a `word`, and the time that it took and still takes."""
    share = TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn()
    times = TextColumn("{task.fields[word]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    return Progress(*share, *times, console=Console(stderr=True), **options)


@contextmanager
def progress_bar(progress: bool, what: str) -> Iterator[Callable[[int, int, float | None], None]]:
    """Yield a function that moves a bar on stderr: (characters done, characters read, share of the text that was
    read)."""
    if not progress:
        yield lambda done, read, share: None
        return
    columns = TextColumn(what), BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None, said="")

        def show(done: int, read: int, share: float | None) -> None:
            total = max(done, read / share) if share else None
            bar.update(task, completed=done, total=total, said=f"{done / 1e6:.1f} million characters")

        yield show
        bar.update(task, total=bar.tasks[0].completed)  # all was read, whatever was thought to be left
