"""A progress bar for parts of a study that name what they are doing."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class show_progress:
    """A bar with the time left, on stderr; `with` gives a function of (what is done, done, in all)."""

    def __init__(self, name: str, progress: bool) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=Console(stderr=True), disable=not progress)
        self.name = name

    def __enter__(self) -> Any:
        self.bar.start()
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for task in tasks.values():
                    self.bar.remove_task(task)
                tasks.clear()
                tasks[what] = self.bar.add_task(f"{self.name}: {what}", total=total)
            self.bar.update(tasks[what], completed=done)

        return show

    def __exit__(self, *error: Any) -> None:
        self.bar.stop()
