"""What the pages of the fixtures and of docs/results show, and the verdicts on every record file, kept in golden/.

Of a part of a page the files hold its title, what its panels say in words, and a digest of all that it is; of a claim
its verdict, its value with the interval, and a digest. A change of the code that is to change no page leaves them as
they are. Where one moves, `python tests/golden.py --keep` writes them anew, and their diff says what a reader of the
page would notice; `python tests/golden.py DIR` writes every part whole to DIR, before and after, for `diff -r`.
The files are the same on every processor: OPENBLAS_CORETYPE=Prescott NPY_DISABLE_CPU_FEATURES="AVX2 FMA3"
ATEN_CPU_CAPABILITY=default must give the same ones as a new processor.
"""

import factories_path  # isort: skip  # noqa: F401
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from geometry_run import make_run
from made_reference import make_reference
from made_study import make_study
from whole_study import complete

from whatwhere.claims import evaluate
from whatwhere.encoder import PRESETS
from whatwhere.records.record import Record, read_records, write_records
from whatwhere.report import comparison_page, open_runs, page_of, references
from whatwhere.report.loaded_run import load_run
from whatwhere.report.page import Page
from whatwhere.report.pages import study_page
from whatwhere.run.manifest import MANIFEST
from whatwhere.study.spectra_run import run_spectra

HERE = Path(__file__).parent
KEPT = HERE / "golden"
RESULTS = HERE.parent / "docs" / "results"
EVALUATION = "2026-11-23-evaluation"
PLAIN = {str, bool, int, type(None)}
DIGITS = 5  # significant ones of a number: a page's own rounding, not that of a processor


def canonical(value: Any) -> Any:
    """The value as JSON holds it: tuples as lists, sets sorted, dataclasses as dictionaries, numbers to `DIGITS`
    digits."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, str | int):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float | np.floating):
        return float(f"{value:.{DIGITS}g}") if abs(value) > 1e-12 else 0.0  # rounding may leave 1e-16 of either sign
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.ndarray):
        return canonical(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(canonical(v) for v in value)
    if isinstance(value, list | tuple):
        return [canonical(v) for v in value]
    return {name: canonical(getattr(value, name)) for name in value.__dataclass_fields__}


def parts(page: Page) -> dict[str, Any]:
    """Figures and tables of a page by id, the words of every section, and what stands around them."""
    found: dict[str, Any] = {}
    for section in page.sections:
        for thing in (*section.figures, *section.more, *section.tables):
            found[thing.id] = thing
        ids = {name: [thing.id for thing in getattr(section, name)] for name in ("figures", "more", "tables")}
        found[f"section {section.id}"] = replace(section, **ids)
    if page.hero:
        found[f"hero {page.hero.id}"] = page.hero
    rest = {
        name: getattr(page, name)
        for name in page.__dataclass_fields__
        if name not in ("sections", "hero", "explorer", "models")
    }
    found["page"] = rest | {"models": str(page.models)}
    return {name: canonical(part) for name, part in found.items()}


def made_up(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and parts of the page of every fixture; `folder` takes the made-up runs."""
    demo = make_study(folder / "demo")
    yield "demo", parts(page_of(demo))
    yield "all", parts(page_of(make_study(folder / "all", models=(*PRESETS, "log-decay"), shifts=True)))
    seeds = make_study(folder / "seeds", models=("dstg", "ap"), seeds=(0, 1, 2), shifts=True)
    yield "seeds", parts(page_of(seeds))
    yield "whole", parts(page_of(complete(make_study(folder / "whole", shifts=True))))
    yield "comparison", parts(comparison_page(open_runs([demo, seeds])))
    yield "geometry", parts(page_of(make_run(folder / "geometry")))
    yield "spectra", parts(page_of(spectra(folder)))
    yield "evaluated", parts(page_of(evaluated(folder)))


def spectra(folder: Path) -> Path:
    """A spectra run of three tables: slow waves, noise, and a table that turns."""
    rng = np.random.default_rng(4)
    t = np.arange(64)[:, None] / 64
    for name, table in {
        "waves": np.cos(np.pi * t * np.arange(1, 9)),
        "noise": rng.standard_normal((64, 16)),
        "turning": np.concatenate([f(2 * np.pi * t * np.arange(1, 5)) for f in (np.cos, np.sin)], axis=1),
    }.items():
        np.save(folder / f"{name}.npy", table + 0.01 * rng.standard_normal(table.shape))
    run_spectra([folder / f"{name}.npy" for name in ("waves", "noise", "turning")], folder / "spectra")
    facts = folder / "spectra" / "spectra.json"
    of_the_day = ("machine", "versions", "started", "seconds", "command")
    told = json.loads(facts.read_text().replace(f"{folder}/", ""))
    (folder / "spectra" / MANIFEST).unlink()
    facts.write_text(json.dumps({k: v for k, v in told.items() if k not in of_the_day}))
    return folder / "spectra"


