"""`whatwhere heads`: a look into one model, from its text to records, arrays and a page."""

import json
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..analysis import OF_WINDOWS, AnalysisInput, analyses_of
from ..analysis.passes import ChosenWindows, choose_windows
from ..analysis.record_context import RecordContext
from ..models.lengths import max_tokens
from ..models.open import name_and_seed, open_model
from ..records.gates import NOTHING, labels
from ..records.record import Record
from ..records.table import Table
from ..run.cluster import Cluster
from ..run.executors import Job
from ..run.folder import RunFolder
from ..run.hub import refuse_hub_names
from ..run.jobs import run_jobs, show_progress
from ..run.progress import Progress
from ..run.text_tables import table_lines
from ..training.scheme_settings import text_of_scheme, trust_scheme_of_job
from .explorer_files import MOST_SHOWN, choose_texts, save_attention
from .machine import machine_facts
from .measurements import Measurements, join_measurements, measure, split_analyses
from .model_windows import model_windows
from .results import PAGE_FACTS, command_of, clear_leftovers_and_bind, save_results
from .study_keys import HeadsConfig
from .training_records import learning_records, undertrained_message

KIND = "heads"
CONFIG = "heads.yaml"
SHARE_PREFIX = "kl.share."
ATTENTION_PREFIX = "attention."
SCORES = ("previous", "next", "self", "local", "special", "broad", "retrieval")


@dataclass(frozen=True)
class HeadsTask:
    """Description of some analyses of a model, with all that a worker of a cluster needs to do them.

    source: folder or name of the model. analyses: their names. ablation_windows: see `run_heads`.
    """

    source: str
    context: RecordContext
    chosen: ChosenWindows
    ablation_windows: int
    analyses: tuple[str, ...]


def measure_task(task: HeadsTask, progress: Progress) -> Measurements:
    """Open the model of a task and do the analyses that the task names."""
    model = open_model(task.source, "masked" if task.ablation_windows else None, attention="eager").model
    analyses = [analysis for analysis in analyses_of(OF_WINDOWS) if analysis.name in task.analyses]
    return measure(_input_of(model, task.context, task.chosen, task.ablation_windows, progress), analyses)


def _input_of(
    model: Any, context: RecordContext, windows: ChosenWindows, ablation_windows: int, progress: Progress | None = None
) -> AnalysisInput:
    return AnalysisInput(context, model, windows, ablation_windows=ablation_windows, thorough=True, progress=progress)


def _measure_on_cluster(
    cluster: Cluster, source: str, inputs: AnalysisInput, scheme: str | None, progress: bool
) -> Measurements:
    """Hand the pass of the documents and each other analysis of a model to the workers of a cluster."""
    assert inputs.windows is not None
    jobs = []
    for group in split_analyses(inputs, analyses_of(OF_WINDOWS)):
        names = tuple(analysis.name for analysis in group)
        task = HeadsTask(source, inputs.context, inputs.windows, inputs.ablation_windows, names)
        jobs.append(Job(f"{inputs.context.model} {names[0]}", measure_task, (task,)))
    make_context = partial(trust_scheme_of_job, text_of_scheme(scheme))
    parts = {
        job.label: part
        for job, part in run_jobs(
            jobs,
            1,
            progress,
            process_per_job=False,
            name="analyses",
            make_context=make_context,
            cluster=cluster,
        )
    }
    return join_measurements([parts[job.label] for job in jobs], analyses_of(OF_WINDOWS))


