"""The page of ratios and the picture of memory over length, from the JSON of a run."""

import math
from collections import Counter
from typing import Any

from .timing import budget

TITLES = {
    "study": "Trainings of a demo",
    "busy": "Beside another program",
    "presets": "Training steps: presets",
    "schemes": "Training steps: all presets on one backbone",
    "peers": "Training steps: against transformers",
    "inference": "Forward passes",
    "attention": "Attention alone",
    "positional": "TUPE's positional term",
    "memory": "Memory over length",
    "long": "Long texts",
    "packing": "Packing",
    "probes": "Probes",
    "heads": "Taxonomy of heads",
    "linguistic": "Probes of grammar, and likelihoods",
    "tuning": "Fine-tuning",
    "checkpointing": "Gradient checkpointing",
    "windows": "Text to windows",
    "counts": "Counts by position",
    "mds": "Multidimensional scaling of positions",
    "cluster": "On workers of a cluster",
}
PEERS = ("peers", "inference", "long", "counts")  # parts whose every row is held against another package
ABOUT = {
    "study": """
The same tokens for `dstg`, `ap`, `rp` and `rope`: one model after the other with all threads and batches of 16, against
as many models at once as there are cores, a thread each, with the recipe's batches.
""",
    "busy": """
Steps of `dstg`, size tiny, by how torch's threads wait for each other ([which way a command
takes](how-to/machine.md)). Ratios of minima: other programs can only add to a time.
""",
    "long": """
A forward pass over one text, without gradients, at paper size, fused attention, a process for each point. Memory is
what the process's peak grows by over the weights. BERT is transformers', of the same width and depth, without a gate.
""",
    "presets": """
Each preset against `nope` on the same block: what its scheme costs. At paper size BERT's block has 12 layers of 768,
NeoBERT's 6 of 720 (`dstg`: 768). A process for each preset.
""",
    "schemes": """
Each preset at size tiny against `dstg`, on the backbone of [the table of schemes](results/schemes/README.md), its
feed-forward widths not matched. Memory: what model and steps add to the peak of a process. A process for each preset.
""",
    "peers": """
Equal shapes: hidden 768, 12 heads, feed-forward 3,072, vocabulary 30,522, tied embeddings, 15 % masked, sdpa. Ours
projects the masked tokens alone on the vocabulary, as ModernBERT does with `sparse_prediction`; `rope` lacks its
prediction head and its norm after the embedding.
""",
    "inference": """
One thread, float32, encoders without heads, nothing padded. The budget is what the products alone cost (the number of
operations is in the row) and a tenth. Exported: by `whatwhere export`, run by onnxruntime in turns with torch.
""",
    "attention": """
One module forward and backward with its biases. Eager is the specification: every term a matrix, then softmax.
""",
    "positional": """
The correlation with θ1 and θ2 is computed once in a pass for all layers.
""",
    "memory": """
Tracked allocations without weights and their gradients, float32, a process for each point; resident is the growth of
the process's peak at the longest row, the exponent that of the tracked peak over the three longest. Maps: how many (h,
n, n) tensors the part that grows with n² makes up, for one row, and held by each further row; by example: held for each
example by a fused path.
""",
    "packing": """
Real tokens a second. Padded: one piece of a document in each row. Packed: several, isolated. Run-on: full rows.
""",
    "probes": """
All probes of a model at once against one scikit-learn fit each, equal R².
""",
    "heads": """
The forward pass alone against the same pass with KL(A ‖ A without the term) for every head and term.
""",
    "linguistic": """
Linear probes of the shipped model by five seeds, all at once, against one scikit-learn fit each, of which one in
fifteen is timed. Likelihoods: rows of one length in batches, against a forward pass a token.
""",
    "tuning": """
`reference` on made-up pairs of sentences; the same batches, optimizer and clipping on all sides, no scores on the way.
""",
    "checkpointing": """
A step forward, backward and AdamW, a process for each side. Memory is what the process's peak grows by over weights,
gradients and the optimizer's states.
""",
    "windows": """
CPU time of one core. `encode_batch` is the tokenizer alone.
""",
    "counts": """
CPU time of one core; every way gives the same counts. To stress: also distances, MDS and the stress of every encoding.
Ours tokenises each different word once where the tokenizer allows it, so a ratio below 1 is no slip.
""",
    "mds": """
From distributions of tokens to coordinates; √p is inside. Ours takes sparse distributions, the others need dense ones,
made beforehand.
""",
    "cluster": """
Scheduler, workers of one thread each and the command on one machine (`--on`). The killed worker is one that trains;
Dask starts another in its place.
Workers have their modules loaded, which processes of this machine load for each model.
""",
}


