"""A trained model as an ONNX graph for onnxruntime, of any batch and length that it reads, checked against torch."""

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from ..corpus.python_docs import PythonDocs
from ..corpus.tokenizer import save_tokenizer
from ..encoder import EncoderConfig
from ..run.errors import one_line
from ..run.files import sweep_beside, write_json
from ..run.folder import RunFolder
from .lengths import max_tokens
from .predict import Predictor
from .sentence import pooled

MODEL = "model.onnx"
TOKENIZER = "tokenizer.json"
FACTS = "export.json"
KIND = "export"
OF_WORDS = (1, 2, 5, 17, 50, 120, 300, 500)  # words of the real texts that an export is tried with
OF_TEXTS = 1e-5  # most difference of these: of probabilities, or relative to the largest number of a vector
TOLERANCE = 1e-4  # of the largest value that torch gives: float32, sums in another order
NEEDED = ("onnx", "onnxruntime", "onnxscript")


class _Graph(nn.Module):
    """The module that is exported: ids and masks in, logits or one vector of each text out."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.model = predictor.model
        self.what = predictor.what
        self.parts = predictor.parts
        self.maps = nn.ModuleList(() if self.parts is None else self.parts.after)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, **types)
        if self.what == "vectors":
            if self.parts is None:
                return pooled(output.last_hidden_state, attention_mask, "mean")
            return self.parts.finish(self.parts.pool(output.last_hidden_state, attention_mask))
        logits: Tensor = output.logits
        return logits


def export(model: str | Path, out: str | Path, *, what: str | None = None, progress: bool = False) -> dict[str, Any]:
    """Write a folder that onnxruntime opens, with model.onnx, the tokenizer, the configuration and export.json.

    Inputs of the graph: `input_ids` and `attention_mask` (batch, length) int64, also `token_type_ids` where the model
    has them. Padding may stand on either side of a text, not inside. Output: `logits` (batch, length, V) of words or
    (batch, labels), or `vectors` (batch, width): the mean of the states, or of a sentence-transformers folder what its
    modules.json says, but for its prompt; float32. The graph is compared with torch at other, padded shapes, and what
    it says of real texts, read by the exported tokenizer.json alone, with `predict`, before the folder appears, in
    place of an earlier export.

    Args:
        model: a folder of ours or of transformers, a Hub name, or "reference".
        what: "words", "labels" or "vectors"; None: labels of a classifier, else words, or vectors of a bare encoder.
        progress: say on stderr, once the input is good, that the work begins.

    Returns:
        The content of export.json: what, inputs, output, longest input in tokens, prompt (to put before each text,
            where modules.json has one), largest relative difference from torch.

    Raises:
        ValueError: a package is missing, no such model or head, `out` holds something else or is being written, the
            graph and torch differ by more than `TOLERANCE`, or the graph says something else of a text than `predict`.
    """
    out = Path(out)
    RunFolder.check_can_create(out, KIND, replaces=True)
    predictor = Predictor(model, what)
    if lacking := [name for name in NEEDED if find_spec(name) is None]:
        raise ValueError(f"ONNX needs {', '.join(lacking)}: pip install 'whatwhere[onnx]'.")
    graph = _Graph(predictor).eval()
    longest = _max_tokens_of_graph(predictor)
    inputs = _inputs(predictor, 2, min(17, longest or 17))
    output = "vectors" if predictor.what == "vectors" else "logits"
    sweep_beside(out)
    if progress:  # no part of the work tells how far it is
        replaces = f", in place of the export that {out} holds" if (out / MODEL).is_file() else ""
        words = f"Writing the graph of {model} and comparing it with torch{replaces}: half a minute or more."
        print(words, file=sys.stderr)
    with RunFolder.create_locked(out, KIND, replaces=True) as folder:
        with _silent(str(model)), _eager(predictor.model):
            batch = torch.export.Dim("batch", min=1)
            length = torch.export.Dim("length", min=2, max=longest)
            program = torch.onnx.export(
                graph,
                kwargs=inputs,
                dynamo=True,
                dynamic_shapes={name: {0: batch, 1: length} for name in inputs},
                input_names=list(inputs),
                output_names=[output],
                verbose=False,
            )
            assert program is not None
            program.save(folder / MODEL)
        save_tokenizer(predictor.tokenizer, folder)
        if predictor.cuts:  # so that whoever reads tokenizer.json alone cuts texts where `predict` does
            tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            tokenizer.enable_truncation(predictor.longest)
            tokenizer.save(str(folder / TOKENIZER))
        parts = predictor.parts
        prompt = {"prompt": parts.prompt} if parts is not None and parts.prompt else {}
        facts = {
            "what": predictor.what,
            "inputs": list(inputs),
            "output": output,
            "longest": longest,
            **prompt,
            "largest_difference": _check(graph, predictor, folder / MODEL, longest),
        }
        _check_texts(predictor, folder)
        predictor.model.config.save_pretrained(folder)
        write_json(folder / FACTS, facts)
    return facts


def _max_tokens_of_graph(predictor: Predictor) -> int | None:
    """Return the most tokens that an exported graph may be given; None where nothing bounds them.

    No position is read that no training has reached, and no more of a text than sentence-transformers reads.
    """
    in_table = max_tokens(predictor.model.config)
    is_ours = predictor.model.config.model_type == EncoderConfig.model_type
    return predictor.longest if predictor.cuts or (is_ours and in_table is not None) else in_table


def _inputs(predictor: Predictor, batch: int, length: int) -> dict[str, Tensor]:
    """Draw words between special tokens, padded on the right in the last text, on the left in the first of three."""
    generator = torch.Generator().manual_seed(0)
    tokenizer = predictor.tokenizer
    ids = torch.randint(0, predictor.model.config.vocab_size, (batch, length), generator=generator)
    for place, token in ((0, tokenizer.cls_token_id), (-1, tokenizer.sep_token_id)):
        if token is not None:
            ids[:, place] = token
    mask = torch.ones_like(ids)
    if batch > 1:
        mask[-1, length // 2 :] = 0
    if batch > 2:
        mask[0, : length // 3] = 0  # on the left, as some tokenizers do
    if tokenizer.pad_token_id is not None:  # RoBERTa counts its positions by it
        ids = torch.where(ids == tokenizer.pad_token_id, abs(tokenizer.pad_token_id - 1), ids)
        ids = torch.where(mask.bool(), ids, tokenizer.pad_token_id)
    types = {"token_type_ids": torch.zeros_like(ids)} if predictor.types else {}
    return {"input_ids": ids, "attention_mask": mask, **types}


@torch.inference_mode()
def _check(graph: nn.Module, predictor: Predictor, path: Path, longest: int | None) -> float:
    """Return the largest difference between onnxruntime and torch, relative to the largest value, at three shapes.

    Raises:
        ValueError: it is above the tolerance.
    """
    session = _session(path)
    worst = 0.0
    for batch, length in ((1, 5), (3, 2), (4, min(longest or 64, 64))):
        inputs = _inputs(predictor, batch, min(length, longest or length))
        expected = graph(**inputs).numpy()
        (actual,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        if actual.shape != expected.shape:
            raise ValueError(
                f"The graph of {predictor.name} gives {actual.shape}, torch {expected.shape}. Report this."
            )
        if expected.ndim == 3:
            is_text = inputs["attention_mask"].bool().numpy()
            expected = expected[is_text]
            actual = actual[is_text]
        worst = max(worst, float(np.abs(actual - expected).max() / np.abs(expected).max()))
    if not worst <= TOLERANCE:
        raise ValueError(
            f"The graph of {predictor.name} differs from torch by {worst:.2g} of the largest value, more than "
            f"{TOLERANCE:g}. Nothing was written; report this with the versions of whatwhere doctor."
        )
    return worst


def _check_texts(predictor: Predictor, folder: Path) -> None:
    """Compare what an exported folder says of real texts with `predict`: read by its tokenizer.json, and no other file.

    All that the tokenizer gives counts as text, so that padding shows.

    Raises:
        ValueError: they differ by more than `OF_TEXTS`.
    """
    session = _session(folder / MODEL)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    words = " ".join(islice(PythonDocs(every=500).documents(), 40)).split()
    prompt = predictor.parts.prompt if predictor.parts is not None else ""
    mask = predictor.tokenizer.mask_token if predictor.what == "words" else None
    for count in OF_WORDS:
        chosen = words[:count]
        if mask is not None:
            chosen[count // 2] = str(mask)
        text = " ".join(chosen)
        encoded = tokenizer.encode(prompt + text)
        if len(encoded.ids) > predictor.longest and count > 1:
            return
        rows = {"input_ids": encoded.ids, "attention_mask": [1] * len(encoded.ids), "token_type_ids": encoded.type_ids}
        inputs = {entry.name: np.array([rows[entry.name]], np.int64) for entry in session.get_inputs()}
        (actual,) = session.run(None, inputs)
        (expected,) = predictor([text], top=1)
        if predictor.what == "labels":
            label, probability = next(iter(expected.items()))
            difference = abs(
                predictor.labels(torch.from_numpy(actual).double(), len(actual[0]))[0][label] - probability
            )
        elif predictor.what == "words":
            place = encoded.ids.index(predictor.tokenizer.mask_token_id)
            ((likeliest,),) = expected
            probability = likeliest["probability"]
            difference = abs(predictor.likeliest(torch.from_numpy(actual[0, place]), 1)[0]["probability"] - probability)
        else:
            difference = float(np.abs(actual[0] - expected).max() / np.abs(expected).max())
        if not difference <= OF_TEXTS:
            raise ValueError(
                f"The exported folder of {predictor.name} says something else of a text of {len(chosen)} words than "
                f"whatwhere predict: {difference:.2g} apart. Nothing was written; report this with the versions of "
                "whatwhere doctor."
            )


def _session(path: Path) -> Any:
    """Open a graph on the processor."""
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@contextlib.contextmanager
def _silent(model: str) -> Iterator[None]:
    """Silence the exporter's remarks, and turn its errors into one line that names the model."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    except (torch.onnx.OnnxExporterError, RuntimeError, TypeError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise ValueError(
            f"{model} does not become one graph of any length ({one_line(cause)}). Run it here: whatwhere predict."
        ) from None
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def _eager(model: Any) -> Iterator[None]:
    """Compute attention as products and a softmax while the model is exported.

    torch 2.13 exports strides of the fused call that the graph has not. Padding must stand on one side of a text, or
    both.
    """
    before = model.config._attn_implementation
    body = model.base_model
    model.set_attn_implementation("eager")
    body.assumes_consecutive_positions = True  # our models read it
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        body.assumes_consecutive_positions = False
