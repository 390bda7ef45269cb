"""Facts about an encoder, in words and numbers: its configuration, the formula of its scores, its costs, backends.

Costs are read off the model itself, built on torch's meta device (shapes without numbers): they hold for any scheme.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.initialization import no_init_weights

from ..encoder import PRESETS, SIZES, SOURCES, EncoderConfig, EncoderForMaskedLM, preset
from ..encoder.attention import BACKENDS, check_backend
from ..encoder.pair_terms import PairTerms
from ..encoder.registry import PAIR_TERMS, failing_line, scheme_files
from ..records.families import family_of
from ..run.errors import one_line
from ..run.files import write_text
from ..run.text_tables import table_lines
from .preset_table import KEPT
from .tensors import default_device, not_finite

TRIED = 64  # most tokens of a text that a user's scheme is tried on
SIZE_FIELDS = (
    "vocab_size",
    "hidden_size",
    "position_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
# Which part a module belongs to, by the first of these names that its path holds.
_PART_OF = {
    "word_embeddings": "word_embedding",
    "position_embeddings": "position_table",
    "untied": "positional_terms",
    "relative": "positional_terms",
    "pair_terms": "positional_terms",
    "distance_vectors": "position_table",
    "qkv": "attention_projections",
    "out": "attention_projections",
    "attention": "attention_scores",
    "feed_forward": "feed_forward",
    "attention_norm": "norms",
    "feed_forward_norm": "norms",
    "embedding_norm": "norms",
    "head": "vocabulary_head",
    "norm": "norms",
}
PARTS = tuple(dict.fromkeys(_PART_OF.values()))
# In reading order.
TERMS = tuple(
    "semantic mixed semantic_to_absolute absolute_to_semantic absolute semantic_to_relative relative_to_semantic "
    "relative".split()
)
POSITION_TERMS = ("absolute", "relative")  # those that depend on positions and not on content


@dataclass(frozen=True)
class Costs:
    """Numbers of parameters and of operations of an encoder, part by part, as `costs` counts them.

    parameters: numbers of each part; shared ones count once (a tied vocabulary head has its bias only).
    operations: multiplications and additions of each part's matrix products, per token of a forward pass over one row
        of `length` tokens of which the share `labelled` is predicted; what is not a matrix product (norms, look-ups,
        softmax) is not counted.
    terms: names of the scheme's terms in the attention scores, in the order of `TERMS`.
    """

    parameters: dict[str, int]
    operations: dict[str, float]
    length: int
    labelled: float
    terms: tuple[str, ...]

    def of(self, what: str) -> float:
        """Sum "parameters" or "operations" over all parts of the encoder."""
        return sum((self.parameters if what == "parameters" else self.operations).values())


def _part(path: str) -> str:
    words = path.split(".")
    # A user's scheme may have modules of other names: they count as positional terms.
    return next((part for name, part in _PART_OF.items() if name in words), "positional_terms")


def _meta_model(config: EncoderConfig) -> EncoderForMaskedLM:
    with torch.device("meta"), no_init_weights():
        model = EncoderForMaskedLM(copy.deepcopy(config))
    model.tie_weights()
    model.requires_grad_(False)
    # `eager` multiplies term by term, as the scores need, unless they are one product of sums (SPLIT, BERT-A^d).
    model.set_attn_implementation("sdpa" if config.stream_qk == "joint" or config.untied == "crossed" else "eager")
    for part in (model.encoder.untied, model.encoder.relative):
        if part is not None:  # special tokens are looked up: no product, and where they are a shape cannot tell
            part.register_forward_hook(lambda module, inputs, bias: replace(bias, special_values=None))
    return model.eval()


def _subtract_children(counts: dict[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the operations of each module, less the operations of the modules below it."""
    for path, total in counts.items():
        below = [other for other in counts if other.startswith(path + ".")]
        children = [p for p in below if not any(p.startswith(other + ".") for other in below)]
        yield path, total - sum(counts[child] for child in children)


