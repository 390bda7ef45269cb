"""All verbs of the command line, in the order in which help lists them."""

# A verb imports what it needs when it is called: help and a mistyped verb must not wait for torch.
# isort: off
from . import train, use, measure, evaluate, show  # noqa: F401

# isort: on
from .options import app

__all__ = ["app"]
