"""One command for all figures: one JSON, one Markdown page of ratios, one picture of memory over length.

Run: python -m benchmarks [--quick | --micro] [--only PART,...] [--out FOLDER] [--corpus SPEC] [--threads N]; all
options: --help. A part that is run replaces its own entry of the JSON in the folder; the page is written anew from all
of them.
"""

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # windows are timed on one core
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler that tracks memory logs each start

import time  # noqa: E402

from whatwhere.run.thread_waiting import core_times, cores_used_by_others, set_wait_policy, wait_policy  # noqa: E402

begin = core_times()
time.sleep(0.2)
set_wait_policy(cores_used_by_others(begin, core_times()))  # as a command does, before torch is loaded

import argparse  # noqa: E402
import json  # noqa: E402
import platform  # noqa: E402
import shlex  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from importlib.metadata import version  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import psutil  # noqa: E402
import torch  # noqa: E402

from whatwhere.run.memory import keep_freed_memory  # noqa: E402

from .attention import attention, positional  # noqa: E402
from .busy import busy  # noqa: E402
from .checkpointing import checkpointing  # noqa: E402
from .cluster import cluster  # noqa: E402
from .counting import counts  # noqa: E402
from .heads import heads  # noqa: E402
from .inference import inference  # noqa: E402
from .linguistic import linguistic  # noqa: E402
from .long import long  # noqa: E402
from .mds import mds  # noqa: E402
from .memory import memory  # noqa: E402
from .packing import packing  # noqa: E402
from .page import memory_picture, page  # noqa: E402
from .probes import probes  # noqa: E402
from .steps import peers, presets, schemes  # noqa: E402
from .study import study  # noqa: E402
from .timing import DEVICE, REPEATS, Results, Settings  # noqa: E402
from .tuning import tuning  # noqa: E402
from .windows import windows  # noqa: E402

PARTS: dict[str, Callable[[Settings], Results]] = {
    "memory": memory,  # first: later parts leave a large process behind, which keeps what it freed
    "long": long,
    "checkpointing": checkpointing,
    "study": study,
    "busy": busy,
    "presets": presets,
    "schemes": schemes,
    "peers": peers,
    "inference": inference,
    "attention": attention,
    "positional": positional,
    "packing": packing,
    "probes": probes,
    "heads": heads,
    "linguistic": linguistic,
    "tuning": tuning,
    "windows": windows,
    "counts": counts,
    "mds": mds,
    "cluster": cluster,
}
PACKAGES = ("whatwhere", "torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn")


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        name = next(
            (x.split(":")[1].strip() for x in cpuinfo.read_text().splitlines() if x.startswith("model name")), name
        )
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "bf16": torch.cpu._is_avx512_bf16_supported(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "accelerator": torch.cuda.get_device_name() if DEVICE.type == "cuda" else None,
        "system": platform.system(),
        "threads": torch.get_num_threads(),
        "wait_policy": wait_policy(),
    }


def command(words: list[str]) -> str:
    """The command as it was given, of files and folders the last name only."""
    return shlex.join(["python", "-m", "benchmarks", *(Path(w).name if "/" in w else w for w in words)])


def parse(words: list[str]) -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    scale = parser.add_mutually_exclusive_group()
    for name, meaning in (
        ("quick", "fewer shapes and repeats"),
        ("micro", "every line on tiny shapes, to try the command"),
    ):
        scale.add_argument(f"--{name}", dest="scale", action="store_const", const=name, default="full", help=meaning)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, with commas (default: {','.join(PARTS)})")
    parser.add_argument(
        "--out", type=Path, help="folder of benchmarks.json, benchmarks.md and memory.svg (default: docs)"
    )
    parser.add_argument(
        "--corpus", default="python-docs", help="documents for packing, windows and counts, for example WikiText-2"
    )
    parser.add_argument(
        "--document", default="auto", help="what a document of its text files is: file, heading, blank-line, line"
    )
    parser.add_argument(
        "--field", default="text", help="the field that holds the text, for example sentence in GLUE's tables"
    )
    parser.add_argument(
        "--tokenizer",
        help="vocabulary file or tokenizer folder for packing and counts (default: trained on the corpus)",
    )
    parser.add_argument("--threads", type=int, help="threads of torch (default: as many as cores)")
    given = parser.parse_args(words)
    if unknown := set(given.only.split(",")) - set(PARTS):
        parser.error(f"No part {', '.join(sorted(unknown))}. Parts: {', '.join(PARTS)}.")
    if given.scale == "micro" and given.out is None:
        parser.error("Figures of --micro mean nothing: name a folder for them with --out.")
    return given


def main(words: list[str]) -> None:
    given = parse(words)
    if given.threads:
        torch.set_num_threads(given.threads)
    out = given.out or Path(__file__).parents[1] / "docs"
    out.mkdir(parents=True, exist_ok=True)
    path = out / "benchmarks.json"
    done: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["parts"] if path.is_file() else {}
    keep_freed_memory()  # as a training does
    settings = Settings(given.scale, given.corpus, given.tokenizer, given.document, given.field)
    for name in (n for n in PARTS if n in given.only.split(",")):
        print(f"{name}: {(PARTS[name].__doc__ or '').splitlines()[0]}", flush=True)
        began = time.perf_counter()
        load = os.getloadavg()[0]
        results = PARTS[name](settings)
        done[name] = {
            "command": command(words),
            "scale": given.scale,
            "date": time.strftime("%Y-%m-%d"),
            "seconds": round(time.perf_counter() - began, 1),
            "load": [round(load, 2), round(os.getloadavg()[0], 2)],
            "repeats": REPEATS[given.scale],
            "machine": machine(),
            "versions": {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}},
            "rows": results.rows,
            "curves": results.curves,
        }
        whole = {"format": "whatwhere-benchmarks-1", "parts": {n: done[n] for n in PARTS if n in done}}
        path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    curves = [c for name in ("memory", "long") for c in whole["parts"].get(name, {}).get("curves", [])]
    if curves:
        (out / "memory.svg").write_text(memory_picture(curves), encoding="utf-8")
    (out / "benchmarks.md").write_text(page(whole), encoding="utf-8")
    print(f"Written: {path}, {out / 'benchmarks.md'}" + (f", {out / 'memory.svg'}" if curves else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