def costs(config: EncoderConfig, length: int | None = None, labelled: float = 0.15) -> Costs:
    """Count the parameters of an encoder with a masked-language head, and the operations per token of a forward pass.

    Args:
        config: any encoder.
        length: tokens of a row; default: max_position_embeddings. What all rows of a batch share (TUPE's positional
            term) is counted for one row.
        labelled: share of the tokens that the vocabulary head sees.

    Raises:
        ValueError: a length beyond the position table, a `labelled` that is no share, or a scheme that reads values of
            tensors.
    """
    if not 0 <= labelled <= 1:
        raise ValueError(f"labelled is the share of predicted tokens, in [0, 1]; got {labelled}.")
    if length is not None and length < 1:
        raise ValueError(f"length must be at least 1 token; got {length}.")
    length = length or config.max_position_embeddings
    ids = torch.zeros(1, length, dtype=torch.long, device="meta")
    try:
        model = _meta_model(config)
        with FlopCounterMode(display=False) as counter:
            model(input_ids=ids)
        terms = tuple(sorted(model.attention_terms(input_ids=ids[:, :2]), key=lambda name: (*TERMS, name).index(name)))
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise ValueError(
            f"The costs of {config.preset or 'this encoder'} cannot be counted: it does not run on torch's meta "
            f"device, where tensors have shapes but no numbers ({' '.join(str(error).split())[:120]}). An own scheme "
            "is counted if it reads no values of tensors."
        ) from None
    parameters = dict.fromkeys(PARTS, 0)
    operations = dict.fromkeys(PARTS, 0.0)
    for name, parameter in model.named_parameters():
        parameters[_part(name)] += parameter.numel()
    counts = {
        path: float(sum(numbers.values())) for path, numbers in counter.get_flop_counts().items() if path != "Global"
    }
    for path, count in _subtract_children(counts):
        operations[_part(path)] += count / length
    operations["vocabulary_head"] *= labelled
    return Costs(parameters, operations, length, labelled, terms)


def matched_width(config: EncoderConfig, what: str, target: float, length: int, labelled: float) -> int:
    """Find the `intermediate_size` at which a model comes nearest to a target number of parameters or operations.

    what: "parameters" or "operations", as `Costs.of`.

    Raises:
        ValueError: even without a feed-forward the model costs more.
    """
    step = config.intermediate_divisor

    def cost(width: int) -> float:
        other = copy.deepcopy(config)
        other.intermediate_size = width
        return costs(other, length, labelled).of(what)

    first = cost(step)
    growth = cost(2 * step) - first  # both costs grow by the same for every step of the width
    steps = 1 + (target - first) / growth
    if steps < 0.5:
        raise ValueError(
            f"{config.preset} cannot be made to cost {target:,.0f} {what}: with the narrowest feed-forward, "
            f"intermediate_size={step}, it costs {first:,.0f}. Put {config.preset} first in --models, so that the "
            "others are matched to it, or leave it out."
        )
    return step * max(1, round(steps))


def differing(config: EncoderConfig) -> dict[str, Any]:
    """Collect the sizes of a configuration, and every other field that differs from the default of `EncoderConfig`."""
    plain = EncoderConfig()
    keys = [key for key in EncoderConfig.__annotations__ if hasattr(plain, key) and key not in ("model_type", "preset")]
    shown = [key for key in keys if key in SIZE_FIELDS or getattr(config, key) != getattr(plain, key)]
    return {key: getattr(config, key) for key in shown}


def _products(config: EncoderConfig) -> dict[str, tuple[str, str]]:
    """Return how query i and key j of each kind are written in a formula."""
    distances = {"relative": ("r(j - i)", "r(j - i)")}  # of an own class of pair terms that does not say how
    if config.position_size:
        return {**distances, "semantic": ("q_sem_i", "k_sem_j"), "absolute": ("q_pos_i", "k_pos_j")}
    words = ("q_i", "k_j")
    if config.rotation != "none":
        words = ("(R_s(i) q_i)", "(R_s(j) k_j)") if config.bilevel else ("(R_i q_i)", "(R_j k_j)")
    return {**distances, "semantic": words, "mixed": words, "absolute": ("(p_i U_Q)", "(p_j U_K)")}


_AT_SPECIAL = {  # replacement of the bias of the distance
    "none": "",
    "shared": " or a value of its own if i or j is special",
    "each": " or a value of its own if i or j is [CLS] or [SEP], j's where both are",
}


