"""Tables on the terminal: aligned in cells of a terminal, plain wherever they go."""

import json

from test_start import printed

from whatwhere.run.text_tables import table_lines

LONG = "x" * 300


def test_columns_are_aligned_by_terminal_cells():
    """Columns are as wide as their widest cell in terminal cells: a Chinese letter takes two, an accent none."""
    rows = [["name", "n", "why"], ["数数", "12", "-"], ["e\u0301", "1,000", "so"]]
    assert table_lines(rows, right=(1,)) == ["name      n  why", "数数     12  -", "e\u0301     1,000  so"]
    assert table_lines(rows[:1], indent=2) == ["  name  n  why"]
    assert table_lines([]) == []


def test_cells_are_printed_as_they_are():
    """Markup of rich, long cells and numbers are no special text: nothing is swallowed, coloured, wrapped or cut."""
    rows = [["[bold]a[/bold]", LONG, "b"], ["", "1.5 [1.2, 1.8]", ""]]
    assert table_lines(rows) == [f"[bold]a[/bold]  {LONG}  b", f"{'':16}1.5 [1.2, 1.8]"]


TERMINAL = """
import json, os, sys
os.environ.update(json.loads(sys.argv[1]))
from whatwhere.run.text_tables import table_lines
print(*table_lines([["a", "x" * 300]]), sep="\\n")
"""


def test_environment_changes_nothing():
    """A narrow or colourful environment leaves the text plain and on one line (80 columns wrapped `rich`'s tables)."""
    settings = {"COLUMNS": "40", "FORCE_COLOR": "1", "TERM": "xterm-256color", "TTY_COMPATIBLE": "1"}
    assert printed(TERMINAL, json.dumps(settings)) == [f"a  {LONG}"]


LOADED = """
import contextlib, io, sys
sys.argv = ["whatwhere", "--help"]
from whatwhere.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
print("rich.table" in sys.modules)
"""


def test_help_does_not_load_the_printer():
    assert printed(LOADED) == ["False"]