def evaluated(folder: Path) -> Path:
    """A page of evaluations: the committed one, and made-up means of Holmes, of types of tasks, and layers."""
    records = [r for file in sorted((RESULTS / EVALUATION).glob("*.parquet")) for r in read_records(file)]
    models = list(dict.fromkeys(r.model for r in records if r.model))
    for number, model in enumerate(models):
        place = {"study": "evaluated", "model": model, "n": 7}
        for step, value in ((None, 0.6 + 0.02 * number), (0, 0.3)):
            for part in ("syntax", "discourse"):
                records.append(Record(metric="holmes.field", part=part, value=value, step=step, **place))
            for part in ("syntax: part-of-speech", "syntax: readability", "discourse: sentence order"):
                records.append(Record(metric="holmes.phenomenon", part=part, value=value - 0.1, step=step, **place))
            for part in ("STS", "Clustering"):
                records.append(Record(metric="mteb.type", part=part, value=value - 0.2, step=step, **place))
        for layer in range(5):
            where = place | {"part": "pos", "layer": layer}
            records.append(Record(metric="linguistic.layer", value=0.5 + 0.1 * layer / (1 + number), **where))
    out = folder / "evaluated"
    out.mkdir()
    write_records(out / "records.parquet", [replace(r, study="evaluated") for r in records])
    facts = {"title": "What the encoders are good for", "name": "evaluated", "corpus": {"name": "glue, mteb"}}
    facts |= {"models": [{"name": model, "config": {"preset": model}} for model in models], "notes": []}
    (out / "study.json").write_text(json.dumps(facts))
    return out


def studies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and parts of the page of every committed study."""
    for run in sorted(RESULTS.glob("*/records.parquet")):
        yield run.parent.name, parts(study_page(load_run(run.parent)))


def verdicts() -> Iterator[tuple[str, dict[str, Any]]]:
    """The ledger of every study below docs/results: its file's place there, and claim -> row."""
    for file in sorted(RESULTS.glob("*/*.parquet")):
        records = read_records(file)
        studies = sorted({r.study for r in records})
        for study in studies:
            name = f"{file.relative_to(RESULTS)}{f': {study}' if len(studies) > 1 else ''}"
            rows = evaluate([r for r in records if r.study == study])
            yield name, {row["id"]: canonical(row) for row in rows}


def digest(part: Any) -> str:
    """Twelve hexadecimal digits of the part's JSON."""
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:12]


def everything(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """File of golden/, page or file of records, and its parts or claims whole, one after the other."""
    torch.manual_seed(0)
    shipped = references.FOLDER
    references.FOLDER = make_reference(folder / "references", folder, shifts=True).parent
    try:
        for file, source in (("made_up", made_up(folder)), ("studies", studies()), ("claims", verdicts())):
            for name, found in source:
                yield file, name, found
    finally:
        references.FOLDER = shipped


def told(part: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader notices of a part of a page, and the digest of the rest."""
    words = {"title": part.get("title", ""), "says": [panel["alt"] for panel in part.get("panels", [])]}
    return {name: said for name, said in words.items() if said} | {"digest": digest(part)}


def judged(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A line for each claim that was measured, and one for the others together."""
    measured = {name: row for name, row in rows.items() if row["value"] is not None}
    others = {name: row for name, row in rows.items() if name not in measured}
    lines = {
        name: f"{row['verdict']}: {row['value']} [{row['low']}, {row['high']}] {digest(row)}"
        for name, row in sorted(measured.items())
    }
    return lines | {"not measured": f"{len(others)} claims {digest(others)}"}


def readable(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """What the files of golden/ are to hold: file -> page -> part -> what is told of it."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for file, name, whole in everything(folder):
        lines = judged(whole) if file == "claims" else {part: told(whole[part]) for part in sorted(whole)}
        found.setdefault(file, {})[name] = lines
    return found


def kept() -> dict[str, dict[str, dict[str, Any]]]:
    """What `readable` gave when the files were written."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in KEPT.glob("*.json")}


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-") and sys.argv[1] != "--keep":
        sys.exit("python tests/golden.py DIR | --keep")
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1] == "--keep":
            for file, pages in readable(Path(folder)).items():
                text = json.dumps(pages, indent=1, ensure_ascii=False)
                (KEPT / f"{file}.json").write_text(text + "\n", encoding="utf-8")
            return
        for file, page, found in everything(Path(folder)):
            for name, part in found.items():
                path = Path(sys.argv[1]) / file / page / f"{name.replace('/', '_')}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(part, indent=1, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main()