def formula(config: EncoderConfig, terms: tuple[str, ...]) -> str:
    """Write the attention score of query i and key j as one line of text.

    q, k: queries and keys of a head, from words (and positions added to them), or from a stream; p: the position table.

    Args:
        terms: names of the terms of the score, as `attention_terms` gives them.
    """
    written = _products(config)
    pair_terms = PAIR_TERMS.get(config.pair_terms, PairTerms)
    reset = config.reset != "none"
    products = []
    biases = []
    for name in terms:
        if name in pair_terms.scaled_formulas:
            products.append(pair_terms.scaled_formulas[name])
        elif name in pair_terms.unscaled_formulas:
            biases.append(pair_terms.unscaled_formulas[name])
        elif name == "relative" and config.relative != "none":
            bias = f"{config.relative}({'s(j) - s(i)' if config.bilevel else 'j - i'})"
            bias += _AT_SPECIAL[config.relative_special]
            biases.append(f"reset[{bias}]" if reset else bias)
        elif name == "absolute" and config.untied == "free":
            biases.append("reset[free(i, j)]" if reset else "free(i, j)")
        else:
            query, _, key = name.partition("_to_")
            product = f"{written[query][0]}·{written[key or query][1]}"
            if name == "absolute" and config.absolute_skips_special:
                product += "·[i, j not special]"
            products.append(f"reset[{product}]" if name == "absolute" and reset else product)
    line = " + ".join([f"({' + '.join(products)}) / √{round(config.score_scale**-2)}", *biases])
    added = "places in their segment" if config.bilevel else "positions"
    notes = [f"q, k from words with {added} added"] if "mixed" in terms else []
    if config.bilevel:
        notes.append("s: number of the segment")
    if config.input_kernel:
        notes.append(f"words with a convolution over {config.input_kernel} neighbours added")
    if reset:
        how = ", once for the sum" if config.reset == "sum" else ", for each apart"
        notes.append("reset: θ1 if i is [CLS], θ2 if only j is" + (how if len(terms) > 2 else ""))
    if config.rotation == "xpos":
        notes.append(
            f"pair k of the {config.rotated_width // 2} that turn times ζ_k^(|j - i| / {config.xpos_scale_base:g})"
        )
    if config.relative != "none":
        notes.append("one bias for all layers" if config.relative_shared else "a bias in each layer")
    return f"score(i, j) = {line}" + (f"   ({'; '.join(notes)})" if notes else "")


def trains_with(config: EncoderConfig, device: torch.device) -> list[str]:
    """List the attention backends that can train this encoder on a device."""
    return [name for name in BACKENDS if not _refusal(name, device, True, config.dropout)]


def _refusal(name: str, device: torch.device, needs_gradient: bool, dropout: float) -> str:
    try:
        check_backend(name, device, needs_gradient, dropout)
    except ValueError as error:
        return str(error)
    return ""


def backend_notes(config: EncoderConfig, device: torch.device) -> dict[str, str]:
    """Tell for each attention backend which implementation runs on this device, and why."""
    biased = config.relative != "none" or config.pair_terms != "none" or config.untied in ("position", "free")
    kernel = "torch's scaled_dot_product_attention"
    function = "our own function (encoder/tiled_attention.py)"
    if device.type == "cpu" and biased:
        sdpa = f"{function}: on a CPU {kernel} leaves its fast path for a bias that is trained"
    elif config.rotation == "xpos":
        sdpa = f"{function}: {kernel} has one product of queries and keys, and this scheme two"
        if device.type != "cpu":
            sdpa = f"all scores at once, a map (h, n, n): {kernel} has one product of queries and keys, this scheme two"
    elif device.type == "cpu":
        both = (
            f"{kernel}; with bfloat16 or dropout of {config.dropout} {function}, because both are slow there on a CPU"
        )
        sdpa = both if config.dropout else f"{kernel}; in bfloat16 {function}"
    else:
        sdpa = kernel + (", the bias as its mask" if biased else "")
    twice = " in two passes, over keys before and behind the query" if config.rotation == "xpos" else ""
    flex = f"torch's FlexAttention{twice}" + (", the bias looked up inside the kernel" if biased else "")
    notes = {"eager": "the specification: each term a map (h, n, n) in memory", "sdpa": sdpa, "flex_attention": flex}
    for name in BACKENDS:
        if refused := _refusal(name, device, True, config.dropout):
            never = _refusal(name, device, False, 0.0)
            notes[name] = refused if never else f"{notes[name]}; not in training: {refused}"
    return notes


