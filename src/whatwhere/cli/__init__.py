"""The command line: `whatwhere VERB --help`. Wrong input ends with status 2 and one line on stderr, never a
traceback."""

import os
import sys

import typer

# Each registers its verbs, and help lists them in this order. A verb imports what it needs when it is called: help and
# a mistyped verb must not wait for torch.
# isort: off
from . import train, measure, look, show  # noqa: F401

# isort: on
from .options import app

# Newer typer carries its own copy of click: the base of its usage errors is found through a public name.
_CommandLineError: type[Exception] = typer.BadParameter.__mro__[2]


def main() -> None:
    """Entry point: turns wrong input into one line and exit status 2."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        status = app(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except _CommandLineError as error:
        line = error.format_message()  # type: ignore[attr-defined]
        line = f"{line} See whatwhere --help." if line else ""
    except (typer.Abort, KeyboardInterrupt, SystemExit) as stop:
        if isinstance(stop, SystemExit) and stop.code != 130:
            raise
        print(
            "\nwhatwhere: stopped. The same command goes on from what is finished (pretrain, finetune: add --resume).",
            file=sys.stderr,
        )
        sys.exit(130)
    except (ValueError, OSError) as error:
        if os.environ.get("WHATWHERE_DEBUG"):
            raise
        line = str(error)
    if line:  # without a verb the help has been printed already
        print(f"whatwhere: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(2)
