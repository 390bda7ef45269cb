"""Terms of a comparison: differences between models beside their position schemes, and the rates of their trainings.

A model is an entry of study.json: `name`, `config` (its encoder's), `training` (its pretraining's settings), `summary`.
Settings without a record are not compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

Entry = Mapping[str, Any]

APART = 0.03  # share by which costs must differ to be told apart
NAMED = 3  # models that are named one by one

# Keys and their names. Of the encoder; in `_settings` beside them: its width.
ENCODER = {
    "residual": "residual",
    "block": "block",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "dropout": "dropout",
    "norm_eps": "epsilon of norms",
    "initializer": "initial weights",
    "table_start": "start of the table",
    "position_initializer_range": "spread of the table's start",
}
TRAINING = {  # beside them: the tokens
    "length": "length of rows",
    "join": "join of rows",
    "pieces": "pieces of documents",
    "shift": "shift of positions",
    "subset": "random positions",
    "first_length": "length curriculum",
    "entropy_weight": "entropy penalty",
    "mask_rate": "share of masked tokens",
    "masking": "masks",
}
RATES = {
    "learning_rate": "learning rate",
    "matrix_learning_rate_scale": "hidden matrices ×",
    "embedding_learning_rate_scale": "words ×",
    "table_learning_rate_scale": "position table ×",
    "bias_learning_rate_scale": "biases ×",
    "weight_decay": "weight decay",
    "embedding_weight_decay": "decay of words",
    "table_weight_decay": "decay of the position table",
    "bias_weight_decay": "decay of biases",
    "optimizer": "optimizer",
    "muon_scale": "size of Muon's updates",
    "matrix_steps": "steps of the matrices' rate",
    "schedule": "schedule",
    "warmup_steps": "warm-up steps",
    "minimum_learning_rate_ratio": "last rate / peak",
    "batch_size": "batch",
    "betas": "β",
    "epsilon": "ε of AdamW",
    "clip": "clipping",
}
# Keys about a part that not every model has: the fields of the encoder that name such a part.
_OF_PARTS = {
    "position_initializer_range": ("absolute",),
    "table_learning_rate_scale": ("absolute",),
    "table_weight_decay": ("absolute",),
    "bias_learning_rate_scale": ("relative", "pair_terms", "untied"),
    "bias_weight_decay": ("relative", "pair_terms", "untied"),
}


def unequal(entries: Sequence[Entry]) -> str:
    """Return a sentence on the differences between models beside their position schemes; "" without a recorded
    difference."""
    models = _models(entries)
    differences = [_difference(name, values) for name, values in _settings(models, "config", ENCODER).items()]
    differences += [_difference("width", _known({m: _width(e) for m, e in models.items()}))]
    differences += [_parameters(_known({m: _parameters_of(e) for m, e in models.items()}))]
    differences += [_difference(name, values) for name, values in _settings(models, "training", TRAINING).items()]
    differences += [_difference("tokens", _known({m: _tokens(e) for m, e in models.items()}))]
    differences += [_difference("precision", _precisions(entries))]
    differences += ["rates"] if any(_rates(models)) else []
    items = list(filter(None, differences))
    return f"The models differ in more than their position schemes: {'; '.join(items)}." if items else ""


def rates(entries: Sequence[Entry]) -> str:
    """Return a sentence on the rates: one recipe for all models, or the differences.

    A single trained model has none: "".
    """
    models = {name: e for name, e in _models(entries).items() if _part(e, "training").get("learning_rate") is not None}
    if len(models) < 2:
        return ""
    if differing := list(filter(None, _rates(models))):
        return f"Rates: {'; '.join(differing)}."
    return "Rates: one recipe for all models; at rates of its own another scheme may be ahead."


def _rates(models: Mapping[str, Entry]) -> list[str]:
    return [_difference(name, values) for name, values in _settings(models, "training", RATES).items()]


def _models(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the models by name, each by its first training."""
    models: dict[str, Entry] = {}
    for entry in entries:
        if entry.get("name"):
            models.setdefault(str(entry["name"]), entry)
    return models


