"""Builds the wheel and follows the tutorial with it, in an environment that has nothing but its dependencies.

Run: python tests/wheel.py [--whole] [--extra onnx] [--package NAME==VERSION ...]. Short commands, as in test_pages.py,
or those of the page as they stand (half an hour). --extra installs it once more with an extra, after the tutorial, and
does what the extra is for. --package puts other versions of dependencies beside it, to try the ends of what is
supported; without it the versions are those of constraints.txt.
"""

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from cli_runner import environment
from test_pages import ROOT, blocks, commands, furnish, shortened

TUTORIAL = "docs/tutorial.md"
EXTRAS = {"onnx": ["export", "reference", "--out", "onnx"]}  # extra -> a command that needs it
NEEDED = ("py.typed", "records/methods.md", "report/templates/report.html.j2", "reference/model.safetensors")
NEEDED += ("reference_studies/wikipedia-tiny.json", "reference_studies/wikipedia-tiny.parquet")


def say(*words: object) -> None:
    print(*words, flush=True)


def build(folder: Path) -> Path:
    """The wheel, with every file that is no module."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(pip, check=True)
    (wheel,) = folder.glob("whatwhere-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    absent = [name for name in NEEDED if f"whatwhere/{name}" not in held]
    assert not absent, f"{wheel.name} has no {', '.join(absent)}"
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/"))], (
        "the wheel has more than the package"
    )
    return wheel


def install(wheel: Path, folder: Path, packages: list[str]) -> Path:
    """A new environment with the wheel; returns the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    names = {re.split(r"[=<>~!]", package)[0].lower() for package in packages}
    kept = [
        line
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if not packages or re.split(r"[=<>~!]", line)[0].lower() in {"torch", "numpy"} - names
    ]
    (folder / "constraints.txt").write_text("\n".join(kept) + "\n", encoding="utf-8")
    add(folder / "bin", [str(wheel), *packages])
    return folder / "bin"


def add(programs: Path, what: list[str]) -> None:
    """Packages for an environment, within its constraints."""
    held = ["--constraint", str(programs.parent / "constraints.txt")]
    subprocess.run([str(programs / "pip"), "install", "--quiet", "--no-compile", *held, *what], check=True)


def run(words: list[str], folder: Path) -> None:
    """A command in a folder; its time, and an end where it fails."""
    env = {k: v for k, v in environment().items() if k not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    env["PYTHONWARNINGS"] = "ignore"  # of other versions' packages, which are not ours to mend
    began = time.perf_counter()
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    shown = shlex.join(words[:2] if words[1] == "-c" else [Path(words[0]).name, *words[1:]])
    say(f"{time.perf_counter() - began:7.1f} s  {shown}")
    if done.returncode:
        sys.exit(f"Exit status {done.returncode}:\n{done.stderr[-3000:]}")


def follow(programs: Path, folder: Path, whole: bool) -> None:
    """Every block of the tutorial, with the environment's own programs."""
    furnish(folder)
    run([str(programs / "whatwhere"), "doctor"], folder)
    run([str(programs / "python"), "-c", "import whatwhere; assert 'site-packages' in whatwhere.__file__"], folder)
    for kind, about, body, runs in blocks(TUTORIAL):
        if title := re.search(r'title="([\w.]+)"', about):
            (folder / title[1]).write_text(body, encoding="utf-8")
        elif kind == "python" and runs:
            run([str(programs / "python"), "-c", body], folder)
        for words in commands(body) if kind == "sh" and runs else []:
            run([str(programs / "whatwhere"), *(words if whole else shortened(words))], folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true", help="the tutorial's commands as they stand")
    parser.add_argument("--package", action="append", default=[], help="a dependency's version, NAME==VERSION")
    parser.add_argument("--extra", action="append", default=[], choices=EXTRAS, help="an extra to try as well")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        wheel = build(Path(place))
        say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        programs = install(wheel, Path(place) / "environment", given.package)
        listed = subprocess.run([str(programs / "pip"), "freeze"], capture_output=True, text=True, check=True).stdout
        say(*re.findall(r"^(?:torch|transformers|tokenizers|numpy|accelerate)==\S+", listed, flags=re.M))
        (Path(place) / "tutorial").mkdir()
        follow(programs, Path(place) / "tutorial", given.whole)
        for extra in given.extra:
            add(programs, [f"{wheel}[{extra}]", *given.package])
            run([str(programs / "whatwhere"), *EXTRAS[extra]], Path(place) / "tutorial")
    say("The wheel does the tutorial.")


if __name__ == "__main__":
    main()
