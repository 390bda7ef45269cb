"""`whatwhere attention`: what every head of a model looks at in given texts, on one page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..analysis.record_context import RecordContext
from ..analysis.texts import LEVELS, TextMaps, repeated_text, shown_tokens, text_maps
from ..models.open import OpenModel, name_and_seed, open_model
from ..report.explorer import ExplorerModel, ExplorerText
from ..report.pages import write_attention_page
from ..run.reference import REFERENCE
from .machine import versions
from .training_records import learning_records, undertrained_message

Text = tuple[str, str]  # title and words


def run_attention(
    model: str, out: Path, texts: Sequence[Text], *, repeat: bool = False, truncate: bool = False
) -> dict[str, Any]:
    """Read texts with a model, draw the page of its attention, and return what `whatwhere attention` prints.

    Args:
        model: folder of a model, a name on the Hub, or `reference`.
        out: file of the page.
        texts: title and words of each text.
        repeat: add a made-up text of the shape A + B + A; without `texts` it is the only one.
        truncate: cut texts that are longer than the model reads; the made-up text is always cut.

    Raises:
        ValueError: no model, or a text that it cannot read.
    """
    made_up = [repeated_text()] if repeat or not texts else []
    opened = open_model(model, attention="eager")
    tokenizer = opened.tokenizer
    texts_read = []
    maps = None
    for title, words in (*texts, *made_up):
        may_cut = truncate or (title, words) in made_up
        ids = _token_ids(opened, (title, words), may_cut, model)
        maps = text_maps(opened.model, ids, shown_tokens(tokenizer, ids), title)
        texts_read.append(ExplorerText(title, maps.tokens, maps.levels()))
    assert maps is not None
    name = _name_on_page(model)
    undertrained = undertrained_message(learning_records(tokenizer, opened.folder, RecordContext(name)), name)
    facts = _facts_of_page(model, opened, maps, undertrained)
    explored = ExplorerModel(name, None, texts_read, LEVELS, maps.missing)
    path = write_attention_page(out, explored, facts=facts, versions=list(versions().items()))
    return {
        "report": str(path),
        "tokens": [len(t.tokens) for t in texts_read] if len(texts_read) > 1 else len(texts_read[0].tokens),
        "terms": list(maps.weights),
        "missing": maps.missing or None,
        "undertrained": undertrained or None,
        "layers": len(maps.weights["total"]),
        "heads": maps.weights["total"].shape[1],
        "bytes": path.stat().st_size,
    }


def _token_ids(opened: OpenModel, text: Text, may_cut: bool, model: str) -> Any:
    """Return the ids of a text's tokens; refuse a text that is too long, or cut it where `may_cut`."""
    title, words = text
    tokenizer = opened.tokenizer
    limit = opened.max_tokens
    ids = tokenizer(words, verbose=False)["input_ids"]
    if not len(ids) or len(ids) <= tokenizer.num_special_tokens_to_add():
        raise ValueError(f"The text “{title}” has no token. Give some words.")
    if limit is None or len(ids) <= limit:
        return ids
    if not may_cut:
        raise ValueError(
            f"{model} has {limit} positions; the text “{title}” has {len(ids)} tokens. Shorten it, or cut it "
            "there: --truncate."
        )
    return tokenizer(words, truncation=True, max_length=limit, verbose=False)["input_ids"]


def _facts_of_page(model: str, opened: OpenModel, maps: TextMaps, undertrained: str) -> list[tuple[str, str]]:
    """Return the rows of the page's table of facts; those without a value are left out."""
    source_kind = "Folder" if Path(model).is_dir() else "Hub name"
    encoder = opened.model
    facts = [
        ("Shipped model" if model == REFERENCE else source_kind, model),
        ("Class", type(encoder).__name__),
        ("Preset", str(getattr(encoder.config, "preset", "") or "")),
        ("Positions", str(opened.max_tokens or "any")),
        ("Terms", ", ".join(maps.weights)),
        ("Learned", undertrained),
    ]
    return [fact for fact in facts if fact[1]]


def _name_on_page(model: str) -> str:
    """Return the name of a model for a page: the name of its folder, with the seed of a study's model."""
    path = Path(model).resolve() if Path(model).is_dir() else Path(model)
    name, seed = name_and_seed(path)
    return name if seed is None else f"{name}, seed {seed}"
