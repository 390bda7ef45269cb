"""Layout of all tables on the terminal: rows of cells in, aligned lines of plain text out."""

from collections.abc import Collection, Sequence
from io import StringIO

_WIDEST = 1 << 20  # columns of the terminal, more than any table has: lines are never wrapped


def table_lines(rows: Sequence[Sequence[str]], right: Collection[int] = (), indent: int = 0) -> list[str]:
    """Return rows of cells as lines of text, every column as wide as its widest cell, with two blanks between columns.

    A file and a terminal get the same text: no escape codes, no wrapping, no blanks at the end. Widths are as on a
    terminal, where a Chinese letter takes two columns and a combining accent none.

    Args:
        rows: Cells without line breaks, equally many in every row; the first row may be the names of the columns.
        right: Numbers of the columns that are aligned right, from 0; all others are aligned left.
        indent: Blanks before each line.
    """
    # These take 25 ms to load, and most commands, such as --help, print no table.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return []
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for number in range(len(rows[0])):
        table.add_column(justify="right" if number in right else "left", no_wrap=True, overflow="crop")
    for row in rows:
        table.add_row(*map(Text, row))
    file = StringIO()
    Console(file=file, width=_WIDEST, color_system=None, force_terminal=False, legacy_windows=False).print(table)
    return [" " * indent + line.rstrip() for line in file.getvalue().splitlines()]
