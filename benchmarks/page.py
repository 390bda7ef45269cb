"""The page of ratios and the picture of memory over length, from the JSON of a run."""

import math
from typing import Any

from .timing import budget

TITLES = {
    "study": "Trainings of a demo",
    "busy": "Beside another program",
    "presets": "Training steps: presets",
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
    "windows": "Text to windows",
    "counts": "Counts by position",
    "mds": "Multidimensional scaling of positions",
}
ABOUT = {
    "study": """
The same tokens for `dstg`, `ap`, `rp` and `rope` by the recipe of size tiny: one model after the other with all threads
and batches of 16, as a demo once trained, and as many models at once as there are cores, a thread each, with the
recipe's batches. The ratio is that of tokens a second; both sides run the code of today.
""",
    "busy": """
Steps of `dstg` by the recipe of size tiny, by how torch's threads wait for each other. A command's sleep where other
programs use more than a quarter of a core as it begins, else they spin 10,000 times ([how to](how-to/machine.md));
those meet a busy core where another program begins later. Ratios are of the minima of alternating rounds, as other
programs can only add to a time.
""",
    "long": """
A forward pass over one text, without gradients, by a whole encoder of paper size with as many positions, fused
attention, each point a process of its own. Memory: growth of the peak of the process over what it held with the
weights. The peer is transformers' BERT of the same width, depth and feed-forward width, by its own fused attention; its
feed-forward has no gate, a third of the work less there.
""",
    "presets": """
Each preset against `nope` on the same block with the same dropout: what its scheme costs. At paper size presets of the
BERT block have 12 layers of 768, those of the NeoBERT block 6 of 720 (`dstg`: 768). Each has a process of its own, as a
training has.
""",
    "peers": """
Equal shapes: hidden 768, 12 heads, feed-forward 3,072, vocabulary 30,522, tied embeddings, 15 % masked, the same
optimizer, sdpa. Ours projects the masked tokens on the vocabulary, theirs every token; `sparse_prediction` makes
ModernBERT do as ours. What differs: BERT has token types; ModernBERT has a prediction head (dense, GELU, norm) and a
norm after the embedding that `rope` lacks, and here full attention in every layer.
""",
    "inference": """
One thread, float32, `torch.inference_mode`, encoders without heads, nothing padded; every pass finds its weights and
memory as the one before left them. The budget is what the products alone cost (in the note: how many operations the
first has of the second), and a tenth. Exported: by `whatwhere export`, vectors, run by onnxruntime on one thread, in
turns with torch, which is slower then than in the rows above (2.7 and 4.4 ms at tiny, 1 × 32).
""",
    "attention": """
One module forward and backward with its biases. Eager is the specification: every term a matrix, then softmax.
""",
    "positional": """
The correlation with θ1 and θ2 is computed once in a pass and serves all layers; adding it to the scores, with the
reset, is in the ratio to `bert-a`, which adds nothing.
""",
    "memory": """
Tracked allocations of torch without weights and their gradients, float32, CPU, each point a process of its own;
resident is the growth of the process's peak at the longest row, the exponent that of the tracked peak over the three
longest. Held: what the forward pass leaves for the backward pass. Maps: how many (h, n, n) tensors of float32 make up
what grows with n², for a batch of one row, and held by each further row; a fraction below 0.01 is none. They are
counted from the two longest rows (by example also from the two up to 512): a negative number says that maps are kept
for the shorter row only.
""",
    "packing": """
Real tokens a second. Padded: one piece of one document in each row. Packed: several documents in a row, isolated,
positions restarted. Run-on: full rows without isolation.
""",
    "probes": """
All probes of a model at once against one scikit-learn fit each, equal R².
""",
    "heads": """
One pass of documents: the forward pass alone against the same pass in which every block also hands over its terms and
KL(A ‖ A without the term) is measured for every head and term. The ratio is that of the speeds.
""",
    "linguistic": """
Which of the commonest words comes next, in 2 to 33 classes, is read off every hidden state of the shipped model, both
streams and each alone, and for shuffled labels, by five seeds: all at once, against one scikit-learn fit each, of which
one in fifteen is timed. Likelihoods: rows of one length in batches, against a forward pass a token.
""",
    "tuning": """
`reference` on made-up pairs of sentences; batches, encoded before, and clipping are in both sides. Scores on the way
are in neither.
""",
    "windows": """
CPU time of one core. `encode_batch` is the tokenizer alone.
""",
    "counts": """
CPU time of one core; every way gives the same counts. From windows: the files of token ids are in the page cache, scipy
and scikit-learn get all ids in memory. From text: reading, tokenising, counting whole documents in 32 groups; to
stress: also Hellinger distances, MDS and the stress of every encoding at d = 768. `encode_batch_fast` gives no offsets.
Ours tokenises each different word once where the tokenizer treats what stands between spaces on its own, so a ratio
below 1 is no slip.
""",
    "mds": """
From the distributions of tokens to coordinates, one way as the other; √p is inside. Ours takes sparse distributions
where they are sparse, the others need dense ones, which are made beforehand. The peak is that of a process which draws
the counts and scales them.
""",
}


