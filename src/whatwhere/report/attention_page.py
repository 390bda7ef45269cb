"""A page that shows what every head of one model looks at in one or several texts: the explorer alone, without
plotly."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .explorer import ATTENTION_BUDGET, ExplorerModel, pack
from .numbers import count
from .page import How, Page, write_page


def write_attention_page(
    path: Path, model: ExplorerModel, *, facts: Sequence[tuple[str, str]] = (), versions: Sequence[tuple[str, str]] = ()
) -> Path:
    """Write the page to `path`, whole or not at all; returns the path.

    facts: name and value of what should be said of the model. versions: packages and their numbers.

    Raises:
        ValueError: there is no text, or not even one fits a page (10 MB).
    """
    explorer = replace(pack([model], ATTENTION_BUDGET), title="Heads and terms")
    shape = next(iter(model.texts[0].maps.values())).shape
    terms = [name for name in model.texts[0].maps if name != "total"]
    lengths = [len(text.tokens) for text in model.texts]
    tokens = f"{lengths[0]} tokens" if len(set(lengths)) == 1 else f"{min(lengths)} to {max(lengths)} tokens"
    step = explorer.data["step"]
    page = Page(
        title=f"What each head of {model.name} looks at",
        summary=[count(shape[0], "layer"), count(shape[1], "head"), count(len(lengths), "text"), tokens],
        explorer=explorer,
        how=How(
            words=[
                "Attention is computed block by block from the scores before softmax, in at least single precision, "
                "without dropout and "
                "without masked tokens. " + (_sum_of(terms) if terms else model.missing),
                f"A weight w of this page is wrong by at most 0.004, and by at most √w · {step} / 255 where it is "
                "small. Rows are queries, "
                "columns are keys; tokens count from 0, layers from 1, heads from 0.",
            ],
            facts=[("Model", list(facts))] if facts else (),
            versions=versions,
        ),
    )
    return write_page(path, page)


def _sum_of(terms: Sequence[str]) -> str:
    return (
        f"The scores are the sum of {count(len(terms), 'term')} ({', '.join(f'`{t}`' for t in terms)}); each has its "
        "own softmax over all "
        "keys, as in figure 3 of DSTG, and `total` is the softmax of the sum."
    )
