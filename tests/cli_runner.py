"""A small made-up corpus and a runner of the command line for the tests that need them."""

import os
import random
import subprocess
import sys


def sentences(documents: int, seed: int = 0) -> str:
    """Documents of a few made-up sentences, separated by blank lines."""
    draw = random.Random(seed)
    words = ["".join(draw.choice("bcdfglmnprst") + draw.choice("aeiou") for _ in range(draw.randint(1, 3))) for _ in range(200)]
    blocks = []
    for _ in range(documents):
        lines = [" ".join(draw.choices(words, k=draw.randint(3, 12))).capitalize() + "." for _ in range(draw.randint(2, 8))]
        blocks.append(" ".join(lines))
    return "\n\n".join(blocks) + "\n"


SMALL = ("length=32", "vocab_size=300", "batch_size=8", "workers=1", "precision=fp32", "model.num_hidden_layers=2", "warmup_steps=5")


def settings(*values: str) -> list[str]:
    """`--set` arguments of a run that takes a second."""
    return [argument for value in (*SMALL, *values) for argument in ("--set", value)]


def command(*arguments: str, processes: int = 1) -> list[str]:
    """The command line, under torch's launcher where there are several processes."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"] if processes > 1 else []
    return [sys.executable, "-m", *launcher, "whatwhere", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default", "COLUMNS": "120"}


def whatwhere(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run the command line in a new process."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, env=environment(), timeout=timeout, check=False)
