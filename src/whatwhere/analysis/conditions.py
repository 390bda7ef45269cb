"""Conditions H1 and H3 of GEOM's separation theorem (section 4), measured on a model: are mean embeddings of positions apart?

H1: ē_i ≠ ē_j, where ē_i is the mean word embedding at position i. H3: M(ē_i - ē_j) ≠ 0, M = W_Q W_Kᵀ of an attention head. Any sample
makes two means differ, and M, of rank d_head, annihilates most directions, so that "≠ 0" says little by itself: the smallest distances
stand beside what two halves of the documents differ by at the same position.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from ..geometry.distances import distances
from ..records import Record
from .who import Who

BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")  # model types whose weights have BERT's names


@dataclass(frozen=True, eq=False)
class Scores:
    """What the content term of attention scores is made of, float64.

    words: (V, d) word embeddings. query, key: (layers, heads, d_head, d) matrices that turn a vector into a head's query or key.
    """

    words: np.ndarray
    query: np.ndarray
    key: np.ndarray


def scores_of_model(model: Any) -> Scores:
    """The word embeddings and the query and key matrices of one of our models; of two streams those of the semantic one."""
    encoder = getattr(model, "encoder", model)
    heads = encoder.config.num_attention_heads
    matrices = [layer.attention.qkv[-1].weight.detach().double().numpy() for layer in encoder.layers]
    rows = heads * encoder.config.d_head
    cut = [(m[:rows], m[rows : 2 * rows]) for m in matrices]
    query, key = (np.stack([pair[i].reshape(heads, -1, pair[i].shape[1]) for pair in cut]) for i in (0, 1))
    return Scores(encoder.word_embeddings.weight.detach().double().numpy(), query, key)


def scores_of_folder(folder: str | Path) -> Scores:
    """The same of a transformers folder in BERT's form (BERT, RoBERTa, ELECTRA), read by name from its safetensors; no model is built.

    Raises:
        ValueError: no such folder, another kind of model, or weights that are missing, pickled or damaged.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ValueError(f"No model at {folder}: config.json is missing. Give a transformers folder.")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") not in BERT_LIKE:
        raise ValueError(f"{folder} is of type {config.get('model_type')!r}. Read here are {', '.join(BERT_LIKE)}, and models of ours.")
    layers, heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
    wanted = ["embeddings.word_embeddings.weight"]
    wanted += [f"encoder.layer.{i}.attention.self.{kind}.weight" for kind in ("query", "key") for i in range(layers)]
    found: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as weights:
                for stored in weights.keys():  # noqa: SIM118  (safe_open is no dict)
                    name = next((n for n in wanted if stored == n or stored.endswith(f".{n}")), None)
                    if name is not None:
                        found[name] = weights.get_tensor(stored).double().numpy()
        except SafetensorError as error:
            raise ValueError(f"{path} does not open ({error}). Use a complete copy of the model.") from None
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(f"{folder} has no safetensors weights named {missing[0]}. Save the whole model with safetensors.")
    words = found[wanted[0]]
    width = found[wanted[1]].shape[1]
    if words.shape[1] != width:
        raise ValueError(
            f"The words of {folder} are {words.shape[1]} wide, its attention {width}: a map stands between them, as in ELECTRA-small."
        )
    query, key = (np.stack([found[n].reshape(heads, -1, width) for n in wanted if f".{kind}." in n]) for kind in ("query", "key"))
    return Scores(words, query, key)


def condition_records(scores: Scores, p: Any, who: Who, *, halves: Sequence[tuple[Any, Any]] = ()) -> list[Record]:
    """Records `h1` and `h3`, the smallest distance over pairs of positions, and `h1.median`, `h3.median`.

    h1: of |ē_i - ē_j|. h3, by layer (0 = the first block's) and head: part "M" |M(ē_i - ē_j)|, as H3 states, and "M^T" |Mᵀ(ē_i - ē_j)|,
    which the proof of theorem 4 uses. With `halves` also `h1.floor` and `h3.floor`: the mean over positions and splits of the distance
    between the means of two halves at one position; a smallest distance below it is not shown to be more than chance. n is the number of
    positions. (M multiplies the word embeddings here, as in the paper, whose model has one layer and no norm; in later layers of a real
    model it meets hidden states.)

    Args:
        p: (m, V) distributions of tokens at positions, rows that sum to 1, sparse or dense.
        halves: distributions (m, V) of two halves of the documents at the same positions, for one or more splits.

    Raises:
        ValueError: the vocabularies of corpus and model differ, or fewer than two positions.
    """
    means = _means(p, scores)
    if len(means) < 2:
        raise ValueError(f"Positions are compared in pairs; got {len(means)}. Count more text, or lower the support that is asked for.")
    noise = [_means(a, scores) - _means(b, scores) for a, b in halves]
    record = partial(who.record, n=len(means))
    records = _smallest(means, noise, "h1", record)
    for layer, (queries, keys) in enumerate(zip(scores.query, scores.key, strict=True)):
        for head, (query, key) in enumerate(zip(queries, keys, strict=True)):
            for part, outer, inner in (("M", query, key), ("M^T", key, query)):
                # M = W_Q W_Kᵀ with the paper's W (d, d_head), which are our matrices transposed; rows are multiplied from the right.
                matrix = inner.T @ outer
                here = partial(record, layer=layer, head=head, part=part)
                records += _smallest(means @ matrix, [n @ matrix for n in noise], "h3", here)
    return records


def _means(p: Any, scores: Scores) -> np.ndarray:
    """ē (m, d): the mean word embedding at each position."""
    if p.shape[1] != len(scores.words):
        raise ValueError(
            f"The corpus is counted over {p.shape[1]} tokens, the model has {len(scores.words)}. Count with the model's own tokenizer."
        )
    return np.asarray(p @ scores.words)


def _smallest(vectors: np.ndarray, noise: Sequence[np.ndarray], metric: str, record: "partial[Record]") -> list[Record]:
    apart = distances(vectors)[np.triu_indices(len(vectors), 1)]
    records = [record(metric, float(apart.min())), record(f"{metric}.median", float(np.median(apart)))]
    if noise:
        floor = float(np.mean([np.linalg.norm(n, axis=1).mean() for n in noise]))
        records.append(record(f"{metric}.floor", floor))
    return records
