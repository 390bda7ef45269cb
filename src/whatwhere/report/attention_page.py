"""A page that shows what every head of one model looks at in one or several texts: the explorer alone, without
plotly."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .explorer import ATTENTION_BUDGET, ExplorerModel, pack
from .numbers import count
from .page import How, Page, write_page

_SUM = (
    "The scores are the sum of {}; each has its own softmax over all keys, as in figure 3 of DSTG, and `total` is the "
    "softmax of the sum."
)


def write_attention_page(
    path: Path, model: ExplorerModel, *, facts: Sequence[tuple[str, str]] = (), versions: Sequence[tuple[str, str]] = ()
) -> Path:
    """Write the page to `path`, whole or not at all; returns the path.

    facts: name and value of what should be said of the model. versions: packages and their numbers.

    Raises:
        ValueError: there is no text, or not even one fits a page (10 MB).
    """
    explorer = replace(pack([model], ATTENTION_BUDGET), title="Heads and terms")
    first = model.texts[0].maps
    layers, heads = next(iter(first.values())).shape[:2]
    lengths = sorted({len(text.tokens) for text in model.texts})
    tokens = f"{lengths[0]} tokens" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]} tokens"
    terms = [name for name in first if name != "total"]
    words = [
        "Attention is computed block by block from the scores before softmax, in at least single precision, without "
        f"dropout and without masked tokens. {_SUM.format(_terms(terms)) if terms else model.missing}",
        f"A weight w of this page is wrong by at most 0.004, and by at most √w · {explorer.data['step']} / 255 where "
        "it is small. Rows are queries, columns are keys; tokens count from 0, layers from 1, heads from 0.",
    ]
    page = Page(
        title=f"What each head of {model.name} looks at",
        summary=[count(layers, "layer"), count(heads, "head"), count(len(model.texts), "text"), tokens],
        explorer=explorer,
        how=How(words, facts=[("Model", list(facts))] if facts else (), versions=versions),
    )
    return write_page(path, page)


def _terms(names: Sequence[str]) -> str:
    return f"{count(len(names), 'term')} ({', '.join(f'`{name}`' for name in names)})"
