"""Model cards (README.md) of trained folders, and the metadata in the header of their weights."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import yaml

from ..corpus.batches import times_read
from ..encoder import SOURCES, EncoderConfig
from ..papers import bibtex
from ..version import VERSION
from .lengths import max_tokens

# Who published which part of a scheme: (field, value) of the configuration → source. A user's scheme has none here.
PARTS: dict[tuple[str, Any], tuple[str, ...]] = {
    ("block", "neobert"): ("neobert",),
    ("block", "bert"): ("bert",),
    ("stream_qk", "separate"): ("dstg",),  # of two streams only
    ("stream_qk", "joint"): ("split",),
    ("untied", "position"): ("tupe",),
    ("untied", "crossed"): ("tupe",),
    ("untied", "free"): ("tupe",),
    ("reset", "sum"): ("tupe",),
    ("reset", "each"): ("tupe",),
    ("absolute", "learned"): ("bert",),
    ("absolute", "sinusoidal"): ("sinusoidal",),
    ("absolute", "low_rank"): ("lowdim", "geometry"),
    ("absolute", "fourier"): ("lowdim",),
    ("absolute", "mds"): ("geometry",),
    ("table_start", "half-turn"): ("dstg",),
    ("input_kernel", 9): ("cpvt", "wav2vec2"),
    ("bilevel", True): ("bipe",),
    ("position_draws", "shape"): ("shape",),
    ("position_draws", "cape"): ("cape",),
    ("relative", "t5"): ("t5",),
    ("relative", "clipped"): ("shaw",),
    ("relative", "alibi"): ("alibi",),
    ("relative", "kerple_log"): ("kerple",),
    ("relative", "kerple_power"): ("kerple",),
    ("relative", "tisa"): ("tisa",),
    ("relative", "sandwich"): ("sandwich", "sinusoidal"),
    ("relative", "product"): ("tupe",),
    ("pair_terms", "shaw"): ("shaw",),
    ("pair_terms", "deberta"): ("deberta",),
    ("pair_terms", "xl"): ("transformer-xl",),
    ("pair_terms", "cope"): ("cope",),
    ("pair_terms", "fire"): ("fire",),
    ("pair_terms", "dape"): ("dape", "kerple"),
    ("relative_special", "shared"): ("dstg",),
    ("relative_special", "each"): ("dstg",),
    ("rotation", "rope"): ("rope",),
    ("rotation", "xpos"): ("xpos", "rope"),
    ("rotation_share", 0.25): ("neox",),
}
# Fields of a scheme that a card and the metadata name where they differ from the default.
SCHEME_FIELDS = (
    "absolute",
    "absolute_skips_special",
    "untied",
    "table_width",
    "table_rank",
    "table_file",
    "table_start",
    "table_scale",
    "input_kernel",
    "bilevel",
    "segment_end_ids",
    "position_draws",
    "draw_shift",
    "draw_local_shift",
    "draw_scale",
    "relative",
    "relative_shared",
    "relative_special",
    "pair_terms",
    "alibi_slopes",
    "tisa_kernels",
    "rotation",
    "rotation_share",
    "rope_theta",
    "xpos_scale_base",
    "reset",
    "stream_qk",
    "stream_feed_forward",
    "stream_values",
    "mlm_head",
    "residual",
)

_ROWS = {  # content of a window, by `join` and `pieces`
    ("none", "first"): "the first piece of one document, padded (join=none, pieces=first)",
    ("none", "all"): "a piece of one document, often from its middle, padded (join=none, pieces=all)",
    ("isolate", "first"): "first pieces of several documents that do not see each other (join=isolate, pieces=first)",
    ("isolate", "all"): "pieces of several documents that do not see each other (join=isolate, pieces=all)",
    ("run-on", "all"): "one document after the other, cut at the length (join=run-on)",
}


def sources(config: EncoderConfig) -> list[str]:
    """List the keys of `CITATIONS` for the parts of a configuration, the scheme's first and the block's last."""
    names: list[str] = []
    for (field, value), keys in PARTS.items():
        if getattr(config, field) == value and (config.position_size or field != "stream_qk"):
            names += keys
    block = PARTS["block", config.block]
    return [key for key in dict.fromkeys(names) if key not in block] + list(block)


def corpus_name(corpus: str) -> str:
    """Return the name of a corpus that may be published: of a file or folder only its last part."""
    known = corpus == "python-docs" or re.match(r"(hub|synthetic):", corpus)
    return re.sub(r"[`|\s]+", " ", corpus if known else Path(corpus).name)


def weights_metadata(config: Any, run: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, str]:
    """Build the metadata in the header of a weights file: texts only, equal for every run of the same settings."""
    scheme = ("preset", "block", *(field for field in SCHEME_FIELDS if field not in ("table_file", "table_start")))
    sizes = "hidden_size position_size num_hidden_layers num_attention_heads vocab_size max_position_embeddings".split()
    measured = ("size", "parameters", "seed", "steps", "tokens", "validation_loss", "validation_accuracy")
    facts = {key: getattr(config, key) for key in (*scheme, *sizes) if hasattr(config, key)}
    facts |= {key: summary[key] for key in measured if key in summary}
    text = {key: corpus_name(run[key]) for key in ("corpus", "start", "data", "dev") if key in run}
    return {key: str(value) for key, value in facts.items()} | text | {"whatwhere": VERSION}


def _rows(rows: Mapping[str, Any]) -> str:
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {key} | {value} |" for key, value in rows.items())


def _own_parts(config: Any) -> list[str]:
    """Name the fields whose part none of the cited papers published."""
    if not isinstance(config, EncoderConfig):
        return []
    parts = [(field, getattr(config, field)) for field in ("absolute", "relative", "pair_terms", "rotation")]
    return [field for field, part in parts if part != "none" and (field, part) not in PARTS]


def _scheme(config: Any) -> dict[str, Any]:
    if not isinstance(config, EncoderConfig):
        return {"architecture": f"`{config.model_type}`, of transformers"}
    d_pos = config.position_size
    width = config.hidden_size
    streams = f"two: columns 0 to {d_pos - 1} position, {d_pos} to {width - 1} meaning" if d_pos else "one"
    source = SOURCES.get(config.preset)
    name = f"`{config.preset}`" + (f" ({source})" if source else "")
    rows = {"preset": name, "block": config.block, "streams": streams}
    for field in SCHEME_FIELDS:
        value = getattr(config, field)
        if value != getattr(EncoderConfig, field):
            rows[field] = f"{value} (a scheme of its own: `own_scheme.py`)" if field in _own_parts(config) else value
            if field in ("table_file", "table_start"):
                rows[field] = f"`{Path(str(value)).name}`"
    return rows


def _optimizer(run: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    return f"{run['optimizer']}, learning rate {run['learning_rate']:g}, {summary['precision']}"


def _speed(summary: Mapping[str, Any]) -> str:
    if summary["tokens_per_second"] is None:
        return "not known: the log of the training was lost"
    many = f" in {summary['processes']} processes" if summary["processes"] > 1 else ""
    return (
        f"{summary['tokens_per_second']:,.0f} tokens a second in training{many} on that machine ({summary['device']})"
    )


def _page(
    kind: str,
    config: Any,
    run: Mapping[str, Any],
    summary: Mapping[str, Any],
    training: Mapping[str, Any],
    task: str = "fill-mask",
    language: str = "und",  # undetermined: it is the corpus's
    tags: Sequence[str] = (),
    **words: Any,
) -> str:
    """Render a card with `card.md.j2`: `kind` chooses its sections, `words` fill the sections of one kind alone."""
    ours = isinstance(config, EncoderConfig)
    name = config.preset if ours else config.model_type
    general_tags = ["whatwhere", "encoder", "positional-encoding", name, "custom_code"] if ours else ["whatwhere", name]
    head = {
        "library_name": "transformers",
        "pipeline_tag": task,
        "language": language,
        "tags": [*general_tags, *tags],
    }
    most = max_tokens(config)
    longest = f"{most} tokens" if most else "not limited by the scheme"
    if most != run["length"]:
        longest += f"; trained on {run['length']} tokens"
    width = config.hidden_size
    d_ff = getattr(config, "intermediate_size", "–")
    size = {
        "parameters": f"{summary['parameters']:,}, {summary['embedding_parameters']:,} of them word embeddings",
        "layers, heads": f"{config.num_hidden_layers}, {config.num_attention_heads}",
        "hidden, feed-forward": f"{width}, {d_ff}",
        "vocabulary": f"{config.vocab_size:,}",
        "longest input": longest,
    }
    page = jinja2.Template(
        Path(__file__).with_name("card.md.j2").read_text(encoding="utf-8"),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return page.render(
        kind=kind,
        config=config,
        ours=ours,
        name=name,
        version=VERSION,
        head=yaml.safe_dump(head, sort_keys=False).strip(),
        scheme=_rows(_scheme(config)),
        size=_rows(size),
        training=_rows(training),
        longest=longest,
        own_parts=_own_parts(config),
        citations="\n".join(map(bibtex, sources(config))) if ours else "",
        **words,
    )


def _pretraining(run: Mapping[str, Any], summary: Mapping[str, Any], corpus: str) -> dict[str, Any]:
    """Build the rows of a card that tell how an encoder was pretrained."""
    masking = "all of them masked" if run["masking"] == "all" else "80 % masked, 10 % replaced, 10 % kept"
    loss = summary["validation_loss"]
    accuracy = summary["validation_accuracy"]
    held_out = "no held-out text"
    share_held_out = f"{100 * run['held_out']:.3g}% of the documents"
    if loss is not None:
        held_out = f"loss {loss:.4f} nats per masked token, {accuracy:.1%} of them right"
    windows = f"{run['batch_size']} windows of {run['length']} tokens"
    often = times_read(summary.get("passes", 0))  # 0: of a training before they were counted
    repeated = f", each window {often}" if often else ""
    return {
        "corpus": f"{corpus}, {'nothing' if loss is None else share_held_out} held out",
        "objective": f"{100 * run['mask_rate']:.3g}% of the tokens predicted, {masking}",
        "tokens": f"{summary['tokens']:,}: {summary['steps']:,} steps of {windows}{repeated}",
        "rows": _ROWS[run["join"], summary.get("pieces", "all")],
        "optimizer": _optimizer(run, summary),
        "speed": _speed(summary),
        "seed": summary["seed"],
        "held-out": held_out,
    }


def model_card(config: EncoderConfig, run: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Write the model card of a pretrained encoder, as Markdown with the YAML head that the Hub reads.

    Args:
        run: the settings of the pretraining, as a `PretrainConfig` dumps them.
        summary: what the pretraining measured, as `pretrain` returns it.
    """
    corpus = corpus_name(run["corpus"])
    training = _pretraining(run, summary, f"`{corpus}`")
    semantic = run["pooling"] == "semantic" and config.position_size
    tags = ("sentence-transformers",)
    words = {"language": run["language"], "corpus": corpus, "semantic": semantic}
    return _page("encoder", config, run, summary, training, tags=tags, **words)


