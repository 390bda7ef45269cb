"""Verbs that show: report, claims, presets, explain, status, verify, doctor."""

import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ..models.preset_table import check_preset, kept_rows, rows_as_text
from ..run.reference import REFERENCE, model_source, reference
from ..run.text_tables import table_lines
from ..training.training_keys import PretrainKeys, SchemeKeys
from .options import Json, Setting, check_page_file, configured, emit, report_line, verb


def _means_reference(folder: Path) -> bool:
    """Return whether an argument is the word `reference`, and no folder of that name."""
    return str(folder) == REFERENCE and not folder.is_dir()


def _run_folder(folder: Path) -> Path:
    """Return the folder of a run as it was given; refuse the model of the package, which is no run."""
    if _means_reference(folder):
        raise ValueError(
            f"{REFERENCE} is the model that comes with the package, and no run. Look into it: whatwhere heads "
            f"{REFERENCE}."
        )
    return folder


@verb()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...")],
    out: Path | None = None,
    csv: Path | None = None,
    as_json: Json = False,
) -> None:
    """Write the page of a run again from its records, or the page that compares several studies.

    Args:
        runs: Folder that study, geometry or spectra wrote; several studies are compared on one page.
        out: File of the page. [default: report.html in the run; of several, comparison.html in this folder]
        csv: Folder for every table of the page as CSV, new or of CSV files alone, which are replaced.
    """
    from ..report import comparison_page, open_runs, page_of, write_page, write_tables
    from ..run.files import check_writable
    from ..run.folder import RunFolder

    if out is not None:
        check_page_file(out, "report.html")
    runs = [_run_folder(run) for run in runs]
    place = out or (runs[0] / "report.html" if len(runs) == 1 else Path("comparison.html"))
    check_writable(place.parent)
    page = page_of(runs[0]) if len(runs) == 1 else comparison_page(open_runs(runs))
    tables = write_tables(page, csv) if csv is not None else []
    if place.parent.resolve() in [run.resolve() for run in runs]:
        RunFolder.tidy(place.parent)
    path = write_page(place, page)
    text = report_line(path) + (f"\n{len(tables)} tables are in {csv}." if csv is not None else "")
    emit({"report": str(path), "tables": [str(table) for table in tables]}, as_json, text)


@verb()
def claims(run: Annotated[Path, typer.Argument()], arithmetic: bool = False, as_json: Json = False) -> None:
    """Judge which claims of the papers hold in a study, by rules on its records, beside the values of the paper and of
    the reference study of the same size.

    Args:
        run: Folder of a study, or of another command that leaves a records.parquet: geometry, heads, an evaluation.
        arithmetic: Judge instead the statements that hold by arithmetic, whatever is measured (docs/theory.md).
    """
    from ..claims import CLAIMS, FACTS, evaluate
    from ..records.record import read_records
    from ..records.table import Table
    from ..report.references import Beside, beside
    from ..run.folder import RunFolder

    folder = RunFolder.at(_run_folder(run))
    folder.check("records.parquet")
    table = Table(read_records(run / "records.parquet"))
    facts = folder.read("study.json") if (run / "study.json").is_file() else None
    reference = (beside(facts, table) if isinstance(facts, dict) else None) or Beside()
    verdicts = evaluate(table, FACTS if arithmetic else CLAIMS)
    verdicts = [{**row, "reference": reference.claims.get(row["id"])} for row in verdicts]
    notes = ["", "reference study", *(f"  {note}" for note in reference.notes)] if reference.notes else []
    emit(verdicts, as_json, "\n".join([*_unfinished(run), _ledger(verdicts), *notes]))


def _unfinished(run: Path) -> list[str]:
    """Return a line and a blank one where the folder is a study with fewer finished models than its settings name."""
    from ..run.folder import RunFolder
    from ..run.names import STUDY_SETTINGS
    from ..run.status import run_status

    if not RunFolder.at(run).has(STUDY_SETTINGS):
        return []
    study = run_status(run)[0]
    if study["state"] == "finished":
        return []
    count = f"{study['finished']:,} of {study['models']:,} models are trained"
    return [f"The study is not finished ({count}): the verdicts are about models that were measured before.", ""]


