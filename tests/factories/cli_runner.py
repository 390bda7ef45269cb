"""A small made-up corpus and a runner of the command line for the tests that need them."""

import contextlib
import io
import os
import random
import subprocess
import sys
import traceback
import warnings
from unittest import mock

import torch

from whatwhere.cli import main
from whatwhere.encoder import registry

KNOWN = (registry.TABLES, registry.BIASES, registry.ROTATIONS, registry.PRESETS, registry.SOURCES, registry._loaded)
PUBLISHED = [dict(names) for names in KNOWN]


def sentences(documents: int, seed: int = 0) -> str:
    """Documents of a few made-up sentences, separated by blank lines."""
    draw = random.Random(seed)
    words = [
        "".join(draw.choice("bcdfglmnprst") + draw.choice("aeiou") for _ in range(draw.randint(1, 3)))
        for _ in range(200)
    ]
    blocks = []
    for _ in range(documents):
        lines = [
            " ".join(draw.choices(words, k=draw.randint(3, 12))).capitalize() + "." for _ in range(draw.randint(2, 8))
        ]
        blocks.append(" ".join(lines))
    return "\n\n".join(blocks) + "\n"


SMALL = (
    "length=32",
    "vocab_size=300",
    "batch_size=8",
    "workers=1",
    "precision=fp32",
    "model.num_hidden_layers=2",
    "warmup_steps=5",
)


def settings(*values: str) -> list[str]:
    """`--set` arguments of a run that takes a second."""
    return [argument for value in (*SMALL, *values) for argument in ("--set", value)]


def command(*arguments: str, processes: int = 1) -> list[str]:
    """The command line, under torch's launcher where there are several processes."""
    launcher = (
        ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"] if processes > 1 else []
    )
    return [sys.executable, "-m", *launcher, "whatwhere", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default", "COLUMNS": "120"}


def whatwhere(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process: what it prints, and the status that it would end with.

    An import of torch in a new process takes seconds. What only a process of its own shows (signals, `-m`, a traceback
    on the way out) is tested with `command`.
    """
    out = io.StringIO()
    error = io.StringIO()
    status = 0
    threads = torch.get_num_threads()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        mock.patch.object(sys, "argv", ["whatwhere", *arguments]),
        mock.patch.dict(os.environ, environment()),
        warnings.catch_warnings(),
        contextlib.ExitStack() as schemes,
    ):
        for names, published in zip(
            KNOWN, PUBLISHED, strict=True
        ):  # an own scheme is known to the run that loads it, and to no other
            schemes.enter_context(mock.patch.dict(names, published, clear=True))
        warnings.simplefilter("default")
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            status = 1
            traceback.print_exc()
        finally:
            torch.set_num_threads(threads)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), error.getvalue())
