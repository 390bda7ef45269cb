"""All verbs of the command line, in the order in which help lists them."""

import functools

import typer

# A verb imports what it needs when it is called: help and a mistyped verb must not wait for torch.
# isort: off
from . import train, use, measure, evaluate, show  # noqa: F401

# isort: on
from .options import app


@functools.cache
def program() -> typer.core.TyperGroup:
    """Return the command line with its verbs below it: made once, where each call of `app` would make it anew."""
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    return command