def _ledger(verdicts: list[dict[str, Any]]) -> str:
    """Return the verdicts as text: counts by origin, a row for each measured claim, and what the other claims lack."""
    from ..claims import ORIGINS, UNTESTABLE, VERDICTS

    verdicts_seen = [verdict for verdict in VERDICTS if any(c["verdict"] == verdict for c in verdicts)]
    counts = [[f"{len(verdicts)} claims", "all", *ORIGINS]]
    rows = []
    for verdict in verdicts_seen:
        origins = [c["origin"] for c in verdicts if c["verdict"] == verdict]
        counts.append([verdict, str(len(origins)), *(str(origins.count(origin)) for origin in ORIGINS)])
        measured = [c for c in verdicts if c["verdict"] == verdict and c["value"] is not None]
        rows += [(verdict, row) for c in measured for row in _rows(c, with_reason=verdict == UNTESTABLE)]
    lines = table_lines(counts, right=range(1, len(counts[0])))
    before = ""
    texts = table_lines([row for _, row in rows], indent=2)
    for (verdict, _), text in zip(rows, texts, strict=True):
        lines += [] if verdict == before else ["", verdict]
        lines.append(text)
        before = verdict
    lacking = [str(c["scale"]).removeprefix("not measured: ") for c in verdicts if c["value"] is None]
    models = [why for why in lacking if why.startswith("needs a model ") and why.endswith(" in the study")]
    missing = Counter(_in_words(why) for why in lacking if why not in models)
    if models:
        names = dict.fromkeys(name for why in models for name in re.findall(r"a model (\S+)", why))
        missing[f"needs models that are not in the study: {', '.join(names)}"] = len(models)
    lines += ["", "not measured"] if missing else []
    return "\n".join([*lines, *table_lines([[str(n), why] for why, n in missing.most_common()], right=(0,), indent=2)])


def _in_words(why: str) -> str:
    """Put the name of a metric before its key, where a claim lacks its records: "no rise of loss (ablation.remove)"."""
    from ..records.metrics import metric

    match = re.match(r"no ([a-z0-9_]+(?:\.[a-z0-9_]+)+)", why)
    if match is None:
        return why
    with suppress(ValueError):  # a key that is no metric
        return f"no {metric(match[1]).name} ({match[1]}){why[match.end() :]}"
    return why


def _rows(claim: dict[str, Any], with_reason: bool) -> list[list[str]]:
    """Return a row of a measured claim, and one of what stands beside it, if anything does.

    Args:
        with_reason: Tell why the measurements decide nothing, not what the claim is.
    """
    so_far = claim["so_far"] and f"so far {claim['so_far']}"
    about = "; ".join(filter(None, (claim["claim"], claim["origin"], so_far, claim["holm"])))
    row = [claim["id"], _value(claim), claim["scale"] if with_reason else about]
    reference = _beside(claim)
    return [row, ["", "", reference]] if reference else [row]


def _beside(claim: dict[str, Any]) -> str:
    """Return value and verdict of the reference study and the value of the paper, "" if there are none."""
    lines = []
    if reference := claim["reference"]:
        verdict = f"{reference['verdict']}, so far {reference['so_far']}".removesuffix(", so far ")
        value = f"{_value(reference)} " if reference["value"] is not None else ""
        lines.append(f"reference study: {value}({verdict.replace('here', 'there')})")
    if claim["paper_value"] is not None:
        lines.append(f"paper: {claim['paper_value']:.6g}")
    return "; ".join(lines)


def _value(claim: dict[str, Any]) -> str:
    """Return the value of a claim with its interval, if it has one."""
    bounds = "" if claim["low"] is None else f" [{claim['low']:.3f}, {claim['high']:.3f}]"
    return f"{claim['value']:.3f}{bounds}"