def number(value: float) -> str:
    """Three figures, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(row: dict[str, Any]) -> str:
    """Write the ratio of a row with the smallest and largest of a round, as "**1.24** (0.76–1.95)", or the median of a
    row without a peer."""
    if not row["second"]:
        return f"**{number(row['first']['median'])}** {row['first']['unit']}"
    ratio = f"**{row['ratio']:.2f}**" if row["ratio"] >= 0.1 else f"**{row['ratio']:.3f}**"
    if row["first"]["repeats"] > 1:
        ratio += f" ({row['ratio_min']:.3g}–{row['ratio_max']:.3g})"
    return ratio


def limit(row: dict[str, Any]) -> str:
    """Write the budget of a row, as "≤ 1.2"."""
    return budget(row).partition(":")[0]


def ratio_of(row: dict[str, Any]) -> float:
    """The ratio of a row, or the median of a row without a peer."""
    return float(row["ratio"] if row["second"] else row["first"]["median"])


def summary(parts: dict[str, Any]) -> list[str]:
    """Write a row for each ratio that has a budget or another package as its peer, and several shapes: their range, and
    first the ratios that miss a budget, each with the shapes that do."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, part in parts.items():
        for row in part["rows"]:
            if row["met"] is not None or name in PEERS:
                groups.setdefault(row["what"], []).append(row)
    lines = ["| first / second | shapes | ratio | budget |", "| --- | --- | --- | --- |"]
    for what, rows in sorted(groups.items(), key=lambda group: all(row["met"] is not False for row in group[1])):
        values = [ratio_of(row) for row in rows]
        ends = list(dict.fromkeys(number(value) for value in (min(values), max(values))))
        judged = [row for row in rows if row["met"] is not None]
        missed = [f"{row['shape']} ({ratio_of(row):.2f}, {limit(row)})" for row in judged if not row["met"]]
        if len(rows) == 1 and not missed:
            continue  # its part has it, unfolded
        verdict = f"{', '.join(dict.fromkeys(map(limit, judged)))}: met" if judged else ""
        if missed:
            kept = f"met in {len(judged) - len(missed)} of {len(judged)}, " if len(judged) > len(missed) else ""
            verdict = f"{kept}**missed**: {'; '.join(missed)}"
        lines.append(f"| {what} | {len(rows)} | {' to '.join(ends)} | {verdict} |")
    return lines


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Write the rows of a part: a column a shape, in each cell the ratio and its budget."""
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    measured = Counter((row["what"], row["shape"]) for row in rows)
    notes: dict[str, set[str]] = {}
    for row in rows:
        notes.setdefault(row["what"], set()).add(row["note"])
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        what = row["what"]
        shape = row["shape"]
        cell = [" ".join(filter(None, (spread(row), limit(row))))]
        by_shape = len(notes[what]) > 1 and measured[what, shape] == 1  # the note belongs to the shape, not to the row
        if by_shape:
            cell.append(row["note"])
        cells.setdefault((what, "" if by_shape else row["note"]), {})[shape] = "<br>".join(filter(None, cell))
    lines = [f"| | {' | '.join(shapes)} |", "| --- " * (len(shapes) + 1) + "|"]
    grouped = len({note for _, note in cells}) < len(cells) and all(note for _, note in cells)
    above = ""
    for (what, note), of_shape in cells.items():
        if grouped and note != above:  # once over all rows that have it
            lines.append(f"| *{note}* |{' |' * len(shapes)}")
            above = note
        head = f"{what}; {note}" if note and not grouped else what
        lines.append(f"| {head} | {' | '.join(of_shape.get(shape, '') for shape in shapes)} |")
    return lines


def memory_table(curves: list[dict[str, Any]]) -> list[str]:
    """Peaks at the shortest and longest row, growth, and the maps that are held."""
    n = curves[0]["n"]
    modules = {c["module"] for c in curves}
    what = "what" if len(modules) > 1 else curves[0]["module"]
    lines = [
        "",
        f"| {what} | backend | peak, n = {n[0]:,} | peak, n = {n[-1]:,} | resident | exponent | maps, peak "
        "| maps, held | by example |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for c in curves:
        mib = [f"{value / 2**20:,.1f} MiB" for value in (c["peak"][0], c["peak"][-1], c["resident"][-1])]
        name = f"{c['preset']}, {c['module']}" if len(modules) > 1 else c["preset"]
        own = ", ".join(f"{maps:.2f} at {length:,}" for length, maps in c.get("maps_by_example", []))
        lines.append(
            f"| {name} | {c['backend']} | {mib[0]} | {mib[1]} | {mib[2]} | "
            f"{c['exponent_peak']:.2f} "
            f"| {c['maps_peak']:.2f} | {c['maps_held']:.2f} | {own} |"
        )
    return [*lines, "", "![Peak memory over length](memory.svg)"]


def long_table(curves: list[dict[str, Any]]) -> list[str]:
    """Memory and seconds at each length."""
    n = curves[0]["n"]
    lines = [
        "",
        f"| what | {' | '.join(f'n = {length:,}' for length in n)} | exponent |",
        "| --- " * (len(n) + 2) + "|",
    ]
    for c in curves:
        cells = [f"{p / 2**20:,.0f} MiB, {number(s)} s" for p, s in zip(c["peak"], c["seconds"], strict=True)]
        lines.append(f"| {c['preset']} | {' | '.join(cells)} | {c['exponent_peak']:.2f} |")
    return lines


def page(whole: dict[str, Any]) -> str:
    """Write docs/benchmarks.md."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` (`python -m benchmarks`) from `benchmarks.json`, which holds the times of every",
        "repeat. A ratio is median over median of alternating runs in one process after a warm-up; below 1 the first",
        "is faster, or larger where it says so.",
    ]
    parts = whole["parts"]
    versions = {
        name: "torch {torch}, transformers {transformers}".format(**part["versions"]) for name, part in parts.items()
    }
    common = set(versions.values()) if len(set(versions.values())) == 1 else set()
    judged = [r for part in parts.values() for r in part["rows"] if r["met"] is not None]
    met = sum(row["met"] for row in judged)
    lines += [
        "",
        f"Budgets kept: {met} of {len(judged)}. The missed ones, and ratios over several shapes:",
        "",
        *summary(parts),
        "",
    ]
    lines.append("Below, each part with its command. In a table: ratio (smallest to largest of a round), budget.")
    lines[-1] += "".join(f" All parts: {words}." for words in common)
    for name, part in parts.items():
        m = part["machine"]
        where = m["accelerator"] or f"{m['cpu']}, {m['threads']} threads of {m['cores']} cores"
        lines += ["", f"## {TITLES[name]}", "", ABOUT[name].strip(), ""]
        lines.append('<details markdown="1">')
        lines.append(f"<summary>{part['date']}, {where}: {len(part['rows'])} ratios</summary>")
        lines += [
            "",
            ", ".join([f"`{part['command']}`", part["scale"], *({versions[name]} - common)])
            + f"; {part['seconds']:.0f} s, load {part['load'][0]} before, {part['load'][1]} after.",
            "",
            *table(part["rows"]),
        ]
        if part["curves"]:
            lines += (memory_table if name == "memory" else long_table)(part["curves"])
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
WIDTH = 360
HEIGHT = 300
LEFT = 60
TOP = 40
GAP = 70


