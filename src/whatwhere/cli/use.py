"""Verbs that use a trained model: predict, export."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..models.prediction_kinds import check_kind, check_pooling
from ..run.errors import check_utf8
from ..run.files import check_writable, write_array
from ..training.training_keys import CorpusKeys, SchemeKeys
from .options import AnyModel, Json, check_model, emit, verb


@verb(options={CorpusKeys: "field", SchemeKeys: "scheme"})
def predict(
    model: AnyModel,
    text: list[str] | None = None,
    pair: list[str] | None = None,
    file: Path | None = None,
    *,
    field: str,
    pair_field: str | None = None,
    what: str | None = None,
    top: int = 5,
    pooling: str | None = None,
    length: Annotated[int | None, typer.Option(min=5)] = None,
    stride: int | None = None,
    out: Path | None = None,
    scheme: str | None,
    as_json: Json = False,
) -> None:
    """Predict likely words for each mask, labels with probabilities, or vectors.

    Every text, line and row has its result, blank ones too: they are read as special tokens alone, and stderr counts
    them.

    Args:
        text: A text; may be given again. [default: a line of stdin each]
        pair: Second text of a pair, one for each --text.
        file: A text a line, or a table (.tsv .csv .jsonl .json .parquet) with --field; also .gz .xz .zst .bz2.
        pair_field: Column of the second text of pairs; of .tsv .csv .jsonl .json.
        what: words, labels or vectors. [default: labels of a classifier; else words where every text has the mask token
            (most often [MASK]), else vectors]
        top: Words for each mask, labels for each text.
        pooling: Of vectors: mean over the tokens, cls, or one stream's columns of the mean, semantic or position.
            [default: of a sentence-transformers folder all that its modules.json says, else mean]
        length: Tokens that the model reads at once; longer texts in windows. [default: of its training, or of a longer
            copy; of other packages' models all that they read, at most 512; vectors of another package's
            sentence-transformers folder are cut at its max_seq_length]
        stride: Tokens that the windows of a longer text have in common. [default: a quarter of a window]
        out: Vectors: .npy file, a row a text.
    """
    check_model(model, scheme)
    if out is not None:
        _check_vector_file(out)
    if what is not None:
        check_kind(what)
    if pooling is not None:
        check_pooling(pooling)
    texts, pairs = _texts(text, pair, file, field, pair_field)
    from ..models.predict import open_predictor
    from ..run.progress import progress_bar
    from ..training.scheme_settings import use_scheme

    use_scheme(scheme)
    predictor = open_predictor(model, texts, what, length, pairs)
    if out is not None and predictor.what != "vectors":
        raise ValueError(f"--out is a .npy file of vectors (--what vectors); got {predictor.what}.")
    with progress_bar("predict", not as_json and len(texts) >= 100) as progress:
        predictions = predictor(
            texts,
            pairs,
            top=top,
            pooling=pooling,
            stride=stride,
            progress=progress,
        )
    if predictor.remark:
        print(predictor.remark, file=sys.stderr)
    if out is not None:
        write_array(out, predictions)
        facts = {"out": str(out), "texts": len(texts), "width": int(predictions.shape[1])}
        emit(facts, as_json, f"{out}: {len(texts):,} vectors of {predictions.shape[1]:,} numbers.")
        return
    values = [[round(float(x), 6) for x in row] for row in predictions] if predictor.what == "vectors" else predictions
    rows = [{"text": input_text, predictor.what: value} for input_text, value in zip(texts, values, strict=True)]
    for row, second in zip(rows, pairs or [], strict=False):
        row["pair"] = second
    emit({"what": predictor.what, "texts": rows}, as_json, "\n".join(map(_line, rows)))


@verb(options={SchemeKeys: "scheme"})
def export(
    model: AnyModel,
    out: Path,
    format: str = "onnx",
    what: str | None = None,
    *,
    scheme: str | None,
    as_json: Json = False,
) -> None:
    """Export a model as a graph for another program: a folder with model.onnx for onnxruntime, checked against torch.

    Any batch, any length that the model reads; padding on either side of a text. Needs the extra onnx.

    Args:
        out: Folder: model.onnx, tokenizer, configuration, export.json (inputs, output, longest input), in place of an
            earlier export.
        format: onnx.
        what: words (logits of every token), labels (logits) or vectors (mean over the tokens). [default: labels of a
            classifier, else words, or vectors of a bare encoder]
    """
    if format != "onnx":
        raise ValueError(f"--format must be onnx; got {format!r}.")
    check_model(model, scheme)
    if what is not None:
        check_kind(what)
    from ..models.export import MODEL
    from ..models.export import export as write
    from ..training.scheme_settings import use_scheme

    use_scheme(scheme)
    facts = write(model, out, what=what, progress=True)
    inputs = " and ".join(facts["inputs"])
    most = facts["longest"]
    size = f"any batch, {f'up to {most:,}' if most else 'any number of'} tokens"
    text = f"{out / MODEL}: {inputs} to {facts['output']}, {size}; within {facts['largest_difference']:.1g} of torch."
    emit({"out": str(out), **facts}, as_json, text)


def _texts(
    text: list[str] | None, pair: list[str] | None, file: Path | None, field: str, pair_field: str | None
) -> tuple[list[str], list[str] | None]:
    """Read the texts of --text, --file or stdin, a row each, blank ones too, and the second texts of pairs, or None.

    Raises:
        ValueError: there is no text, --text and --file are both given, or second texts have no first ones.
    """
    from ..corpus.labelled import read_labelled
    from ..corpus.text_files import Files

    if text and file:
        raise ValueError("Give --text or --file, not both.")
    if pair and not text:
        raise ValueError("--pair gives second texts, and --text no first ones. Give --pair with --text.")
    if pair_field and file is None:
        raise ValueError("--pair-field names a column, and --file no table. Give --pair-field with --file.")
    if file is not None and pair_field:
        rows = read_labelled(file, field, None, pair_field)
        return rows.texts, rows.pairs
    if text:
        check_utf8(text + (pair or []), "--text and --pair")
        return text, pair or None
    if file is not None and not file.exists():
        raise ValueError(f"No file {file}. Give a file with a text a line, or a table with --field.")
    if file is None:
        texts = _lines_of_stdin()
    else:
        files = Files(file, field, "line")
        if files.remark:  # of files in a folder that are passed over
            print(files.remark, file=sys.stderr)
        texts = list(files.rows())
    if any(row.strip() for row in texts):
        check_utf8(texts, str(file or "stdin"))
        return texts, None
    if file is not None:
        raise ValueError(f"{file} holds no text. Give a file with a text a line, or a table with --field.")
    raise ValueError("There is no text. Give --text, --file or lines on stdin.")


def _check_vector_file(out: Path) -> None:
    """Refuse an --out of vectors before they are computed.

    Raises:
        ValueError: it is a folder, is not named .npy, or cannot be written.
    """
    if out.is_dir() or out.suffix != ".npy":
        raise ValueError(f"--out is a .npy file of vectors (--what vectors); got --out {out}.")
    check_writable(out)


def _lines_of_stdin() -> list[str]:
    """Read standard input as rows: line ends divide them, as in a file, and not all that Unicode counts as such."""
    text = sys.stdin.read().removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _share(value: float) -> str:
    """Write a probability, or the number of a regression, with three digits, a small one in powers of ten."""
    return f"{value:.3f}" if abs(value) >= 0.001 else f"{value:.1e}"


def _line(row: dict[str, Any]) -> str:
    """Return a text with its predictions as lines; vectors are JSON for the next program."""
    if "vectors" in row:
        return json.dumps(row["vectors"])
    label = f"{row['text']}\t{row['pair']}" if "pair" in row else row["text"]
    if "labels" in row:
        return f"{label}\n  " + "  ".join(f"{name} {_share(share)}" for name, share in row["labels"].items())
    words = ["  ".join(f"{guess['word']} {_share(guess['probability'])}" for guess in mask) for mask in row["words"]]
    return "\n  ".join([label, *words])