def number(value: float) -> str:
    """Three figures, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def shown(figure: dict[str, Any] | None) -> str:
    """A figure with its unit and its spread."""
    if figure is None:
        return ""
    scale, unit = (1e3, "ms") if figure["unit"] == "s" and figure["median"] < 10 else (1, figure["unit"])
    middle, low, high = (number(scale * figure[key]) for key in ("median", "min", "max"))
    return f"{middle} {unit}" + (f" ({low}–{high})" if figure["repeats"] > 1 else "")


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows of a part."""
    lines = ["| what | shape | ratio | budget | first | second | |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        ratio = ""
        if r["second"]:
            ratio = f"**{r['ratio']:.2f}**" if r["ratio"] >= 0.1 else f"**{r['ratio']:.3f}**"
            if r["first"]["repeats"] > 1:
                ratio += f" ({r['ratio_min']:.3g}–{r['ratio_max']:.3g})"
        lines.append(
            f"| {r['what']} | {r['shape']} | {ratio} | {budget(r)} | {shown(r['first'])} | {shown(r['second'])} | "
            f"{r['note']} |"
        )
    return lines


def memory_table(curves: list[dict[str, Any]]) -> list[str]:
    """Peaks at the shortest and longest row, growth, and the maps that are held."""
    n = curves[0]["n"]
    lines = [
        "",
        f"| what | backend | peak, n = {n[0]:,} | peak, n = {n[-1]:,} | resident | exponent | maps, peak | maps, held "
        "| by example |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for c in curves:
        mib = [f"{value / 2**20:,.1f} MiB" for value in (c["peak"][0], c["peak"][-1], c["resident"][-1])]
        own = ", ".join(f"{maps:.2f} at {length:,}" for length, maps in c.get("maps_by_example", []))
        lines.append(
            f"| {c['preset']}, {c['module']} | {c['backend']} | {mib[0]} | {mib[1]} | {mib[2]} | "
            f"{c['exponent_peak']:.2f} "
            f"| {c['maps_peak']:.2f} | {c['maps_held']:.2f} | {own} |"
        )
    fused = [c for c in curves if "maps_by_example" in c]
    verdict = []
    for length in dict.fromkeys(length for c in fused for length, _ in c["maps_by_example"]):
        held = [f"{c['preset']} ({c['module']})" for c in fused if dict(c["maps_by_example"]).get(length, 0) >= 0.01]
        found = "no fused path holds an (h, n, n) tensor for each example."
        if held:
            found = f"these fused paths hold (h, n, n) tensors for each example: {', '.join(held)}."
        verdict += ["", f"At {length:,} tokens {found}"]
    return [*lines, *verdict, "", "![Peak memory over length](memory.svg)"]


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
    """docs/benchmarks.md."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` (`python -m benchmarks`) from `benchmarks.json`, which holds every repeat. A ratio is "
        "median over median",
        "of alternating runs in one process after a warm-up; in brackets the smallest and largest of a round. First "
        "and second are the two",
        "sides of the ratio: median (smallest–largest).",
    ]
    parts = whole["parts"]
    judged = [r for part in parts.values() for r in part["rows"] if r["met"] is not None]
    missed = [r for r in judged if not r["met"]]
    lines += ["", f"Budgets kept: {len(judged) - len(missed)} of {len(judged)}." + (" Missed:" if missed else "")]
    lines += [
        f"- {r['what']} ({r['shape']}): {r['ratio'] if r['second'] else r['first']['median']:.2f}, {budget(r)}"
        for r in missed
    ]
    for name, part in parts.items():
        m, v = part["machine"], part["versions"]
        where = m["accelerator"] or f"{m['cpu']}, {m['threads']} threads of {m['cores']} cores"
        lines += ["", f"## {TITLES[name]}", "", ABOUT[name].strip(), ""]
        lines.append(
            f"`{part['command']}`, {part['date']}, {part['scale']}, {where}, torch {v['torch']}, transformers "
            f"{v['transformers']}; "
            f"{part['seconds']:.0f} s, load of the machine {part['load'][0]} before and {part['load'][1]} after."
        )
        lines += ["", *table(part["rows"])]
        if part["curves"]:
            lines += (memory_table if name == "memory" else long_table)(part["curves"])
    return "\n".join(lines) + "\n"


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
WIDTH, HEIGHT, LEFT, TOP, GAP = 360, 300, 60, 40, 70


def memory_picture(curves: list[dict[str, Any]]) -> str:
    """Peak over length on logarithmic axes as SVG: a panel for each module, a colour for each preset, eager dashed."""
    modules = list(dict.fromkeys(c["module"] for c in curves))
    names = list(dict.fromkeys(c["preset"] for c in curves))
    lengths = sorted({n for c in curves for n in c["n"]})
    peaks = [value for c in curves for value in c["peak"]]
    low, high = math.floor(math.log10(min(peaks))), math.ceil(math.log10(max(peaks)))
    first, last = math.log2(lengths[0]), math.log2(lengths[-1])
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
