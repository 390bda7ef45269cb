"""What an encoder is, in words and numbers: its resolved configuration, the formula of its scores, costs, backends."""

import json
from typing import Any

import torch

from ..encoder import PRESETS, SIZES, SOURCES, EncoderConfig, EncoderForMaskedLM, preset
from ..encoder.attention import BACKENDS, check_backend
from ..files import write_text
from .costs import Costs, costs
from .finite import not_finite
from .preset_table import KEPT

TRIED = 64  # most tokens of a text that an own scheme is tried on
SIZE_FIELDS = (
    *("vocab_size", "hidden_size", "position_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "max_position_embeddings"),
)


def differing(config: EncoderConfig) -> dict[str, Any]:
    """The sizes, and every other field whose value is not `EncoderConfig`'s default."""
    plain = EncoderConfig()
    keys = [key for key in EncoderConfig.__annotations__ if hasattr(plain, key) and key not in ("model_type", "preset")]
    shown = [key for key in keys if key in SIZE_FIELDS or getattr(config, key) != getattr(plain, key)]
    return {key: getattr(config, key) for key in shown}


def _products(config: EncoderConfig) -> dict[str, tuple[str, str]]:
    """How query i and key j of each kind are written."""
    if config.position_size:
        return {"semantic": ("q_sem_i", "k_sem_j"), "absolute": ("q_pos_i", "k_pos_j")}
    words = ("(R_i q_i)", "(R_j k_j)") if config.rotation != "none" else ("q_i", "k_j")
    return {"semantic": words, "mixed": words, "absolute": ("(p_i U_Q)", "(p_j U_K)")}


def formula(config: EncoderConfig, terms: tuple[str, ...]) -> str:
    """The score of query i and key j as one line; `terms` are the names that `attention_terms` gives, and each has its
    place.

    q, k: queries and keys of a head, from words (and positions added to them), or from a stream; p: the position table.
    """
    written, reset = _products(config), config.reset != "none"
    products, biases = [], []
    for name in terms:
        if name == "relative":
            bias = f"{config.relative}(j - i)"
            bias += " or a value of its own if i or j is special" if config.relative_special else ""
            biases.append(f"reset[{bias}]" if reset else bias)
        elif name == "absolute" and config.untied == "free":
            biases.append("reset[free(i, j)]" if reset else "free(i, j)")
        else:
            query, _, key = name.partition("_to_")
            product = f"{written[query][0]}·{written[key or query][1]}"
            if name == "absolute" and config.absolute_special:
                product += "·[i, j not special]"
            products.append(f"reset[{product}]" if name == "absolute" and reset else product)
    line = " + ".join([f"({' + '.join(products)}) / √{round(config.scale**-2)}", *biases])
    notes = ["q, k from words with positions added"] if "mixed" in terms else []
    if reset:
        how = ", once for the sum" if config.reset == "sum" else ", for each apart"
        notes.append("reset: θ1 if i is [CLS], θ2 if only j is" + (how if len(terms) > 2 else ""))
    if "relative" in terms:
        notes.append("one bias for all layers" if config.relative_shared else "a bias in each layer")
    return f"score(i, j) = {line}" + (f"   ({'; '.join(notes)})" if notes else "")


def trains_with(config: EncoderConfig, device: torch.device) -> list[str]:
    """The attention backends that can train this encoder on such a device."""
    return [name for name in BACKENDS if not _refusal(name, device, True, config.dropout)]


def _refusal(name: str, device: torch.device, training: bool, dropout: float) -> str:
    try:
        check_backend(name, device, training, dropout)
    except ValueError as error:
        return str(error)
    return ""


def backend_notes(config: EncoderConfig, device: torch.device) -> dict[str, str]:
    """For each attention backend, what runs on this device, and why."""
    biased = config.relative != "none" or config.untied in ("position", "free")
    kernel = "torch's scaled_dot_product_attention"
    own = "our own function (encoder/biased.py)"
    if device.type == "cpu" and biased:
        sdpa = f"{own}: on a CPU {kernel} leaves its fast path for a bias that is trained"
    elif device.type == "cpu":
        both = f"{kernel}; with bfloat16 or dropout of {config.dropout} {own}, because both are slow there on a CPU"
        sdpa = both if config.dropout else f"{kernel}; in bfloat16 {own}"
    else:
        sdpa = kernel + (", the bias as its mask" if biased else "")
    flex = "torch's FlexAttention" + (", the bias looked up inside the kernel" if biased else "")
    notes = {"eager": "the specification: each term a map (h, n, n) in memory", "sdpa": sdpa, "flex_attention": flex}
    for name in BACKENDS:
        refused = _refusal(name, device, True, config.dropout)
        if refused:
            without = _refusal(name, device, False, 0.0)
            notes[name] = refused if without else f"{notes[name]}; not in training: {refused}"
    return notes


def trial(config: EncoderConfig, length: int) -> dict[str, Any]:
    """One forward and one backward pass of a new model over two made-up texts, all tokens predicted: its loss, and the
    parameters that are not finite or whose gradient is not; empty if there are none."""
    tokens = min(length, TRIED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = EncoderForMaskedLM(config)
        ids = torch.randint(config.vocab_size, (2, tokens))
    loss = model.train()(input_ids=ids, labels=ids).loss
    loss.backward()
    return {"tokens": tokens, "loss": float(loss.detach()), "not_finite": not_finite(model)}


def explain(
    config: EncoderConfig, length: int | None, labelled: float, backend: str, tried: bool = False
) -> dict[str, Any]:
    """Everything `whatwhere explain` prints; with `tried`, what `trial` finds, for schemes that nobody has trained yet.

    Raises:
        ValueError: the length is not possible, or the costs cannot be counted (see `costs`).
    """
    found: Costs = costs(config, length, labelled)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        "preset": config.preset,
        "source": SOURCES.get(config.preset),
        "config": differing(config),
        "streams": list(config.stream_sizes),
        "terms": list(found.terms),
        "formula": formula(config, found.terms),
        "longest": config.longest,
        "length": found.length,
        "labelled": found.labelled,
        "parameters": {**found.parameters, "total": found.total_parameters},
        "operations": {**found.operations, "total": found.total_operations},
        "device": device.type,
        "backend": backend,
        "backends": backend_notes(config, device),
        "trial": trial(config, found.length) if tried else None,
    }


def as_text(facts: dict[str, Any]) -> str:
    """The facts of `explain` for a reader."""
    name = facts["preset"] or "an encoder without a preset"
    rows, numbered = facts["longest"], "any length; positions are not numbered by a table"
    longest = f"{rows} tokens (rows of the table)" if rows else numbered
    width = max(map(len, [*facts["config"], *facts["parameters"]])) + 2
    return "\n".join(
        [
            name + (f" ({facts['source']})" if facts["source"] else ""),
            "",
            "Configuration: sizes, and what differs from the defaults of EncoderConfig",
            *(f"  {key:{width}}{value}" for key, value in facts["config"].items()),
            f"  {'streams':{width}}{' + '.join(map(str, facts['streams']))}",
            f"  {'longest input':{width}}{longest}",
            "",
            "Scores of attention, i the query and j the key",
            f"  {facts['formula']}",
            f"  terms: {', '.join(facts['terms'])}",
            "",
            f"Costs; operations a token of a forward pass over {facts['length']} tokens, {facts['labelled']:.0%} of "
            "them predicted",
            f"  {'part':{width}}{'parameters':>14}{'operations':>14}",
            *(
                f"  {part:{width}}{count:>14,}{facts['operations'][part]:>14,.0f}"
                for part, count in facts["parameters"].items()
            ),
            "",
            f"Attention on this machine ({facts['device']}): {facts['backend']} runs; output_attentions=True takes "
            "eager",
            *(f"  {key:16}{note}" for key, note in facts["backends"].items()),
            *_tried(facts["trial"]),
        ]
    )


def _tried(facts: dict[str, Any] | None) -> list[str]:
    if facts is None:
        return []
    pass_of = f"One forward and backward pass over 2 texts of {facts['tokens']} tokens: loss {facts['loss']:.3f}"
    if facts["not_finite"]:
        return ["", f"{pass_of}, NOT FINITE: {facts['not_finite']}. A training would stop at its first step."]
    return ["", f"{pass_of}, all gradients finite"]


def preset_rows(size: str) -> list[dict[str, Any]]:
    """What each preset is and costs at a size; `backends` are those that train it where there is a CUDA device.

    Raises:
        ValueError: unknown size, or a preset of an own scheme that cannot be built.
    """
    rows = []
    for name in PRESETS:
        try:
            config = preset(name, size)
            cost = costs(config)
        except ValueError as error:
            raise ValueError(f"The preset {name} cannot be built: {error}") from None
        rows.append(
            {
                "name": name,
                "block": config.block,
                "streams": list(config.stream_sizes),
                "terms": list(cost.terms),
                "parameters": cost.total_parameters,
                "operations": cost.total_operations,
                "length": cost.length,
                "longest": config.longest,
                "backends": trains_with(config, torch.device("cuda")),
                "source": SOURCES[name],
            }
        )
    return rows


if __name__ == "__main__":
    kept = [json.dumps({"size": size, **row}, ensure_ascii=False) for size in SIZES for row in preset_rows(size)]
    write_text(KEPT, "\n".join(kept) + "\n")
