"""Make the model that comes with the package from a trained run: python examples/make_reference.py RUN

RUN is the folder of one pretrained encoder, of `whatwhere pretrain` or of a study (models/NAME/seed-K), whose windows
stand beside it. Its weights are rounded to bfloat16 and written, with tokenizer, card and what was measured, to
src/whatwhere/reference/. Nothing is written unless the folder is small and the rounded model is the same one for all
purposes: see the three limits below.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

import whatwhere
from whatwhere.analysis.probes import probe_records
from whatwhere.analysis.record_context import RecordContext
from whatwhere.corpus import Windows
from whatwhere.corpus.windows import own_windows
from whatwhere.models.card import reference_card, weights_metadata
from whatwhere.records.record import select
from whatwhere.run.folder import RunFolder
from whatwhere.training.model_folder import save_model
from whatwhere.training.pretrain import SETTINGS_FILE
from whatwhere.training.pretrain_settings import PretrainConfig, make_batches
from whatwhere.training.training_folder import SUMMARY

LARGEST = 4_000_000  # bytes of the folder
LOGITS = 0.5  # nats: no logit moves further
LOSS = 0.01  # nats: nor does the held-out loss
WINDOWS = 512  # held-out windows that both are measured on, and probes (of those of full length)
FOLDER = Path(whatwhere.__file__).parent / "reference"


def make_reference(
    run: Path,
    to: Path = FOLDER,
    *,
    text: str = "English Wikipedia",
    licence: str = "CC BY-SA 3.0",
    windows: Path | None = None,
) -> dict[str, Any]:
    """Write the reference model to `to`, whole or not at all, in place of the one there; returns its training.json.

    Args:
        run: folder of a finished pretraining. windows: its windows; default: those beside it.
        text, licence: what it has read, for the card.

    Raises:
        ValueError: no finished pretraining, no windows of it, or a limit is passed.
    """
    for name in (SETTINGS_FILE, SUMMARY, "model.safetensors", "tokenizer.json"):
        if not (run / name).is_file():
            raise ValueError(
                f"{run} is no finished pretraining: {name} is missing. Give the folder of one: models/dstg/seed-0 of a "
                "study."
            )
    tokenizer = AutoTokenizer.from_pretrained(run)
    corpus = Windows(windows) if windows else own_windows(tokenizer, run)
    if corpus is None or not corpus.has_tokenizer(tokenizer):
        raise ValueError(
            f"No windows of {run} beside it, so nothing can be measured. Give their folder: --corpus STUDY/corpus."
        )
    config = PretrainConfig.load(run / SETTINGS_FILE)
    model = whatwhere.EncoderForMaskedLM.from_pretrained(run, dtype=torch.float32).eval()
    with RunFolder.create(to, "model") as made:
        summary = json.loads((run / SUMMARY).read_text(encoding="utf-8"))
        store(model, run, made, config, summary)
        found = compare(model, made, corpus, config) | look(made, corpus)
        summary["reference"] = {"dtype": "bfloat16", "text": text, "licence": licence, **found, "bytes": 0}
        for _ in range(3):  # what is written tells its own size
            (made / SUMMARY).write_text(json.dumps(summary, indent=1), encoding="utf-8")
            card = reference_card(model.config, config.model_dump(), summary, text=text, licence=licence)
            (made / "README.md").write_text(card, encoding="utf-8")
            summary["reference"]["bytes"] = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
        check(summary["reference"])
    return summary


def store(model: Any, run: Path, made: Path, config: PretrainConfig, summary: dict[str, Any]) -> None:
    """A transformers folder of the model's weights in bfloat16 that says it is to be opened in float32; no code, it
    comes with its own."""
    narrow = type(model)(model.config)
    narrow.load_state_dict(model.state_dict())
    save_model(
        narrow.bfloat16(), made, with_code=False, metadata=weights_metadata(model.config, config.model_dump(), summary)
    )
    about = json.loads((made / "config.json").read_text(encoding="utf-8"))
    (made / "config.json").write_text(json.dumps(about | {"dtype": "float32"}, indent=2) + "\n", encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(run / name, made / name)
    whatwhere.write_sentence_transformer(made, pooling=config.pooling)


@torch.no_grad()
def compare(model: Any, made: Path, windows: Windows, config: PretrainConfig) -> dict[str, Any]:
    """Held-out loss of both models on the same masked tokens, and how far a logit moves."""
    stored = AutoModelForMaskedLM.from_pretrained(made).eval()
    assert stored.dtype == torch.float32, stored.dtype
    losses = [0.0, 0.0]
    labels = 0
    moved = 0.0
    seen = 0
    for batch in make_batches(config, windows, "held_out", model.config).in_order(config.batch_size, limit=WINDOWS):
        both = [m(**batch) for m in (model, stored)]
        count = int((batch["labels"] != -100).sum())
        losses = [total + float(out.loss) * count for total, out in zip(losses, both, strict=True)]
        labels, seen = labels + count, seen + len(batch["input_ids"])
        moved = max(moved, float((both[0].logits - both[1].logits).abs().max()))
    return {
        "loss_float32": losses[0] / labels,
        "loss": losses[1] / labels,
        "largest_logit_difference": moved,
        "windows": seen,
    }


def look(made: Path, windows: Windows) -> dict[str, Any]:
    """R² of position by layer in each stream, and the share of two components in the table, of the model as it is
    stored."""
    stored = AutoModelForMaskedLM.from_pretrained(made).eval()
    records = probe_records(stored, windows["held_out"], RecordContext("reference"), windows=WINDOWS)
    mean = [r for r in select(records, metric="r2.token") if r.index is None]
    layers = range(stored.config.num_hidden_layers + 1)
    r2 = {
        part: [next(r.value for r in mean if r.part == part and r.layer == layer) for layer in layers]
        for part in {r.part for r in mean}
    }
    spectrum = whatwhere.geometry.spectrum(stored.encoder.position_table().detach().double().numpy())
    probed = next(r.value for r in records if r.metric == "probe.windows")
    return {
        "r2": dict(sorted(r2.items())),
        "two_components": float(spectrum.shares[:2].sum()),
        "documents": int(probed),  # windows of full length
    }


def check(found: dict[str, Any]) -> None:
    """Refuse a folder that is too large, or a model that rounding has changed."""
    change = abs(found["loss"] - found["loss_float32"])
    for value, limit, what in (
        (found["bytes"], LARGEST, "bytes in the folder"),
        (found["largest_logit_difference"], LOGITS, "nats between two logits"),
        (change, LOSS, "nats between the held-out losses"),
    ):
        if not value <= limit:
            raise ValueError(f"{value:g} {what}, more than the {limit:g} of a reference model. Nothing was written.")


def main() -> None:
    """The command line: where to, and the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of a pretraining: models/dstg/seed-0 of a study")
    parser.add_argument("--to", type=Path, default=FOLDER, help="folder to write [default: the package's own]")
    parser.add_argument("--corpus", type=Path, help="folder of its windows [default: those beside it]")
    parser.add_argument(
        "--text", default="English Wikipedia", help="what it has read, for the card [default: %(default)s]"
    )
    parser.add_argument("--licence", default="CC BY-SA 3.0", help="licence of that text [default: %(default)s]")
    given = parser.parse_args()
    try:
        summary = make_reference(given.run, given.to, text=given.text, licence=given.licence, windows=given.corpus)
    except ValueError as error:
        raise SystemExit(f"make_reference: {error}") from None
    print(f"{given.to}: {json.dumps(summary['reference'], indent=1)}")


if __name__ == "__main__":
    main()