@verb(options={PretrainKeys: "", SchemeKeys: "scheme"})
def presets(size: str = "paper", *, scheme: str | None, as_json: Json = False) -> None:
    """List the encoders this version builds: streams, terms of the attention scores, costs, longest input, backends
    that train them."""
    if scheme is None:
        check_preset("dstg", size)
        rows = kept_rows(size)
    else:  # which may register presets
        from ..models.explain import preset_rows
        from ..training.scheme_settings import use_scheme

        use_scheme(scheme)
        rows = preset_rows(size)
    emit({"size": size, "presets": rows}, as_json, rows_as_text(rows, size))


@verb(options={PretrainKeys: "size scheme"})
def explain(
    context: typer.Context,
    what: Annotated[list[str], typer.Argument(metavar="CONFIG [CONFIG]")],
    *,
    settings: Setting = None,
    as_json: Json = False,
) -> None:
    """Describe an encoder: resolved configuration, formula of its scores, parameters and operations by part, backends
    here and why. Of two encoders, show what differs side by side.

    Args:
        what: A preset, a YAML file of a training, the folder of a trained model, or `reference`; two to compare them.
    """
    if len(what) > 2:
        raise ValueError(f"explain takes one encoder, or two to compare; got {len(what)}: {', '.join(what)}.")
    if context.params["scheme"] is None:  # else the scheme may register presets
        for name in what:
            if name != REFERENCE and not Path(name).exists() and not name.endswith((".yaml", ".yml")):
                if "/" in name or os.sep in name:
                    raise ValueError(f"There is no folder {name}. Give the folder of a trained model, or a preset.")
                check_preset(name, context.params["size"] or "tiny")
    from ..models.explain import as_text, side_by_side, stops

    encoders = [_facts_of(context, one, settings) for one in what]
    if len(encoders) == 1:
        emit(encoders[0], as_json, as_text(encoders[0]))
    else:
        emit({"encoders": encoders}, as_json, side_by_side(*encoders))
    for facts in encoders:
        if bad := (facts["trial"] or {}).get("not_finite"):
            raise ValueError(stops(facts["preset"], bad, str(context.params["scheme"] or "its scheme")))


def _facts_of(context: typer.Context, what: str, settings: list[str] | None) -> dict[str, Any]:
    """Collect what `explain` prints of one encoder."""
    from ..models.explain import explain as facts_of
    from ..models.lengths import usual_length
    from ..models.model_tables import check_table_files
    from ..models.own_config import own_config
    from ..training.pretrain_settings import PretrainConfig, mask_rate_of
    from ..training.scheme_settings import use_scheme

    path = Path(model_source(what))
    scheme = context.params["scheme"]
    if path.is_dir():
        if context.params["size"] or settings:
            raise ValueError(f"{what} is a trained model, whose configuration is fixed. Leave --size and --set out.")
        if not (path / "config.json").is_file():
            raise ValueError(
                f"No model at {what}: config.json is missing. Give the folder that pretrain wrote, or a preset."
            )
        use_scheme(scheme)
        encoder = own_config(path)
        share = mask_rate_of(path, encoder.preset)
        return facts_of(encoder, usual_length(path, encoder), share, "sdpa", scheme is not None)
    if path.suffix in (".yaml", ".yml"):
        _one_encoder(context, path)
        config = configured(context, PretrainConfig, path, settings)
    elif path.suffix == ".py" and path.is_file():
        raise ValueError(f"{what} is a scheme. Give a preset that it registers: explain NAME --scheme {what}.")
    elif path.is_file():
        raise ValueError(
            f"{what} is no configuration: its name does not end in .yaml. Give a preset, a YAML file or a model's "
            "folder."
        )
    else:
        config = configured(context, PretrainConfig, settings=settings, preset=what)
    if config.tokenizer is None and "vocab_size" not in config.model:
        model = {**config.model, "vocab_size": config.vocab_size}  # of the WordPiece to train
        config = config.model_copy(update={"model": model})
    encoder = config.encoder_config()
    check_table_files(encoder)
    return facts_of(encoder, config.length, config.mask_rate, config.backend, config.scheme is not None)


