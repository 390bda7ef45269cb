"""`whatwhere heads`: the analyses that read windows, of one model on one text, with records, arrays and a page."""

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
from ..run.jobs import progress_by_part, run_jobs
from ..run.progress import Progress
from ..run.text_tables import table_lines
from ..training.scheme_settings import scheme_context
from .explorer_files import MOST_SHOWN, choose_texts, save_attention
from .machine import machine_facts
from .measurements import Measurements, join_measurements, measure, split_analyses
from .model_windows import model_windows
from .results import PAGE_FACTS, command_of, save_or_compare_settings, save_results
from .study_keys import HeadsConfig
from .training_records import learning_records, undertrained_message

KIND = "heads"
SETTINGS_FILE = "heads.yaml"
SHARE_PREFIX = "kl.share."
ATTENTION_PREFIX = "attention."
PATTERNS = ("previous", "next", "self", "local", "special", "broad", "retrieval")


@dataclass(frozen=True)
class HeadsTask:
    """Description of some analyses of a model, with all that a worker of a cluster needs to do them.

    model_argument: folder of the model, or `reference`. analyses: their names. ablation_windows: see `run_heads`.
    """

    model_argument: str
    context: RecordContext
    chosen: ChosenWindows
    ablation_windows: int
    analyses: tuple[str, ...]


def measure_task(task: HeadsTask, progress: Progress) -> Measurements:
    """Open the model of a task and run the analyses that the task names."""
    model = open_model(task.model_argument, "masked" if task.ablation_windows else None, attention="eager").model
    analyses = [analysis for analysis in analyses_of(OF_WINDOWS) if analysis.name in task.analyses]
    return measure(_input_of(model, task.context, task.chosen, task.ablation_windows, progress), analyses)


def _input_of(
    model: Any, context: RecordContext, chosen: ChosenWindows, ablation_windows: int, progress: Progress | None = None
) -> AnalysisInput:
    return AnalysisInput(context, model, chosen, ablation_windows=ablation_windows, thorough=True, progress=progress)


