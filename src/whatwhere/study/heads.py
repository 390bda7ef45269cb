"""One model looked into by itself: heads by term, what they look at, sentences, ablations; records, arrays and a page
if wanted."""

import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis import INSIDE
from ..analysis.passes import choose_documents
from ..analysis.subject import Subject
from ..analysis.texts import most_tokens, repeated_text, save_texts
from ..analysis.who import Who
from ..files import write_arrays, write_json
from ..records import Record, write_records
from ..report import write_report
from .folders import check_folder
from .look import Measurements, measure
from .machine import machine, versions
from .progress import show_progress
from .run import MOST_SHOWN
from .windows import model_windows

FACTS, KIND = "study.json", "heads"
SCORES = ("previous", "next", "self", "local", "special", "broad", "retrieval")


def run_heads(
    model: Any,
    tokenizer: Any,
    folder: Path,
    *,
    corpus: str | None = None,
    field: str = "text",
    documents: int = 500,
    ablated: int = 0,
    out: Path | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Look into a model and return what `whatwhere heads --json` prints; with `out` also records.parquet, arrays/ and
    report.html.

    Args:
        model: one of ours with or without the masked-language head (ablations need it), or an encoder of transformers.
        folder: where the model was read from. corpus: a folder of windows, or any text; see `windows.model_windows`.
        documents: held-out windows of full length to read. ablated: of those, how many have their loss measured with
            parts taken out.

    Raises:
        ValueError: no windows of full length, windows of another tokenizer than the model's, or an `out` that holds
        something else.
    """
    if out is not None:
        check_folder(out, _ours(out), "earlier look of `heads`")
    name = folder.parent.name if folder.name.startswith("seed-") else folder.name
    seed = (
        int(folder.name.removeprefix("seed-"))
        if folder.name.startswith("seed-") and folder.name[5:].isdigit()
        else None
    )
    with ExitStack() as stack:
        windows, source = model_windows(model, tokenizer, folder, corpus, field, documents, stack, progress)
        held_out = windows["held_out"]
        chosen = choose_documents(held_out, documents)
        show = stack.enter_context(show_progress(name, progress))
        who = Who(name, seed, out.name if out else "")
        found = measure(Subject(who, model, chosen, ablated=ablated, thorough=True, progress=show), INSIDE)
        result = {
            "model": str(folder),
            "corpus": source,
            "documents": len(chosen),
            "tokens": chosen.length,
            "left_out": found.left_out,
            "records": [vars(r) for r in found.records],
            "report": None,
        }
        if out is not None:
            texts = [_repeated(model, tokenizer, chosen.length)]
            texts += [
                (f"held-out window {i}", np.asarray(held_out[i].input_ids)[:MOST_SHOWN])
                for i in (0, len(held_out) // 2)
            ]
            result["report"] = str(_write(out, model, tokenizer, name, seed, found, source, texts))
    return result


def _ours(out: Path) -> bool:
    """Whether `out` holds what an earlier call wrote: never a study, whose records have the same name."""
    try:
        return json.loads((out / FACTS).read_text(encoding="utf-8")).get("kind") == KIND
    except (OSError, ValueError, AttributeError):
        return False


def _repeated(model: Any, tokenizer: Any, length: int) -> tuple[str, np.ndarray]:
    title, text = repeated_text()
    return title, np.array(
        tokenizer(text, truncation=True, max_length=min(length, most_tokens(model) or length))["input_ids"]
    )


def _write(
    out: Path,
    model: Any,
    tokenizer: Any,
    name: str,
    seed: int | None,
    found: Measurements,
    corpus: str,
    texts: Sequence[tuple[str, np.ndarray]],
) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    for stem, arrays in found.arrays.items():
        write_arrays(out / "arrays" / f"{stem}.npz", arrays)
    save_texts(out, model, tokenizer, texts, name=name, seed=seed)
    write_records(out / "records.parquet", found.records)
    facts = {
        "kind": KIND,
        "title": f"Inside {name}",
        "name": out.name,
        "corpus": {"name": corpus},
        "models": [
            {
                "name": name,
                "seed": seed,
                "config": json.loads(model.config.to_json_string()),
                "left_out": found.left_out,
            }
        ],
        "seeds": [] if seed is None else [seed],
        "machine": machine(),
        "versions": versions(),
        "command": f"whatwhere heads {name} --out NEW-FOLDER",
    }
    write_json(out / FACTS, facts)
    return write_report(out)


def heads_text(result: dict[str, Any]) -> str:
    """The same for people: a line a head with its label, the shares of its terms, and what it looks at."""
    records = [Record(**r) for r in result["records"]]
    rows: dict[tuple[int, int], dict[str, Any]] = defaultdict(dict)
    for r in records:
        if r.layer is None or r.head is None:
            continue
        place = rows[r.layer, r.head]
        if r.metric.startswith("kl.share."):
            place[r.metric.removeprefix("kl.share.")] = r.value
        elif r.metric == "head.label":
            place["label"], place["stable"] = r.part, r.value
        elif r.part == "total" and r.metric.removeprefix("attention.") in SCORES:
            place[r.metric] = r.value
    terms = list(dict.fromkeys(r.metric.removeprefix("kl.share.") for r in records if r.metric.startswith("kl.share.")))
    scores = [s for s in SCORES if any(f"attention.{s}" in row for row in rows.values())]
    heading = ["layer", "head", *(["follows", "stable"] if terms else []), *terms, *scores]
    lines = [heading]
    for (layer, head), row in sorted(rows.items()):
        shown = [f"{row[t]:.2f}" if t in row else "-" for t in terms] + [
            _number(row.get(f"attention.{s}")) for s in scores
        ]
        label = [row.get("label", "-"), f"{row['stable']:.0%}" if "stable" in row else "-"] if terms else []
        lines.append([str(layer), str(head), *label, *shown])
    widths = [max(len(line[i]) for line in lines) for i in range(len(heading))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    for r in records:
        if r.metric == "heads.share" and r.value > 0:
            bounds = f" [{r.low:.0%}, {r.high:.0%}]" if r.low is not None and r.high is not None else ""
            text.append(f"{r.value:.0%}{bounds} of {r.n} heads follow {r.part}")
    whole = [r for r in records if r.metric.startswith("ablation.") and r.layer is None and r.index is None and r.part]
    for r in records:
        if r.metric == "ablation.loss" and r.index is None:
            text.append(f"masked loss {r.value:.3f} nats on {r.n} windows; it rises, in all blocks at once:")
    for r in whole:
        bounds = f" [{r.low:+.3f}, {r.high:+.3f}]" if r.low is not None and r.high is not None else ""
        text.append(f"  {r.metric.removeprefix('ablation.'):8} {r.part:16} {r.value:+.3f}{bounds}")
    if whole:
        text.append("  (blocks and heads one by one: --json, or the page of --out)")
    text.append(f"read: {result['documents']} windows of {result['tokens']} tokens of {result['corpus']}")
    text += [f"{what}: not measured. {why}" for what, why in result["left_out"].items()]
    return "\n".join(text)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