def _one_encoder(context: typer.Context, path: Path) -> None:
    """Refuse the configuration of a study: it has several encoders."""
    from ..study.study_settings import StudyConfig

    try:
        models = configured(context, StudyConfig, path).models
    except ValueError:
        return
    if "models:" in path.read_text(encoding="utf-8"):
        raise ValueError(
            f"{path} is the configuration of a study of {', '.join(models)}. Name one: whatwhere explain {models[0]}."
        )


@verb()
def status(run: Annotated[Path, typer.Argument()], as_json: Json = False) -> None:
    """Show how far a run is, while it goes on: steps, loss, speed, time left, who writes, and what is wrong.

    Args:
        run: Folder of study, pretrain, finetune, evaluate, heads, geometry or spectra.
    """
    from ..run.status import run_status, status_text

    statuses = run_status(_run_folder(run))
    emit(statuses, as_json, status_text(statuses))


@verb()
def verify(folder: Annotated[Path, typer.Argument()], accept: list[str] | None = None, as_json: Json = False) -> None:
    """Compare every file below a folder with the hash that was written with it; exit status 2 where one differs. Pages,
    cards and growing logs have none.

    Args:
        folder: Any folder of runs or models: manifest.jsonl stands in each, in windows and checkpoints, too.
        accept: A file of the run in FOLDER that you changed on purpose: its hash is recorded anew, before all files are
            compared. May be given again.
    """
    from ..run.verify import files_without_hash, update_hash
    from ..run.verify import verify as compare

    if _means_reference(folder):
        folder = Path(reference())
    for name in accept or ():
        update_hash(folder, name)
    count, problems = compare(folder)
    if not as_json and problems:
        print("\n".join(problems))
    if not count and not problems:
        raise ValueError(f"No file below {folder} has a hash. Give the folder of a finished run or model.")
    is_same = "is as it was" if count == 1 else "are as they were"
    same = "" if problems else f" and {is_same} written"
    unchecked = files_without_hash(folder)
    more = ", ..." if len(unchecked) > 5 else ""
    without = f"; {len(unchecked):,} without one ({', '.join(unchecked[:5])}{more}) not compared" if unchecked else ""
    facts = {"files": count, "problems": problems, "without_hash": unchecked}
    have = "file below {} has" if count == 1 else "files below {} have"
    counted = f"{count:,} {have.format(folder)} a hash{same}{without}."
    emit(facts, as_json, counted)
    if problems:
        which = "one file is" if len(problems) == 1 else f"{len(problems):,} files are"
        advice = "Use complete copies; `--accept FILE` for one that you changed"
        raise ValueError(f"Below {folder} {which} not as written. {advice}.")


@verb()
def doctor(as_json: Json = False) -> None:
    """Show versions, cores, threads, memory, accelerator, attention backends, optional packages and free disk here."""
    from ..study.machine import diagnose

    facts = diagnose(Path("."))
    gib = 2**30
    machine = facts["machine"]
    rows = [
        *facts["versions"].items(),
        ("processor", f"{machine['cpu']}, {machine['cores']} cores"),
        ("threads", f"{facts['threads']}, which wait for each other by {facts['wait_policy']}"),
        ("memory", f"{facts['memory_free_bytes'] / gib:.1f} of {machine['memory_bytes'] / gib:.1f} GiB free"),
        ("disk", f"{facts['disk_free_bytes'] / gib:.1f} GiB free here"),
        ("accelerator", machine["accelerator"] or "none"),
        ("bf16", "used by precision: auto" if facts["bf16"] else "not faster here; precision: auto uses fp32"),
        *((f"backend {name}", state) for name, state in facts["backends"].items()),
        *facts["extras"].items(),
    ]
    emit(facts, as_json, "\n".join(table_lines([[str(cell) for cell in row] for row in rows])))
