"""Progress of long work: the function that the work calls, and the bars on stderr that this function moves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich import progress as bars
from rich.console import Console

# Where stderr is a file, a line is printed this often and this wide; rich would take 80 columns, too few for a line.
SECONDS_BETWEEN_LINES = 60.0
COLUMNS_OF_A_LOG = 160


class Progress(Protocol):
    """Function that long work calls to report how far it is; `executors.progress_of` makes one for each job."""

    def __call__(self, done: int, total: int, part: str = "", note: str = "") -> None:
        """Report the state of the work.

        Args:
            done: Steps of this part that are done.
            total: Steps of this part in all; 0 if unknown.
            part: Name of the part of the work, such as "training". A new part begins a new bar, or the bar anew.
            note: Words on the last step, such as its loss.
        """


def ignore_progress(*state: Any, **words: Any) -> None:
    """Show nothing: a `Progress` for work, and an `executors.ShowProgress` for jobs."""


class Bars(bars.Progress):
    """Bars that move on a terminal, or are printed once a minute where stderr is a file."""

    def __init__(self, *columns: bars.ProgressColumn, **options: Any) -> None:
        super().__init__(*columns, **options)
        self._last_print = time.monotonic()

    def update(self, *arguments: Any, **values: Any) -> None:
        """Move a bar, as rich's Progress does; where stderr is no terminal, print all bars if a minute has passed."""
        super().update(*arguments, **values)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._last_print >= SECONDS_BETWEEN_LINES:
            self._last_print = now
            self.console.print(self.get_renderable())


def make_bars(**options: Any) -> Bars:
    """Return bars on stderr, each with its label, share, a `note`, the time that it took and the time left."""
    share = bars.TextColumn("{task.description}"), bars.BarColumn(bar_width=24), bars.TaskProgressColumn()
    times = bars.TimeElapsedColumn(), bars.TextColumn("left"), bars.TimeRemainingColumn()
    note = bars.TextColumn("{task.fields[note]}")
    console = Console(stderr=True)
    if not console.is_terminal:
        console.width = max(console.width, COLUMNS_OF_A_LOG)
    return Bars(*share, note, *times, console=console, **options)


@contextmanager
def progress_bar(label: str, progress: bool | Progress, start: int = 0) -> Iterator[Progress]:
    """Yield a `Progress` that moves one bar on stderr for all parts of the work (`jobs.progress_by_part`: one each).

    Where the block ends well, the bar is shown as complete: its total may have been estimated.

    Args:
        progress: True: show the bar. False: show nothing. A function: yield it, without a bar.
        start: Steps that were done before, by a command that this one resumes.
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
    """Estimate how many characters a whole text has; 0 where the share that was read is unknown.

    Args:
        done: Characters already counted; the estimate is never lower.
        read: Characters already read, perhaps more than `done`.
        share: Share of the text that was read; None where it is unknown.
    """
    return max(done, round(read / share)) if share else 0