def run_heads(
    model: Any,
    tokenizer: Any,
    folder: Path,
    *,
    corpus: str | None = None,
    field: str = "text",
    windows: int = 500,
    length: int | None = None,
    ablation_windows: int = 0,
    scheme: str | None = None,
    out: Path | None = None,
    progress: bool = True,
    cluster: Cluster | None = None,
    model_name: str | None = None,
) -> dict[str, Any]:
    """Run the analyses of `whatwhere heads`, and write a page if `out` is given.

    Return what `whatwhere heads --json` prints. Beside the page stand its records and arrays.

    Args:
        model: one of ours with or without the masked-language head (ablations need it), or an encoder of transformers.
        folder: where the model was read from. corpus, field, length: see `model_windows`.
        windows: how many held-out windows of full length to read. ablation_windows: of those, how many have their loss
            measured with parts taken out.
        scheme: file of the model's own scheme, loaded already; the recorded command names it.
        cluster: Workers that do the analyses; they open the model, and see `out`. None: this process.
        model_name: What workers open the model by, where it is not `folder`.

    Raises:
        ValueError: no windows of full length, windows of another tokenizer than the model's, or an `out` that holds
            something else or results of other settings.
    """
    name, seed = name_and_seed(folder)
    if cluster is not None:
        refuse_hub_names([model_name or str(folder)])
    with ExitStack() as stack:
        run = None if out is None else stack.enter_context(RunFolder.open(out, KIND))
        if run is not None:
            settings = {
                "corpus": corpus,
                "field": field,
                "windows": windows,
                "length": length,
                "ablate": ablation_windows,
            }
            place = folder.absolute() if folder.exists() else folder  # a name on the Hub is no path
            settings_now = HeadsConfig.parse({"model": str(place), **settings})
            clear_leftovers_and_bind(settings_now, run, CONFIG)
        opened = model_windows(model, tokenizer, folder, corpus, field, windows, progress, length)
        window_sets, source = stack.enter_context(opened)
        held_out = window_sets["held_out"]
        chosen = choose_windows(held_out, windows)
        context = RecordContext(name, seed, run.name if run else "")
        inputs = partial(_input_of, model, context, chosen, ablation_windows)
        if cluster is not None:
            measured = _measure_on_cluster(cluster, model_name or str(folder), inputs(), scheme, progress)
        else:
            with show_progress(name, progress) as advance:
                measured = measure(inputs(advance), analyses_of(OF_WINDOWS))
        learning = learning_records(tokenizer, folder, context)
        result = {
            "model": str(folder),
            "corpus": source,
            "windows": len(chosen),
            "documents": chosen.document_count,
            "tokens": chosen.length,
            "undertrained": undertrained_message(learning, name) or None,
            "left_out": measured.left_out,
            "records": [vars(r) for r in measured.records],
            "report": None,
        }
        if run is not None:
            for stem, arrays in measured.arrays.items():
                run.write(f"arrays/{stem}.npz", arrays)
            most = min(chosen.length, MOST_SHOWN, max_tokens(model.config) or chosen.length)
            texts = choose_texts(held_out, tokenizer, (0, len(held_out) // 2), most)
            save_attention(run, model, tokenizer, texts, name=name, seed=seed)
            config = json.loads(model.config.to_json_string())
            page_facts = {
                "kind": KIND,
                "title": f"Inside {name}",
                "name": run.name,
                "corpus": {"name": source},
                "models": [{"name": name, "seed": seed, "config": config, "left_out": measured.left_out}],
                "seeds": [] if seed is None else [seed],
                "machine": machine_facts(),
                "command": command_of("heads", str(folder), *_options_of(settings_now), scheme=scheme),
            }
            result["report"] = str(save_results(run, [*measured.records, *learning], PAGE_FACTS, page_facts))
    return result


def _options_of(config: HeadsConfig) -> list[str]:
    """Return the options of `whatwhere heads` that give these settings."""
    settings = config.model_dump(exclude={"model"}, exclude_defaults=True)
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


def heads_text(result: dict[str, Any]) -> str:
    """Return the text of `whatwhere heads`: a line for each head.

    A line has the head's label, the shares of its terms and its scores.
    """
    records = [Record(**r) for r in result["records"]]
    named = labels(Table(records), records[0].model, records[0].seed) if records else {}
    heads: dict[tuple[int, int], dict[str, Record]] = defaultdict(dict)
    for r in records:
        if (
            r.layer is not None
            and r.head is not None
            and (r.part == "total" or not r.metric.startswith(ATTENTION_PREFIX))
        ):
            heads[r.layer, r.head][r.metric] = r
    shares = [metric for metric in dict.fromkeys(r.metric for r in records) if metric.startswith(SHARE_PREFIX)]
    scores = [
        ATTENTION_PREFIX + s for s in SCORES if any(ATTENTION_PREFIX + s in of_head for of_head in heads.values())
    ]
    names = [metric.removeprefix(SHARE_PREFIX).removeprefix(ATTENTION_PREFIX) for metric in (*shares, *scores)]
    heading = ["layer", "head"]
    if shares:
        heading += ["follows" if named else "largest term", "same in draws"]
    lines = [[*heading, *names]]
    for (layer, head), of_head in sorted(heads.items()):
        label = of_head.get("head.label")
        cells = []
        if shares:
            cells += [named.get((layer, head), str(label.part)), f"{label.value:.0%}"] if label else ["-", "-"]
        cells += [f"{of_head[m].value:.2f}" if m in of_head else "-" for m in shares]
        cells += [f"{of_head[m].value:.3f}" if m in of_head else "-" for m in scores]
        lines.append([str(layer), str(head), *cells])
    text = [result["undertrained"], ""] if result["undertrained"] else []
    text += table_lines(lines, right=range(len(lines[0])))
    for term, count in Counter(named.values()).most_common():
        follow = "have no single term that is worth anything alone" if term == NOTHING else f"follow {term}"
        text.append(f"{count} of {len(named)} heads {follow}")
    for r in records:
        if not named and r.metric == "heads.share" and r.value > 0:
            text.append(f"{r.value:.0%}{_bounds_of(r, '.0%')} of {r.n} heads change most without {r.part}")
    ablations = [
        r for r in records if r.metric.startswith("ablation.") and r.layer is None and r.index is None and r.part
    ]
    for r in records:
        if r.metric == "ablation.loss" and r.index is None:
            text.append(f"masked loss {r.value:.3f} nats on {r.n} documents; it rises, in all blocks at once:")
    rises = []
    for r in ablations:
        rises.append([r.metric.removeprefix("ablation."), str(r.part), f"{r.value:+.3f}{_bounds_of(r, '+.3f')}"])
    text += table_lines(rises, indent=2)
    if ablations:
        text.append("  (blocks and heads one by one: --json, or the page of --out)")
    documents = f"{result['documents']} document{'' if result['documents'] == 1 else 's'}"
    text.append(f"read: {result['windows']} windows of {result['tokens']} tokens, of {documents} of {result['corpus']}")
    text += [f"{what}: not measured. {why}" for what, why in result["left_out"].items()]
    return "\n".join(text)


def _bounds_of(record: Record, digits: str) -> str:
    if record.low is None or record.high is None:
        return ""
    return f" [{format(record.low, digits)}, {format(record.high, digits)}]"
