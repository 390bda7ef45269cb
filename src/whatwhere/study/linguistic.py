"""`whatwhere evaluate linguistic`: what several models know of grammar, as many at once as cores."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from ..analysis.who import Who
from ..corpus import load_tokenizer
from ..evaluation.blimp import Pair, read_blimp, right
from ..evaluation.tuning import open_masked
from ..files import write_array
from ..intervals import share_interval
from ..records import Record
from ..shipped import model_source
from ..training.config import SchemeConfig, use_scheme
from ..training.loop import Show
from ..training.runs import claim_folder
from .evaluate import UNTRAINED, model_facts, model_names
from .jobs import Job, at_once, run_jobs, threads
from .outputs import write_results

CONFIG = "linguistic.yaml"


class LinguisticConfig(SchemeConfig):
    """BLiMP for several models; models may be added to a folder."""

    models: list[str] = Field(description="model folders, Hub names or `reference`")
    data: str = Field(description="folder of BLiMP's JSON lines")
    limit: int | None = Field(None, ge=1, description="most pairs of a paradigm")
    untrained: bool = Field(False, description="also every model with weights drawn anew")


def run_linguistic(config: LinguisticConfig, out: Path, progress: bool = True) -> dict[str, Any]:
    """Judge what is not judged yet, and write records and page; returns what the verb prints.

    Raises:
        ValueError: `out` holds something else or other settings, BLiMP is missing or damaged.
    """
    resumed = claim_folder(config, out, CONFIG, resume=True, free=("models", "untrained"))
    pairs = read_blimp(Path(config.data), config.limit)
    if resumed:
        began = LinguisticConfig.load_run(out / CONFIG).models
        config = config.model_copy(update={"models": [*began, *(m for m in config.models if m not in began)]})
    config.save_run(out / CONFIG)
    named = model_names(config.models)
    runs = [(name, untrained) for name in named for untrained in (False, True)[: 1 + config.untrained]]
    todo = [run for run in runs if not _file(out, *run).is_file()]
    most = at_once() if len(todo) > 1 else 1
    jobs = [
        Job(f"{name}{f' {UNTRAINED}' * untrained}", judge, (str(out), name, named[name], untrained), count)
        for (name, untrained), count in zip(todo, threads(len(todo), most), strict=True)
    ]
    for _ in run_jobs(jobs, most, progress):
        pass
    records = [r for name, untrained in runs for r in _records(out, name, untrained, pairs)]
    notes = [f"BLiMP: {len(pairs):,} pairs of {len({p.paradigm for p in pairs})} paradigms, by pseudo-log-likelihood."]
    facts = model_facts(config.models, out, "What the encoders know of grammar", "BLiMP", notes)
    report = write_results(out, records, "study.json", facts)
    return {"out": str(out), "records": [vars(r) for r in records], "report": str(report)}


def _file(out: Path, name: str, untrained: bool) -> Path:
    return out / "runs" / f"{name.replace('/', '_')}{f'-{UNTRAINED}' * untrained}.npy"


def judge(out: str, name: str, source: str, untrained: bool, show: Show) -> None:
    """Judge all pairs by one model, and keep which it has right."""
    config = LinguisticConfig.load_run(Path(out) / CONFIG)
    use_scheme(config.scheme)
    source = model_source(source)
    model, tokenizer = open_masked(source, untrained), load_tokenizer(source)
    pairs = read_blimp(Path(config.data), config.limit)
    found = right(model, tokenizer, pairs, show=lambda done, total: show("pairs", done, total, ""))
    write_array(_file(Path(out), name, untrained), found)


def _records(out: Path, name: str, untrained: bool, pairs: list[Pair]) -> list[Record]:
    """The share of pairs that a model has right: of each paradigm, of each field (mean of its paradigms) and of all."""
    who, found = (
        Who(name, None, out.name, 0 if untrained else None),
        np.load(_file(out, name, untrained), allow_pickle=False),
    )
    of: dict[str, list[float]] = defaultdict(list)
    for pair, share in zip(pairs, found, strict=True):
        of[pair.paradigm].append(float(share))
    fields = {p.paradigm: p.field for p in pairs}
    shares = {paradigm: float(np.mean(values)) for paradigm, values in of.items()}
    records = [
        who.record("blimp.paradigm", share, *share_interval(round(sum(of[p])), len(of[p])), part=p, n=len(of[p]))
        for p, share in shares.items()
    ]
    for field in dict.fromkeys(fields.values()):
        mean = float(np.mean([share for p, share in shares.items() if fields[p] == field]))
        records.append(who.record("blimp.field", mean, part=field, n=sum(p.field == field for p in pairs)))
    return [*records, who.record("blimp", float(np.mean(list(shares.values()))), n=len(pairs))]


def linguistic_text(result: Mapping[str, Any]) -> str:
    """For people: a line a model with the share of pairs it has right, by field and in all."""
    records = [Record(**r) for r in result["records"]]
    fields = list(dict.fromkeys(r.part for r in records if r.metric == "blimp.field"))
    lines = [["model", *map(str, fields), "all"]]
    for r in (r for r in records if r.metric == "blimp"):
        own = {o.part: o.value for o in records if (o.metric, o.model, o.step) == ("blimp.field", r.model, r.step)}
        kind = f", {UNTRAINED}" if r.step == 0 else ""
        lines.append([r.model + kind, *(f"{own[f]:.3f}" for f in fields), f"{r.value:.3f}"])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text += ["share of pairs right, mean of paradigms; chance: 0.5"]
    return "\n".join([*text, f"The report is {result['report']}: open it in a browser."])