def memory_picture(curves: list[dict[str, Any]]) -> str:
    """Peak over length on logarithmic axes as SVG: a panel for each module, a colour for each preset, eager dashed."""
    modules = list(dict.fromkeys(c["module"] for c in curves))
    names = list(dict.fromkeys(c["preset"] for c in curves))
    lengths = sorted({n for c in curves for n in c["n"]})
    peaks = [value for c in curves for value in c["peak"]]
    low = math.floor(math.log10(min(peaks)))
    high = math.ceil(math.log10(max(peaks)))
    first = math.log2(lengths[0])
    last = math.log2(lengths[-1])
    total = LEFT + len(modules) * (WIDTH + GAP) + 60
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {HEIGHT + 100}" font-family="sans-serif" '
        'font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for panel, module in enumerate(modules):
        left = LEFT + panel * (WIDTH + GAP)
        passes = next(c.get("passes", "forward and backward") for c in curves if c["module"] == module)

        def x(n: float, left: float = left) -> float:
            return left + (math.log2(n) - first) / (last - first) * WIDTH

        def y(value: float) -> float:
            return TOP + (high - math.log10(value)) / (high - low) * HEIGHT

        out.append(
            f'<text x="{left + WIDTH / 2:.0f}" y="24" text-anchor="middle" font-size="14">{module}, {passes}</text>'
        )
        for power in range(low, high + 1):
            at = y(10.0**power)
            out.append(f'<line x1="{left}" y1="{at:.1f}" x2="{left + WIDTH}" y2="{at:.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{_bytes(power)}</text>')
        for n in lengths:
            out.append(f'<line x1="{x(n):.1f}" y1="{TOP}" x2="{x(n):.1f}" y2="{TOP + HEIGHT}" stroke="#eee"/>')
            out.append(f'<text x="{x(n):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{n:,}</text>')
        out.append(
            f'<text x="{left + WIDTH / 2:.0f}" y="{TOP + HEIGHT + 34}" text-anchor="middle">tokens in the row</text>'
        )
        for c in (c for c in curves if c["module"] == module):
            points = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in zip(c["n"], c["peak"], strict=True))
            dash = ' stroke-dasharray="5 4"' if c["backend"] == "eager" else ""
            out.append(
                f'<polyline points="{points}" fill="none" stroke="{COLOURS[names.index(c["preset"])]}" '
                f'stroke-width="2"{dash}/>'
            )
    for i, name in enumerate(names):
        at = LEFT + 110 * i
        out.append(
            f'<line x1="{at}" y1="{HEIGHT + 88}" x2="{at + 24}" y2="{HEIGHT + 88}" stroke="{COLOURS[i]}" '
            'stroke-width="2"/>'
        )
        out.append(f'<text x="{at + 30}" y="{HEIGHT + 92}">{name}</text>')
    out.append(
        f'<text x="{LEFT + 110 * len(names)}" y="{HEIGHT + 92}">full line: fused, dashed: eager; peak of tracked '
        "bytes</text>"
    )
    return "\n".join([*out, "</svg>"]) + "\n"


def _bytes(power: int) -> str:
    """A power of ten of bytes."""
    unit = ("B", "kB", "MB", "GB", "TB")[power // 3]
    return f"{10 ** (power % 3)} {unit}"