def rows_cut(summary: Mapping[str, Any], length: int) -> str:
    """Tell how many rows of a fine-tuning were longer than `length` tokens, and what they lost; "" if none."""
    cut = summary["truncated"]
    share = summary.get("share_cut")
    parts = [f"{cut:,} of {summary['rows']:,} training rows ({_whole_percent(cut / summary['rows'])})"] if cut else []
    if dev := summary.get("dev_truncated"):
        parts.append(f"{dev:,} of {summary['dev_rows']:,} dev rows ({_whole_percent(dev / summary['dev_rows'])})")
    lost = f", {_whole_percent(share)} of the tokens of those training rows" if cut and share else ""
    return f"{' and '.join(parts)} are longer than {length} tokens and were cut{lost}" if parts else ""


def _whole_percent(share: float) -> str:
    """Write a share above 0 in whole percent, at least "under 1%"."""
    return f"{share:.0%}" if share >= 0.005 else "under 1%"


def classifier_card(config: Any, run: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Write the model card of a fine-tuned classifier, as Markdown with the YAML head that the Hub reads.

    Args:
        run: the settings, as a `FinetuneConfig` dumps them. summary: what `finetune` returns.
    """
    data = corpus_name(run["data"])
    dev = corpus_name(run["dev"])
    columns = [f"`{run[key]}`" for key in ("text", "text_pair", "label") if run[key]]
    classes = [f"`{name}`" for name in summary["labels"]]
    steps = f"{summary['steps']:,} steps of {run['batch_size']}, at most {run['length']} tokens each"
    cut_rows = {"cut": cut} if (cut := rows_cut(summary, run["length"])) else {}
    training = {
        "start": "fresh weights" if run["from_scratch"] else f"the encoder `{corpus_name(run['start'])}`",
        "data": f"`{data}`, columns {', '.join(columns)}",
        "classes": ", ".join(classes[:20]) + (f" and {len(classes) - 20} more" if len(classes) > 20 else ""),
        "rows": f"{summary['rows']:,}; {steps}",
        **cut_rows,
        "optimizer": _optimizer(run, summary),
        "speed": _speed(summary),
        "seed": summary["seed"],
        f"accuracy on `{dev}`": f"{summary['validation_accuracy']:.1%} of {summary['dev_rows']:,} rows "
        f"(95 %: {summary['accuracy_low']:.1%} to {summary['accuracy_high']:.1%}); always the commonest class: "
        f"{summary['commonest']:.1%}",
    }
    return _page("classifier", config, run, summary, training, task="text-classification", data=data, dev=dev)


def reference_card(
    config: EncoderConfig, run: Mapping[str, Any], summary: Mapping[str, Any], *, text: str, licence: str
) -> str:
    """Write the model card of the reference model, which is installed with the package.

    Args:
        run, summary: as for `model_card`; `summary["reference"]` holds what `examples/make_reference.py` measured.
        text, licence: what the model read, and under which licence that text is.
    """
    facts = summary["reference"]
    storage = {
        "stored as": "bfloat16; it opens and computes in float32, as `config.json` says",
        "size of the folder": f"{facts['bytes']:,} bytes",
        "held-out loss": f"{facts['loss']:.4f} nats per masked token in {facts['windows']} windows, "
        f"{facts['loss_float32']:.4f} before",
        "logits": f"at most {facts['largest_logit_difference']:.3f} from the unrounded model's on these windows",
    }
    streams = {"all": "the whole state", "position": "the position stream", "semantic": "the semantic stream"}
    measured = {
        f"R² of position in {streams[part]}": ", ".join(f"{round(value, 2) + 0.0:.2f}" for value in r2)
        for part, r2 in facts["r2"].items()
    }
    measured["two components of the position table"] = f"{facts['two_components']:.0%} of its variance"
    training = _pretraining(run, summary, f"{text} ({licence})")
    words = {"text": text, "licence": licence}
    words |= {"storage": _rows(storage), "measured": _rows(measured), "documents": facts["documents"]}
    return _page("reference", config, run, summary, training, language="en", **words)