def trial(config: EncoderConfig, length: int) -> dict[str, Any]:
    """Run a forward and a backward pass of a new model over two made-up texts.

    Returns:
        tokens: of each text; loss: in nats; not_finite: parameters or gradients that are not finite, "" if all are.

    Raises:
        ValueError: the program of a user's scheme fails; the message names its file and line.
    """
    tokens = min(length, TRIED)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            device = default_device()
            model: Any = EncoderForMaskedLM(config)
            model.to(device)
            ids = torch.randint(config.vocab_size, (2, tokens), device=device)
            loss = model.train()(input_ids=ids, labels=ids, targets_only=True).loss
            loss.backward()
    except MemoryError:
        raise
    except Exception as error:  # a user's program can raise any class
        if not (files := scheme_files(config)):
            raise
        raise ValueError(_blamed(error, files, str(config.preset))) from None
    return {"tokens": tokens, "loss": float(loss.detach()), "not_finite": not_finite(model)}


def _blamed(error: Exception, files: Mapping[Path, str], preset: str) -> str:
    """Describe an error of a user's scheme in one line: the place in its file, and what its parts have to return."""
    where = failing_line(error) or " and ".join(map(str, files))
    problem = f"{type(error).__name__}: {one_line(error).removesuffix('.')}"
    return (
        f"A step of {preset} fails in the scheme {where}: {problem}. A table's forward() gives (rows, width), a bias's "
        "forward(distance) (..., heads), a rotation (b, n, width / 2)."
    )


def try_scheme(config: EncoderConfig, length: int) -> None:
    """Refuse a user's scheme that cannot be trained, by one `trial` step; other encoders are not tried.

    Raises:
        ValueError: its program fails, or a number of its first step is not finite.
    """
    if (files := scheme_files(config)) and (bad := trial(config, length)["not_finite"]):
        raise ValueError(stops(str(config.preset), bad, " and ".join(map(str, files))))


def stops(preset: str, bad: str, file: str) -> str:
    """Write the message that refuses a user's scheme whose first step is not finite."""
    return f"A training of {preset} would stop at its first step: {bad} is not finite. Mend {file}."


def explain(
    config: EncoderConfig, length: int | None, labelled: float, backend: str, tried: bool = False
) -> dict[str, Any]:
    """Collect everything that `whatwhere explain` prints of an encoder, as a dictionary of plain values.

    Args:
        length: tokens of a row; None: max_position_embeddings.
        labelled: share of the tokens that are predicted, in [0, 1].
        backend: name of the attention backend that runs.
        tried: also run a `trial` step, for schemes that nobody has trained yet.

    Raises:
        ValueError: the length is not possible, a user's scheme fails, or the costs cannot be counted (see `costs`).
    """
    first_step = trial(config, length or config.max_position_embeddings) if tried else None  # first: it says where
    cost = costs(config, length, labelled)
    device = default_device()
    return {
        "preset": config.preset,
        "source": SOURCES.get(config.preset),
        "config": differing(config),
        "streams": list(config.stream_sizes),
        "terms": list(cost.terms),
        "formula": formula(config, cost.terms),
        "longest": config.position_limit,
        "length": cost.length,
        "labelled": cost.labelled,
        "parameters": {**cost.parameters, "total": cost.of("parameters")},
        "operations": {**cost.operations, "total": cost.of("operations")},
        "device": device.type,
        "backend": backend,
        "backends": backend_notes(config, device),
        "trial": first_step,
    }


