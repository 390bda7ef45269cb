"""The attention explorer: maps of every head in a few texts, packed so that a page of 512 tokens at paper size stays
below 10 MB.

A weight w arrives as one byte on the scale of `levels` (round(255 √w)). To fit a page, g neighbouring bytes become one
as long as √w <= 1 / g, the weight between them standing for all: the error is at most g √w / 255 and 1 / 255 (0.004)
anywhere, and smaller for small weights. The maps of one term in one layer are a chunk: bytes minus a neighbour's
(a filter as in PNG, whichever packs best), deflated, base64. The page inflates a chunk when it is first shown.
"""

import base64
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import entropy

from ..run.files import open_arrays
from .loaded_run import read_arrays, visible, visible_json

ATTENTION_BUDGET = 9_600_000  # bytes of packed maps in a page without plotly
STUDY_BUDGET = 4_600_000  # and in one with plotly and the figures of a study
MERGES = (1, 2, 3, 4, 6, 8)
BIN_WIDTHS = (1, 2, 4)  # bins of mean maps that may become one
_SMALL = 4_000_000  # bytes of maps that are packed at once to see whether they fit
LONGEST_NAME = 200  # characters of a token that the page carries
INTRO = (
    "Each small map is one head: queries from top to bottom, keys from left to right, stronger in colour where the "
    "weight is larger. A term has its own softmax, as if it alone made the attention; `total` is the softmax of the "
    "sum, which the model uses. Choose a head with the mouse or the arrow keys, a term with the keys 1 to 9."
)
_COLOURS = {name: name for name in ("semantic", "absolute", "relative")} | {"total": "combined", "mixed": "combined"}
_LABELS = {
    "mixed": "words + positions",
    **{"semantic_to_absolute": "words → positions", "absolute_to_semantic": "positions → words"},
    **{"semantic_to_relative": "words → distances", "relative_to_semantic": "distances → words"},
}


@dataclass(frozen=True, eq=False)
class ExplorerText:
    """Text of n tokens: term -> (L, h, n, n) bytes on the scale of its model's `levels`, `total` last."""

    title: str
    tokens: Sequence[str]
    maps: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class ExplorerModel:
    """Model in the explorer, with the same texts in the same order as the others.

    levels: (256,) weight of each byte, ascending. missing: why terms are missing, or empty. means: term -> (L, h, m, m)
    mean weight over the corpus in m bins of positions; profiles: term -> (L, h, lags) mean weight by key position minus
    query position; both may be empty.
    """

    name: str
    seed: int | None
    texts: Sequence[ExplorerText]
    levels: np.ndarray
    missing: str = ""
    means: Mapping[str, np.ndarray] = field(default_factory=dict)
    profiles: Mapping[str, np.ndarray] = field(default_factory=dict)
    lags: Sequence[int] = ()


@dataclass(frozen=True)
class Explorer:
    """Data of the explorer that a page carries.

    data: see `_describe`. chunks: base64 of deflated bytes. notes: sentences on what was left out.
    """

    data: dict[str, Any]
    chunks: Sequence[str]
    notes: Sequence[str] = ()
    title: str = "What does each head look at?"
    intro: str = INTRO