def _measure_on_cluster(
    cluster: Cluster, model_argument: str, analysis_input: AnalysisInput, scheme: str | None, progress: bool
) -> Measurements:
    """Hand the analyses of a model to the workers of a cluster, in the jobs of `split_analyses`."""
    context = analysis_input.context
    windows = analysis_input.windows
    assert windows is not None
    jobs = []
    for group in split_analyses(analysis_input, analyses_of(OF_WINDOWS)):
        names = tuple(analysis.name for analysis in group)
        task = HeadsTask(model_argument, context, windows, analysis_input.ablation_windows, names)
        jobs.append(Job(f"{context.model} {names[0]}", measure_task, (task,)))
    make_context = scheme_context(scheme)
    finished = run_jobs(jobs, None, progress, name="analyses", make_context=make_context, cluster=cluster)
    parts = {job.label: part for job, part in finished}
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
    model_argument: str | None = None,
) -> dict[str, Any]:
    """Run the analyses of `whatwhere heads`, and return what `whatwhere heads --json` prints.

    If `out` is given, write a page there, with its records and arrays.

    Args:
        model: one of ours with or without the masked-language head (ablations need it), or an encoder of transformers.
        folder: where this machine read the model from, or its name on the Hub as a path. corpus, field, length: see
            `model_windows`.
        windows: how many held-out windows of full length to read.
        ablation_windows: in how many of these to measure the loss with parts of the model taken out.
        scheme: file of the model's own scheme, loaded already; the recorded command names it.
        cluster: workers that run the analyses; they open the model, and see `out`. None: this process.
        model_argument: the model as the user named it, by which workers open it, such as "reference"; None: `folder`.

    Raises:
        ValueError: no windows of full length, windows of another tokenizer than the model's, or an `out` that holds
            something else or results of other settings.
    """
    name, seed = name_and_seed(folder)
    if cluster is not None:
        refuse_hub_names([model_argument or str(folder)])
    with ExitStack() as stack:
        run = None if out is None else stack.enter_context(RunFolder.open(out, KIND))
        if run is not None:
            absolute = folder.absolute() if folder.exists() else folder  # a name on the Hub stays
            settings = {"corpus": corpus, "field": field, "windows": windows, "length": length}
            config = HeadsConfig.parse({"model": str(absolute), **settings, "ablate": ablation_windows})
            save_or_compare_settings(config, run, SETTINGS_FILE)
        opened = model_windows(model, tokenizer, folder, corpus, field, windows, progress, length)
        window_sets, text_name = stack.enter_context(opened)
        held_out = window_sets["held_out"]
        chosen = choose_windows(held_out, windows)
        context = RecordContext(name, seed, run.name if run else "")
        make_input = partial(_input_of, model, context, chosen, ablation_windows)
        if cluster is not None:
            measured = _measure_on_cluster(cluster, model_argument or str(folder), make_input(), scheme, progress)
        else:
            with progress_by_part(name, progress) as advance:
                measured = measure(make_input(advance), analyses_of(OF_WINDOWS))
        learning = learning_records(tokenizer, folder, context)
        result = {
            "model": str(folder),
            "corpus": text_name,
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
            tokens_shown = min(chosen.length, MOST_SHOWN, max_tokens(model.config) or chosen.length)
            texts = choose_texts(held_out, tokenizer, (0, len(held_out) // 2), tokens_shown)
            save_attention(run, model, tokenizer, texts, name=name, seed=seed)
            model_config = json.loads(model.config.to_json_string())
            page_facts = {
                "kind": KIND,
                "title": f"Inside {name}",
                "name": run.name,
                "corpus": {"name": text_name},
                "models": [{"name": name, "seed": seed, "config": model_config, "left_out": measured.left_out}],
                "seeds": [] if seed is None else [seed],
                "machine": machine_facts(),
                "command": command_of("heads", str(folder), *_options_of(config), scheme=scheme),
            }
            result["report"] = str(save_results(run, [*measured.records, *learning], PAGE_FACTS, page_facts))
    return result


def _options_of(config: HeadsConfig) -> list[str]:
    """Return the options of `whatwhere heads` that give these settings."""
    settings = config.model_dump(exclude={"model"}, exclude_defaults=True)
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


def heads_text(result: dict[str, Any]) -> str:
    """Return the text of `whatwhere heads`: a table of the heads, then counts of heads, ablations and what was read."""
    records = [Record(**r) for r in result["records"]]
    terms = labels(Table(records), records[0].model, records[0].seed) if records else {}
    text = [result["undertrained"], ""] if result["undertrained"] else []
    text += _head_lines(records, terms)
    for term, count in Counter(terms.values()).most_common():
        follow = "have no single term that is worth anything alone" if term == NOTHING else f"follow {term}"
        text.append(f"{count} of {len(terms)} heads {follow}")
    for r in records:
        if not terms and r.metric == "heads.share" and r.value > 0:
            text.append(f"{r.value:.0%}{_bounds_of(r, '.0%')} of {r.n} heads change most without {r.part}")
    text += _ablation_lines(records)
    documents = f"{result['documents']} document{'' if result['documents'] == 1 else 's'}"
    text.append(f"read: {result['windows']} windows of {result['tokens']} tokens, of {documents} of {result['corpus']}")
    text += [f"{what}: not measured. {why}" for what, why in result["left_out"].items()]
    return "\n".join(text)


def _head_lines(records: list[Record], terms: dict[tuple[int, int], str]) -> list[str]:
    """Return a line for each head: the term that it follows, the shares of its terms, and its attention patterns.

    terms: (layer, head) -> term, as of `labels`; empty where no head was ablated alone.
    """
    heads: dict[tuple[int, int], dict[str, Record]] = defaultdict(dict)  # (layer, head) -> metric -> record
    for r in records:
        is_shown = r.part == "total" or not r.metric.startswith(ATTENTION_PREFIX)
        if r.layer is not None and r.head is not None and is_shown:
            heads[r.layer, r.head][r.metric] = r
    shares = [metric for metric in dict.fromkeys(r.metric for r in records) if metric.startswith(SHARE_PREFIX)]
    measured = {metric for by_metric in heads.values() for metric in by_metric}
    patterns = [ATTENTION_PREFIX + name for name in PATTERNS if ATTENTION_PREFIX + name in measured]
    names = [metric.removeprefix(SHARE_PREFIX).removeprefix(ATTENTION_PREFIX) for metric in (*shares, *patterns)]
    heading = ["layer", "head"]
    if shares:
        heading += ["follows" if terms else "largest term", "same in draws"]
    lines = [[*heading, *names]]
    for (layer, head), by_metric in sorted(heads.items()):
        label = by_metric.get("head.label")
        cells = []
        if shares:
            cells += [terms.get((layer, head), str(label.part)), f"{label.value:.0%}"] if label else ["-", "-"]
        cells += [f"{by_metric[m].value:.2f}" if m in by_metric else "-" for m in shares]
        cells += [f"{by_metric[m].value:.3f}" if m in by_metric else "-" for m in patterns]
        lines.append([str(layer), str(head), *cells])
    return table_lines(lines, right=range(len(lines[0])))


def _ablation_lines(records: list[Record]) -> list[str]:
    """Return the masked loss, and a line for each part with the rise of the loss without it in all blocks."""
    lines = [
        f"masked loss {r.value:.3f} nats on {r.n} documents; it rises, in all blocks at once:"
        for r in records
        if r.metric == "ablation.loss" and r.index is None
    ]
    rises = [
        [r.metric.removeprefix("ablation."), str(r.part), f"{r.value:+.3f}{_bounds_of(r, '+.3f')}"]
        for r in records
        if r.metric.startswith("ablation.") and r.layer is None and r.index is None and r.part
    ]
    lines += table_lines(rises, indent=2)
    return [*lines, "  (blocks and heads one by one: --json, or the page of --out)"] if rises else lines


def _bounds_of(record: Record, digits: str) -> str:
    if record.low is None or record.high is None:
        return ""
    return f" [{format(record.low, digits)}, {format(record.high, digits)}]"