def _part(entry: Entry, name: str) -> Mapping[str, Any]:
    """Return a mapping in an entry; empty where there is none."""
    part = entry.get(name)
    return part if isinstance(part, Mapping) else {}


def _settings(models: Mapping[str, Entry], part: str, keys: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return name of every key -> model -> its value, of the models that have the part which the key is about."""
    settings = {}
    for key, name in keys.items():
        having = {m: e for m, e in models.items() if key in _part(e, part) and is_about(key, _part(e, "config"))}
        settings[name] = {m: _word(_part(e, part)[key]) for m, e in having.items()}
    return settings


def is_about(key: str, config: Mapping[str, Any]) -> bool:
    """Tell if a key applies to an encoder: keys of a table or a bias need one, and a start needs a learned table.

    config: fields of the encoder.
    """
    if key == "table_start":
        return config.get("absolute") == "learned"
    return key not in _OF_PARTS or any(config.get(part) not in (None, "none") for part in _OF_PARTS[key])


def _word(value: Any) -> str:
    """Return a value as a reader sees it: numbers short, of a path the last name."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) or value < 10_000 else f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_word, value))
    return PurePath(str(value)).name


def _known(values: Mapping[str, float | None]) -> dict[str, Any]:
    return {m: v for m, v in values.items() if v is not None}


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _width(entry: Entry) -> float | None:
    """Return the columns of words: in NeoBERT's block a position stream comes on top of them, in BERT's it
    is one part."""
    config = _part(entry, "config")
    width = _number(config.get("hidden_size"))
    of_positions = _number(config.get("position_size"))
    return width if width is None or config.get("block") != "neobert" else width - (of_positions or 0)


def _parameters_of(entry: Entry) -> float | None:
    return _number(_part(entry, "summary").get("parameters"))


def _tokens(entry: Entry) -> float | None:
    """Return the tokens of a training by its settings."""
    counted = [_number(_part(entry, "training").get(key)) for key in ("steps", "batch_size", "length")]
    steps, batch, length = counted
    return None if steps is None or batch is None or length is None else steps * batch * length


def _precisions(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the arithmetic of each model's trainings; `auto` chooses it by the processor, for each training anew."""
    by_model: dict[str, set[str]] = {}
    for entry in entries:
        if entry.get("name") and (precision := _part(entry, "summary").get("precision")):
            by_model.setdefault(str(entry["name"]), set()).add(str(precision))
    return {model: " and ".join(sorted(precisions)) for model, precisions in by_model.items()}


def _parameters(values: Mapping[str, float]) -> str:
    """Name the models with fewest and most parameters, where these are apart."""
    if not values:
        return ""
    few, many = (choose(values, key=lambda m: values[m]) for choose in (min, max))
    if values[many] <= (1 + APART) * values[few]:
        return ""
    return f"parameters (`{many}` {values[many] / values[few] - 1:.0%} more than `{few}`)"


def _difference(name: str, values: Mapping[str, Any]) -> str:
    """Name the models of each value, "" where all have one; the commonest stands last, for "others" if several models
    have it."""
    groups: dict[str, list[str]] = {}
    for model, value in values.items():
        groups.setdefault(value if isinstance(value, str) else _word(value), []).append(model)
    if len(groups) < 2:
        return ""
    *rest, commonest = sorted(groups, key=lambda value: len(groups[value]))
    of_rest = [f"{_listed(groups[value])} {value}" for value in rest]
    most = "others" if len(groups[commonest]) > 1 else _listed(groups[commonest])
    return f"{name} ({', '.join([*of_rest, f'{most} {commonest}'])})"


def _listed(models: Sequence[str]) -> str:
    named = [f"`{model}`" for model in models]
    if len(named) > NAMED:
        return f"{', '.join(named[:NAMED])} and {len(named) - NAMED} more"
    return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else named[0]
