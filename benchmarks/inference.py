"""Forward passes on one thread in float32, without gradients: ours against transformers' encoders of the same shape,
and the graphs that both export.

The budget is what the multiplications say, and a tenth: `FlopCounterMode` counts them with attention as products.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertModel, ModernBertModel

import whatwhere as ww
from whatwhere.corpus import load_tokenizer
from whatwhere.encoder import EncoderConfig
from whatwhere.models.export import MODEL

from .models import VOCAB, theirs
from .timing import Results, Settings, alternate, clock, figure, row

PEERS = {"dstg": ("BERT of its shape", "bert"), "rope": ("ModernBERT", "modernbert"), "bert-a": ("BERT", "bert")}
SHAPES: dict[str, list[tuple[str, list[tuple[int, int]]]]] = {  # rows, tokens in a row
    "full": [
        ("tiny", [(1, 32), (1, 128), (1, 512), (8, 128), (32, 32), (32, 128), (32, 512)]),
        ("paper", [(1, 32), (1, 128), (2, 128), (1, 512), (8, 128), (32, 32)]),
    ],
    "quick": [("tiny", [(1, 32), (1, 512), (32, 128)]), ("paper", [(1, 128)])],
    "micro": [("tiny", [(1, 8), (2, 16)])],
}
EXPORTED = {"full": ("tiny", "paper"), "quick": ("tiny",), "micro": ("tiny",)}
OVER = 1.1
MORE = 2  # times as many rounds as elsewhere: a pass takes milliseconds


def encoder(name: str, size: str, vocab: int) -> ww.Encoder:
    """A preset with random weights, its biases among them: equal ones would be shared in a graph."""
    torch.manual_seed(0)
    model = ww.Encoder(ww.preset(name, size, vocab_size=vocab, max_position_embeddings=512)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    return model


def peer(kind: str, config: EncoderConfig) -> BertModel | ModernBertModel:
    """transformers' encoder in the shape of a configuration, without its head."""
    model = theirs(kind, config).base_model.eval()
    assert isinstance(model, BertModel | ModernBertModel)
    return model


def operations(model: Any, ids: torch.Tensor) -> int:
    """Multiplications and additions of a forward pass's products."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        model(ids)
    model.set_attn_implementation(before)
    return int(counter.get_total_flops())


def texts(vocab: int, b: int, n: int) -> torch.Tensor:
    """Ids (b, n) between [CLS] and [SEP], nothing padded."""
    ids = torch.randint(5, vocab, (b, n), generator=torch.Generator().manual_seed(0))
    ids[:, 0] = 2
    ids[:, -1] = 3
    return ids


def inference(settings: Settings) -> Results:
    """Each of ours against its peer, eager; then dstg and its peer as exported graphs."""
    results = Results()
    vocab = VOCAB[settings.scale]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for size, shapes in SHAPES[settings.scale]:
            for name, (title, kind) in PEERS.items():
                if settings.scale == "micro" and name != "dstg":
                    continue
                own = encoder(name, size, vocab)
                _against(name, own, title, peer(kind, own.config), size, shapes, vocab, settings, results)
            if size in EXPORTED[settings.scale]:
                _exported(size, shapes, vocab, settings, results)
    finally:
        torch.set_num_threads(threads)
    return results


def _against(
    name: str,
    own: Any,
    title: str,
    other: Any,
    size: str,
    shapes: list[tuple[int, int]],
    vocab: int,
    settings: Settings,
    results: Results,
) -> None:
    for b, n in shapes:
        ids = texts(vocab, b, n)
        said = operations(own, ids) / operations(other, ids)
        times = _times({name: partial(own, ids), title: partial(other, ids)}, settings)
        what = f"forward pass, {name} / {title}"
        shape = f"{size}, n = {n}, b = {b}"
        note = f"operations {said:.2f}"
        first, second = (figure(each, times[each]) for each in (name, title))
        results.rows.append(row(what, shape, first, second, at_most=round(OVER * said, 2), note=note))


def _times(runs: dict[str, Callable[[], Any]], settings: Settings) -> dict[str, list[float]]:
    with torch.inference_mode():
        times: dict[str, list[float]] = alternate(runs, MORE * settings.repeats, clock)
    return times


def _exported(size: str, shapes: list[tuple[int, int]], vocab: int, settings: Settings, results: Results) -> None:
    tokenizer = load_tokenizer("reference")
    own = encoder("dstg", size, max(vocab, len(tokenizer)))  # an export refuses a table with fewer rows
    models = {"dstg": own, "BERT of its shape": peer("bert", own.config)}
    with tempfile.TemporaryDirectory() as place:
        graphs = {}
        for name, model in models.items():
            folder = Path(place) / name.split()[0]
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            ww.export(folder, folder / "graph", what="vectors")
            graphs[name] = _session(folder / "graph" / MODEL)
        for b, n in shapes:
            ids = texts(vocab, b, n)
            given = {"input_ids": ids.numpy(), "attention_mask": torch.ones_like(ids).numpy()}
            types = {"token_type_ids": torch.zeros_like(ids).numpy()}
            runs: dict[str, Callable[[], Any]] = {"dstg": partial(own, ids)}
            for name, graph in graphs.items():
                inputs = given | (types if len(graph.get_inputs()) > 2 else {})
                runs[f"{name}, exported"] = partial(graph.run, None, inputs)
            times = _times(runs, settings)
            graph, other, eager = (
                figure(k, times[k]) for k in ("dstg, exported", "BERT of its shape, exported", "dstg")
            )
            shape = f"{size}, n = {n}, b = {b}"
            results.rows.append(row("forward pass, dstg exported / dstg", shape, graph, eager))
            results.rows.append(row("forward pass, dstg exported / BERT of its shape exported", shape, graph, other))


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