def as_text(facts: dict[str, Any]) -> str:
    """Format the dictionary of `explain` as the text that the command prints."""
    name = facts["preset"] or "an encoder without a preset"
    rows = facts["longest"]
    numbered = "any length; positions are not numbered by a table"
    if facts["config"].get("bilevel"):
        numbered = "any length; places of a segment beyond the table's rows share its last one"
    longest = f"{rows} tokens (rows of the table)" if rows else numbered
    read = f"{facts['length']} tokens, {facts['labelled']:.0%} of them predicted"
    attention = f"Attention on this machine ({facts['device']}): {facts['backend']} runs"
    settings = [(key, str(value)) for key, value in facts["config"].items()]
    settings += [("streams", " + ".join(map(str, facts["streams"]))), ("longest input", longest)]
    counted = [("part", "parameters", "operations")]
    counted += [(part, f"{n:,}", f"{facts['operations'][part]:,.0f}") for part, n in facts["parameters"].items()]
    lines = [
        name + (f" ({facts['source']})" if facts["source"] else ""),
        "",
        "Configuration: sizes, and what differs from the defaults of EncoderConfig",
        *table_lines(settings, indent=2),
        "",
        "Scores of attention, i the query and j the key",
        f"  {facts['formula']}",
        f"  terms: {', '.join(facts['terms'])}",
        "",
        f"Costs; operations a token of a forward pass over {read}",
        *table_lines(counted, right=(1, 2), indent=2),
        "",
        f"{attention}; output_attentions=True takes eager",
        *table_lines(list(facts["backends"].items()), indent=2),
    ]
    if step := facts["trial"]:
        bad = step["not_finite"]
        verdict = f"NOT FINITE: {bad}" if bad else "all gradients finite"
        text = f"One forward and backward pass over 2 texts of {step['tokens']} tokens: loss {step['loss']:.3f}"
        lines += ["", f"{text}, {verdict}"]
    return "\n".join(lines)


def side_by_side(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Format the facts of two encoders beside each other: what differs in scheme and sizes, and the costs of both."""
    names = [facts["preset"] or "an encoder without a preset" for facts in (first, second)]
    lines = [f"{name}: {facts['formula']}" for name, facts in zip(names, (first, second), strict=True)]
    plain = EncoderConfig()
    keys = [key for key in EncoderConfig.__annotations__ if key in first["config"] or key in second["config"]]
    differing_rows = [("", *names)]
    for key in keys:
        values = [str(facts["config"].get(key, getattr(plain, key))) for facts in (first, second)]
        if values[0] != values[1]:
            differing_rows.append((key, *values))
    for key in ("terms", "streams"):
        values = [" + ".join(map(str, facts[key])) for facts in (first, second)]
        if values[0] != values[1]:
            differing_rows.append((key, *values))
    longest = [str(facts["longest"] or "any length") for facts in (first, second)]
    if longest[0] != longest[1]:
        differing_rows.append(("longest input", *longest))
    costs_rows = [("part", *(f"{what} of {name}" for what in ("parameters", "operations") for name in names), "ratio")]
    for part in first["parameters"]:
        numbers = [facts[what][part] for what in ("parameters", "operations") for facts in (first, second)]
        if any(numbers):
            ratio = f"{numbers[3] / numbers[2]:.2f}" if numbers[2] else ""
            costs_rows.append((part, *(f"{number:,.0f}" for number in numbers), ratio))
    read = f"{first['length']} tokens, {first['labelled']:.0%} of them predicted"
    if (second["length"], second["labelled"]) != (first["length"], first["labelled"]):
        read += f" ({second['length']} and {second['labelled']:.0%} of {names[1]})"
    differences = ["Nothing differs"]
    if len(differing_rows) > 1:
        differences = ["What differs", *table_lines(differing_rows, indent=2)]
    return "\n".join(
        [
            "Scores of attention, i the query and j the key",
            *(f"  {line}" for line in lines),
            "",
            *differences,
            "",
            f"Costs; operations a token of a forward pass over {read}; the ratio compares the operations",
            *table_lines(costs_rows, right=(1, 2, 3, 4, 5), indent=2),
        ]
    )


def preset_rows(size: str) -> list[dict[str, Any]]:
    """List each preset with its terms and costs at a size; `backends` are those that train it on a CUDA device.

    Raises:
        ValueError: unknown size, or a preset of a user's scheme that cannot be built.
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
                "family": family_of(config.to_dict()),
                "block": config.block,
                "streams": list(config.stream_sizes),
                "terms": list(cost.terms),
                "parameters": cost.of("parameters"),
                "operations": cost.of("operations"),
                "length": cost.length,
                "longest": config.position_limit,
                "backends": trains_with(config, torch.device("cuda")),
                "source": SOURCES[name],
            }
        )
    return rows


if __name__ == "__main__":
    lines = [json.dumps({"size": size, **row}, ensure_ascii=False) for size in SIZES for row in preset_rows(size)]
    write_text(KEPT, "\n".join(lines) + "\n")