def merged(g: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the coarser scale that merges at most `g` neighbouring bytes.

    Returns:
        Index of each byte (256,) uint8, and first and last byte of each index (m, 2).
    """
    groups = [(0, 0)]
    while (byte := groups[-1][1] + 1) <= 255:
        width = max([m for m in MERGES if m <= g and (byte + m - 0.5) * m <= 255], default=1)
        groups.append((byte, byte + width - 1))
    index = np.repeat(np.arange(len(groups)), [last - first + 1 for first, last in groups])
    return index.astype(np.uint8), np.array(groups)


def weights_of(levels: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the weight that stands for each group of bytes, (k,): the middle of its first and last, on a square-root
    scale.

    levels: weight of each byte. groups: (k, 2) first and last byte.
    """
    return np.asarray(np.sqrt(np.asarray(levels, dtype=float)[groups]).mean(1) ** 2)


def filtered(maps: np.ndarray, kind: int) -> np.ndarray:
    """Subtract from maps (..., n, n) uint8, mod 256: nothing (kind 0), the row above (1), or the left neighbour of the
    row above, which has the same lag (2)."""
    rest = maps.copy()
    if kind == 1:
        rest[..., 1:, :] -= maps[..., :-1, :]
    if kind == 2:
        rest[..., 1:, 1:] -= maps[..., :-1, :-1]
    return rest


class _Chunks:
    """Packed bytes, equal ones once."""

    def __init__(self) -> None:
        self.packed: list[str] = []
        self._places: dict[bytes, int] = {}

    def add(self, raw: bytes) -> int:
        """Place of the packed bytes."""
        place = self._places.setdefault(hashlib.sha256(raw).digest(), len(self.packed))
        if place == len(self.packed):
            self.packed.append(base64.b64encode(_deflated(raw)).decode("ascii"))
        return place

    def add_maps(self, maps: np.ndarray) -> list[int]:
        """Place and filter of the maps (h, n, n) of one layer."""
        kind = _best_filter(maps)
        return [self.add(filtered(maps, kind).tobytes()), kind]


def _deflated(raw: bytes) -> bytes:
    # Of noisy maps matches longer than runs make the result larger (by 5 to 10 %), and their search takes most time.
    packer = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    return packer.compress(raw) + packer.flush()


def _best_filter(maps: np.ndarray) -> int:
    """The filter whose bytes have the least entropy, judged on two heads."""
    sample = maps[:: max(1, len(maps) // 2)][:2]
    return int(np.argmin([entropy(np.bincount(filtered(sample, kind).ravel())) for kind in range(3)]))


def _layers(models: Sequence[ExplorerModel]) -> list[np.ndarray]:
    """The maps (h, n, n) of every model, text, term and layer."""
    return [layer for m in models for text in m.texts for maps in text.maps.values() for layer in maps]


def _estimate(models: Sequence[ExplorerModel], index: np.ndarray) -> float:
    """About how many characters the maps will take: one head of each layer, packed."""
    sizes: dict[bytes, float] = {}
    for layer in _layers(models):
        key = hashlib.sha256(layer.tobytes()).digest()
        if key not in sizes:
            head = index[layer[len(layer) // 2]]
            packed = _deflated(filtered(head, _best_filter(head[None])).tobytes())
            sizes[key] = len(packed) * len(layer) * 4 / 3
    return sum(sizes.values())


def _size_of_corpus(models: Sequence[ExplorerModel]) -> int:
    """Characters of the mean maps and profiles of all models."""
    chunks = _Chunks()
    for model in models:
        _describe_corpus(model, chunks)
    return sum(map(len, chunks.packed))


def pack(models: Sequence[ExplorerModel], budget: int = ATTENTION_BUDGET) -> Explorer:
    """Pack one or several models into an explorer whose chunks fit into `budget` characters.

    The finest scale that fits is taken. Where none does, mean maps get half as many bins, then a quarter; then texts
    are left out from the last, then models from the last: `notes` says which.

    Raises ValueError: not even one text of one model fits, or there is none.
    """
    models = [m for m in models if m.texts]
    if not models:
        raise ValueError("The explorer has no text of any model. Give at least one.")
    models_left = list(models)
    texts_out = list[str]()
    models_out = list[str]()
    while True:
        is_large = sum(layer.nbytes for layer in _layers(models_left)) > _SMALL
        estimates = dict[int, float]()  # of the maps of texts alone
        for width in BIN_WIDTHS if any(model.means for model in models_left) else BIN_WIDTHS[:1]:
            coarse = [_with_coarser_means(model, width) for model in models_left]
            of_corpus = _size_of_corpus(coarse) if is_large else 0
            for g in MERGES:
                index, groups = merged(g)
                if is_large:
                    if g not in estimates:
                        estimates[g] = _estimate(models_left, index)
                    if of_corpus + estimates[g] > 1.02 * budget:
                        continue
                chunks = _Chunks()
                data = _describe(coarse, index, groups, chunks)
                if sum(map(len, chunks.packed)) <= budget:
                    notes = [*_left_out("text", texts_out), *_left_out("model", models_out)]
                    return Explorer(visible(data | {"step": g}), chunks.packed, notes)
        most = max(len(m.texts) for m in models_left)
        if most > 1:
            texts_out.append(f"“{next(m.texts[-1].title for m in models_left if len(m.texts) == most)}”")
            models_left = [replace(m, texts=m.texts[: most - 1]) for m in models_left]
        elif len(models_left) > 1:
            models_out.insert(0, f"`{models_left.pop().name}`")
        else:
            raise ValueError(_too_large(models_left[0], budget))


def _left_out(what: str, names: Sequence[str]) -> list[str]:
    """Return a sentence on texts or models that are left out; none where none is."""
    if len(names) < 2:
        return [f"The {what} {visible(name)} is left out: with it the page would be too large." for name in names]
    return [f"The {what}s {visible(', '.join(names))} are left out: with them the page would be too large."]


def _too_large(model: ExplorerModel, budget: int) -> str:
    size = _estimate([model], merged(MERGES[-1])[0])
    layers, heads, n, _ = model.texts[0].maps["total"].shape
    fits = max(1, int(n * (budget / size) ** 0.5 * 0.9))
    return (
        f"The maps of {layers} × {heads} heads for {n} tokens take {size / 1e6:.0f} MB, and a page holds "
        f"{budget / 1e6:.0f} MB. Shorten the text to about {fits} tokens."
    )


def _describe(
    models: Sequence[ExplorerModel], index: np.ndarray, groups: np.ndarray, chunks: _Chunks
) -> dict[str, Any]:
    """The explorer without its maps. A map is [chunk, filter] for each layer; `scales` are the largest values of mean
    maps."""
    described = []
    for model in models:
        terms = model.texts[0].maps
        shape = terms["total"].shape[:2]
        labels = {t: {"name": t, "label": _LABELS.get(t, t.replace("_", " "))} for t in terms}
        entry: dict[str, Any] = {
            "name": model.name if model.seed is None else f"{model.name}, seed {model.seed}",
            "layers": shape[0],
            "heads": shape[1],
            "missing": model.missing,
            "terms": [label | {"colour": _COLOURS.get(t, "untied")} for t, label in labels.items()],
            "weights": [float(f"{w:.4g}") for w in weights_of(model.levels, groups)],
            "texts": [_text(text, index, chunks) for text in model.texts],
        }
        entry |= _describe_corpus(model, chunks)
        described.append(entry)
    return {"models": described}


def _describe_corpus(model: ExplorerModel, chunks: _Chunks) -> dict[str, Any]:
    """Mean maps and profiles of a model over the corpus, of the terms that its texts have."""
    terms = model.texts[0].maps
    shape = terms["total"].shape[:2]
    means, profiles = (
        {t: of[t] for t in terms if t in of and of[t].shape[:2] == shape} for of in (model.means, model.profiles)
    )
    profiles = {t: p for t, p in profiles.items() if p.shape[2] == len(model.lags)}
    entry: dict[str, Any] = {}
    if means:
        entry["means"] = {t: _mean(maps, chunks) for t, maps in means.items()}
    if profiles:
        entry["lags"] = list(model.lags)
        entry["profiles"] = {t: chunks.add(np.nan_to_num(p).astype("<f4").tobytes()) for t, p in profiles.items()}
    return entry


def _text(text: ExplorerText, index: np.ndarray, chunks: _Chunks) -> dict[str, Any]:
    tokens = [t if len(t) <= LONGEST_NAME else t[: LONGEST_NAME - 1] + "…" for t in text.tokens]
    maps = {term: [chunks.add_maps(index[layer]) for layer in maps] for term, maps in text.maps.items()}
    return {"title": text.title, "tokens": tokens, "maps": maps}


def _with_coarser_means(model: ExplorerModel, width: int) -> ExplorerModel:
    """Average the mean maps of a model over `width` × `width` neighbouring bins; the last bins may have fewer."""
    if width == 1:
        return model
    means = {}
    for term, maps in model.means.items():
        starts = np.arange(0, maps.shape[2], width)
        totals, counts = (
            np.add.reduceat(np.add.reduceat(values, starts, axis=2), starts, axis=3)
            for values in (np.nan_to_num(maps), (~np.isnan(maps)).astype(float))
        )
        means[term] = totals / np.maximum(counts, 1)
    return replace(model, means=means)


def _mean(maps: np.ndarray, chunks: _Chunks) -> dict[str, Any]:
    """Mean maps as bytes round(255 √(v / largest)) of each head."""
    maps = np.nan_to_num(maps)
    largest = maps.max((2, 3))
    share = maps / np.where(largest > 0, largest, 1)[..., None, None]
    levels = np.rint(255 * np.sqrt(np.clip(share, 0, 1))).astype(np.uint8)
    return {
        "bins": maps.shape[2],
        "chunk": chunks.add(levels.tobytes()),
        "scales": [[float(f"{v:.4g}") for v in row] for row in largest],
    }


_AGAIN = "Delete it and write the texts of every model again."


def load_explorer(folder: str | Path, budget: int = STUDY_BUDGET) -> Explorer | None:
    """Load the explorer of a study's folder; None where the study has none.

    Files: explorer.json, arrays/explorer-*.npz, arrays/attention-*.npz.

    Where not even one text fits, it has no models, and its notes say so.

    Raises ValueError: a file is damaged or missing.
    """
    folder = Path(folder)
    entries = visible_json(folder / "explorer.json", list)
    if not entries:
        return None
    models = [_read_model(folder, entry) for entry in entries]
    try:
        return pack(models, budget)
    except ValueError as error:
        return Explorer({"models": []}, [], [str(error)])


def _read_model(folder: Path, entry: Any) -> ExplorerModel:
    index = folder / "explorer.json"
    try:
        name = str(entry["name"])
        seed = entry["seed"]
        texts = entry["texts"]
        terms = [str(t) for t in entry["terms"]]
        path = folder / "arrays" / Path(str(entry["file"])).name  # never outside the folder
        titles = [(str(t["title"]), [str(token) for token in t["tokens"]]) for t in texts]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{index} lacks {error} in an entry. {_AGAIN}") from error
    if not titles or "total" not in terms:
        raise ValueError(f"{index} has no text, or no term 'total', in the entry of {name}. {_AGAIN}")
    with open_arrays(path, "Delete explorer.json and write the texts again.") as arrays:
        levels = np.asarray(arrays["levels"], dtype=float)
        maps = [{t: arrays[f"{i}.{t}"] for t in terms} for i in range(len(titles))]
    read = [ExplorerText(title, tokens, of) for (title, tokens), of in zip(titles, maps, strict=True)]
    for text in read:
        n = len(text.tokens)
        shape = text.maps["total"].shape
        wrong = levels.shape != (256,) or not np.isfinite(levels).all()
        for term, of in text.maps.items():
            if wrong or of.dtype != np.uint8 or of.shape != (*shape[:2], n, n) or not of.size:
                expected = f"bytes of shape (layers, heads, {n}, {n})"
                raise ValueError(
                    f"{path}: {term} is {of.dtype} {of.shape}; {index} says {expected}. Use a complete copy."
                )
    profile = path.with_name(path.name.replace("explorer-", "attention-", 1))
    more = read_arrays(profile) if profile.is_file() else {}

    def named(head: str, dimensions: int) -> dict[str, np.ndarray]:
        return {k.removeprefix(head): v for k, v in more.items() if k.startswith(head) and v.ndim == dimensions}

    lags = more.get("lags", np.zeros(0))
    if lags.dtype.kind != "f" or lags.ndim != 1 or not np.isfinite(lags).all():
        raise ValueError(f"{profile} has no lags that are whole numbers. Delete it and write the texts again.")
    around = named("mean.", 4), named("profile.", 3), [int(lag) for lag in lags]
    return ExplorerModel(name, seed, read, levels, str(entry.get("missing") or ""), *around)
