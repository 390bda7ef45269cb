"""The table of `whatwhere presets`: facts and costs of the package's presets, stored, because counting takes seconds.

`python -m whatwhere.models.explain` writes presets.jsonl, a line for each size and preset; a test counts them again.
"""

import json
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("presets.jsonl")
VOCABULARY = 30522  # default of `EncoderConfig`, with which the costs are counted


def kept_rows(size: str) -> list[dict[str, Any]]:
    """Read the stored rows of `explain.preset_rows` for the package's presets at a size; none for an unknown size."""
    rows = map(json.loads, KEPT.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if row.pop("size") == size]


def rows_as_text(rows: list[dict[str, Any]], size: str) -> str:
    """Format rows of presets as the table that `whatwhere presets` prints."""
    left = ("name", "streams", "terms")
    right = ("parameters", "operations", "longest")
    table = [{key: key for key in (*left, *right, "backends", "source")}]
    for r in rows:
        joined = {"streams": " + ".join(map(str, r["streams"])), "terms": " + ".join(r["terms"])}
        counted = {"parameters": f"{r['parameters']:,}", "operations": f"{r['operations']:,.0f}"}
        rest = {"longest": str(r["longest"] or "any"), "backends": " ".join(r["backends"])}
        table.append({**r, **joined, **counted, **rest})
    width = {key: max(len(r[key]) for r in table) for key in table[0]}
    lines = []
    for r in table:
        cells = [r[key].ljust(width[key]) for key in left] + [r[key].rjust(width[key]) for key in right]
        lines.append("  ".join([*cells, r["backends"].ljust(width["backends"]), r["source"]]))
    read = f"{rows[0]['length']} tokens, 15 % of them predicted"
    trained = "those that train it (flex_attention: on CUDA only)"
    lines += [
        f"Size {size}, vocabulary {VOCABULARY:,}. operations: of a forward pass over {read}, per token.",
        f"longest: tokens of an input. backends: {trained}. whatwhere explain NAME says more.",
    ]
    return "\n".join(lines)
