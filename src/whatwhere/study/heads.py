"""One model looked into by itself: heads by term, what they look at, sentences, ablations; records, arrays and a page
if wanted."""

import json
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis import INSIDE, Subject
from ..analysis.passes import choose_documents
from ..analysis.texts import most_tokens, repeated_text, save_texts
from ..analysis.who import Who
from ..files import read_json
from ..records import Record
from .inside import measure
from .jobs import show_progress
from .learned import learning_records, not_learned
from .machine import machine, versions
from .outputs import check_folder, save_arrays, write_results
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
    length: int | None = None,
    ablated: int = 0,
    out: Path | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Look into a model and return what `whatwhere heads --json` prints; with `out` also records.parquet, arrays/ and
    report.html.

    Args:
        model: one of ours with or without the masked-language head (ablations need it), or an encoder of transformers.
        folder: where the model was read from. corpus: a folder of windows, or any text; see `windows.model_windows`,
            as for `length`, the tokens of a window.
        documents: held-out windows of full length to read. ablated: of those, how many have their loss measured with
            parts taken out.

    Raises:
        ValueError: no windows of full length, windows of another tokenizer than the model's, or an `out` that holds
        something else.
    """
    if out is not None:
        check_folder(out, _ours(out), "earlier look of `heads`")
    number = folder.name.removeprefix("seed-")
    name = folder.parent.name if number != folder.name else folder.name
    seed = int(number) if number != folder.name and number.isdigit() else None
    with ExitStack() as stack:
        windows, source = model_windows(model, tokenizer, folder, corpus, field, documents, stack, progress, length)
        held_out = windows["held_out"]
        chosen = choose_documents(held_out, documents)
        show = stack.enter_context(show_progress(name, progress))
        who = Who(name, seed, out.name if out else "")
        found = measure(Subject(who, model, chosen, ablated=ablated, thorough=True, progress=show), INSIDE)
        learning = learning_records(tokenizer, folder, who)
        result = {
            "model": str(folder),
            "corpus": source,
            "documents": len(chosen),
            "tokens": chosen.length,
            "not_learned": not_learned(learning, name) or None,
            "left_out": found.left_out,
            "records": [vars(r) for r in found.records],
            "report": None,
        }
        if out is not None:
            title, text = repeated_text()
            length = min(chosen.length, most_tokens(model) or chosen.length)
            texts = [(title, np.array(tokenizer(text, truncation=True, max_length=length)["input_ids"]))]
            for i in (0, len(held_out) // 2):
                texts.append((f"held-out window {i}", np.asarray(held_out[i].input_ids)[:MOST_SHOWN]))
            save_arrays(out, found.arrays)
            save_texts(out, model, tokenizer, texts, name=name, seed=seed)
            config = json.loads(model.config.to_json_string())
            facts = {
                "kind": KIND,
                "title": f"Inside {name}",
                "name": out.name,
                "corpus": {"name": source},
                "models": [{"name": name, "seed": seed, "config": config, "left_out": found.left_out}],
                "seeds": [] if seed is None else [seed],
                "machine": machine(),
                "versions": versions(),
                "command": f"whatwhere heads {name} --out NEW-FOLDER",
            }
            result["report"] = str(write_results(out, [*found.records, *learning], FACTS, facts))
    return result


def _ours(out: Path) -> bool:
    """Whether `out` holds what an earlier call wrote: never a study, whose records have the same name."""
    try:
        return bool(read_json(out / FACTS).get("kind") == KIND)
    except (OSError, ValueError, AttributeError):
        return False


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
        label = [row.get("label", "-"), f"{row['stable']:.0%}" if "stable" in row else "-"] if terms else []
        shares = [f"{row[term]:.2f}" if term in row else "-" for term in terms]
        looks = [f"{row[f'attention.{s}']:.3f}" if f"attention.{s}" in row else "-" for s in scores]
        lines.append([str(layer), str(head), *label, *shares, *looks])
    widths = [max(len(line[i]) for line in lines) for i in range(len(heading))]
    text = [result["not_learned"], ""] if result["not_learned"] else []
    text += ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    for r in records:
        if r.metric == "heads.share" and r.value > 0:
            text.append(f"{r.value:.0%}{_bounds(r, '.0%')} of {r.n} heads follow {r.part}")
    whole = [r for r in records if r.metric.startswith("ablation.") and r.layer is None and r.index is None and r.part]
    for r in records:
        if r.metric == "ablation.loss" and r.index is None:
            text.append(f"masked loss {r.value:.3f} nats on {r.n} windows; it rises, in all blocks at once:")
    for r in whole:
        text.append(f"  {r.metric.removeprefix('ablation.'):8} {r.part:16} {r.value:+.3f}{_bounds(r, '+.3f')}")
    if whole:
        text.append("  (blocks and heads one by one: --json, or the page of --out)")
    text.append(f"read: {result['documents']} windows of {result['tokens']} tokens of {result['corpus']}")
    text += [f"{what}: not measured. {why}" for what, why in result["left_out"].items()]
    return "\n".join(text)


def _bounds(record: Record, digits: str) -> str:
    there = record.low is not None and record.high is not None
    return f" [{record.low:{digits}}, {record.high:{digits}}]" if there else ""
