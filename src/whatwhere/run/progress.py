"""Progress of long work: the function that the work calls, and the bars on stderr that it moves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich import progress as bars
from rich.console import Console

SECONDS_BETWEEN_LINES = 60.0  # of a log file, where no bar can move


class Progress(Protocol):
    """Function that long work calls to report how far it is; `executors.progress_of` makes one for each job."""

    def __call__(self, done: int, total: int, part: str = "", note: str = "") -> None:
        """Report the state of the work.

        Args:
            done, total: steps done and steps in all; a total of 0 is unknown.
            part: name of the part of the work that counts these steps, such as "training". A new part starts its bar
                anew.
            note: words on the last step, such as its loss.
        """


def ignore_progress(*state: Any, **words: Any) -> None:
    """Show nothing of what work (`Progress`) or a job (`executors.ShowProgress`) reports."""


class Bars(bars.Progress):
    """Bars that move on a terminal, and that a log file gets once a minute."""

    def __init__(self, *columns: bars.ProgressColumn, **options: Any) -> None:
        super().__init__(*columns, **options)
        self._printed = time.monotonic()

    def update(self, *arguments: Any, **values: Any) -> None:
        """Move a bar, as rich's Progress does; where stderr is no terminal, print all bars if a minute has passed."""
        super().update(*arguments, **values)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            self.console.print(self.get_renderable())


def make_bars(**options: Any) -> Bars:
    """Return bars on stderr, each with its label, share, a `note`, and the time that it took and still takes."""
    share = bars.TextColumn("{task.description}"), bars.BarColumn(bar_width=24), bars.TaskProgressColumn()
    times = bars.TimeElapsedColumn(), bars.TextColumn("left"), bars.TimeRemainingColumn()
    note = bars.TextColumn("{task.fields[note]}")
    return Bars(*share, note, *times, console=Console(stderr=True), **options)


@contextmanager
def progress_bar(label: str, progress: bool | Progress, start: int = 0) -> Iterator[Progress]:
    """Yield the given function, or for True one that moves a bar on stderr, for False one that shows nothing.

    All parts of the work share the bar; `jobs.show_progress` has a bar for each part. Where the block ends well, the
    bar is shown as complete: its total may have been estimated.

    Args:
        start: steps that were done before, by a command that this one resumes.
    """
    if callable(progress):
        yield progress
        return
    if not progress:
        yield ignore_progress
        return
    with make_bars() as display:
        task = display.add_task(label, total=None, completed=start, note="")

        def move(done: int, total: int, part: str = "", note: str = "") -> None:
            display.update(task, completed=done, total=total or None, note=note)

        yield move
        display.update(task, total=display.tasks[0].completed)


def estimate_total(done: int, read: int, share: float | None) -> int:
    """Estimate how many characters a whole text has; 0 where nobody knows which share of it was read.

    Args:
        done: characters already counted; the estimate is never below them.
        read: characters already read, of which there may be more.
        share: share of the text that these are.
    """
    return max(done, round(read / share)) if share else 0
