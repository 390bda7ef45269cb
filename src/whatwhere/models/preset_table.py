"""The table of `whatwhere presets`: facts and costs of the package's presets, stored, because counting takes seconds.

`python -m whatwhere.models.explain` writes presets.jsonl, a line for each size and preset; a test counts them again.
"""

import ast
import json
from pathlib import Path
from typing import Any

from ..records.families import FAMILIES
from ..run.errors import suggest_name
from ..run.text_tables import table_lines

KEPT = Path(__file__).with_name("presets.jsonl")
VOCABULARY = 30522  # default of `EncoderConfig`, with which the costs are counted


def kept_rows(size: str) -> list[dict[str, Any]]:
    """Read the stored rows of `explain.preset_rows` for the package's presets at a size; none for an unknown size."""
    rows = map(json.loads, KEPT.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if row.pop("size") == size]


def check_preset(name: str, size: str) -> None:
    """Refuse a preset or size that the package does not have, in the words of `encoder.preset`, without loading torch.

    Raises:
        ValueError: an unknown name, or an unknown size.
    """
    rows = list(map(json.loads, KEPT.read_text(encoding="utf-8").splitlines()))
    names = list(dict.fromkeys(row["name"] for row in rows))
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    if name not in names:
        all_names = f"All names: {', '.join(names)}"
        hint = suggest_name(name, names)
        raise ValueError(f"Unknown preset {name[:60]!r}.{hint} {all_names}. Load your own with --scheme FILE.")
    if size not in sizes:
        raise ValueError(f"Unknown size {size[:60]!r}.{suggest_name(size, sizes)} Sizes: {', '.join(sizes)}.")


def encoder_fields() -> list[str]:
    """List the fields of `EncoderConfig`, read from its source, as importing it would load torch."""
    tree = ast.parse((Path(__file__).parents[1] / "encoder" / "config.py").read_text(encoding="utf-8"))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "EncoderConfig")
    return [node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]


def rows_as_text(rows: list[dict[str, Any]], size: str) -> str:
    """Format rows of presets as the table that `whatwhere presets` prints, grouped by family."""
    table = [["name", "streams", "terms", "parameters", "operations", "longest", "backends", "source"]]
    for r in rows:
        streams = " + ".join(map(str, r["streams"]))
        counts = [f"{r['parameters']:,}", f"{r['operations']:,.0f}", str(r["longest"] or "any")]
        table.append([r["name"], streams, " + ".join(r["terms"]), *counts, " ".join(r["backends"]), r["source"]])
    head, *lines_of_rows = table_lines(table, right=(3, 4, 5), indent=2)
    lines = [head]
    for family in dict.fromkeys(r["family"] for r in rows):
        lines.append(FAMILIES[family])
        lines += [line for r, line in zip(rows, lines_of_rows, strict=True) if r["family"] == family]
    read = f"{rows[0]['length']} tokens, 15 % of them predicted"
    trained = "those that train it (flex_attention: on CUDA only)"
    lines += [
        f"Size {size}, vocabulary {VOCABULARY:,}. operations: of a forward pass over {read}, per token.",
        f"longest: tokens of an input. backends: {trained}. whatwhere explain NAME says more.",
    ]
    return "\n".join(lines)
