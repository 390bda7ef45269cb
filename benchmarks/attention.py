"""Attention alone, fused against eager, and what TUPE's positional correlation costs in a forward pass."""

from collections.abc import Callable

import torch

import whatwhere as ww

from .models import PRECISION, VOCAB, autocast, masked_batch
from .timing import DEVICE, Results, Settings, alternate, figure, row

SHAPES = {"full": [(128, 32), (512, 8), (2048, 2)], "quick": [(128, 16), (512, 4), (2048, 1)], "micro": [(16, 2)]}
AT_LEAST = {512: 1.2, 2048: 1.5}  # dstg, by length
FORWARD = {"full": [(128, 16), (512, 4)], "quick": [(128, 16)], "micro": [(16, 2)]}


def attention(settings: Settings) -> Results:
    """One attention module with its biases, forward and backward, eager / fused."""
    results = Results()
    size = "tiny" if settings.scale == "micro" else "paper"
    for n, b in SHAPES[settings.scale]:
        ids = masked_batch(VOCAB[settings.scale], b, n)["input_ids"]
        for name in ("dstg", "rp", "tupe-r", "ap"):
            fields = {
                "vocab_size": VOCAB[settings.scale],
                "max_position_embeddings": max(n, 128),
                "num_hidden_layers": 1,
            }
            model = ww.Encoder(ww.preset(name, size, **fields)).to(DEVICE).train()
            for precision in dict.fromkeys(("float32", PRECISION)):
                runs = {backend: _alone(model, ids, backend, precision) for backend in ("eager", "sdpa")}
                times = alternate(runs, settings.repeats)
                results.rows.append(
                    row(
                        f"attention alone, {name}, eager / fused",
                        f"{size}, n = {n}, b = {b}, {precision}",
                        figure(f"{name} eager", times["eager"]),
                        figure(f"{name} sdpa", times["sdpa"]),
                        at_least=AT_LEAST.get(n) if name == "dstg" else None,
                        note=f"forward and backward, dropout {model.config.dropout:g}",
                    )
                )
    return results


def _alone(model: ww.Encoder, ids: torch.Tensor, backend: str, precision: str) -> Callable[[], None]:
    streams = tuple(torch.randn(*ids.shape, d, device=DEVICE, requires_grad=True) for d in model.config.stream_sizes)
    module = model.layers[0].attention

    def step() -> None:
        with autocast(precision):
            outputs, _ = module(streams, model.attention_inputs(ids, None, None, None), backend)
        torch.autograd.backward([o.sum() for o in outputs])
        for tensor in (*streams, *model.parameters()):
            tensor.grad = None

    return step


def positional(settings: Settings) -> Results:
    """TUPE's correlation pU_Q·pU_K with θ1, θ2 over a forward pass of the encoder, and the pass against bert-a's."""
    results = Results()
    size = "tiny" if settings.scale == "micro" else "paper"
    for n, b in FORWARD[settings.scale]:
        ids = masked_batch(VOCAB[settings.scale], b, n)["input_ids"]
        fields = {"vocab_size": VOCAB[settings.scale], "max_position_embeddings": max(n, 128)}
        models = {
            name: ww.Encoder(ww.preset(name, size, **fields)).to(DEVICE).eval()
            for name in ("bert-a", "tupe-a", "tupe-r")
        }
        runs: dict[str, Callable[[], object]] = {name: _forward(model, ids) for name, model in models.items()}
        times = alternate(runs | {"correlation": _correlation(models["tupe-a"], ids)}, settings.repeats)
        timed = {name: figure(name, values) for name, values in times.items()}
        shape = f"{size}, n = {n}, b = {b}, {PRECISION}"
        note = "forward only, no gradients"
        what = "TUPE's positional correlation / forward pass of tupe-a"
        results.rows.append(row(what, shape, timed["correlation"], timed["tupe-a"], at_most=0.05, note=note))
        for name in ("tupe-a", "tupe-r"):
            results.rows.append(row(f"forward pass, {name} / bert-a", shape, timed[name], timed["bert-a"], note=note))
    return results


def _forward(model: ww.Encoder, ids: torch.Tensor) -> Callable[[], object]:
    @torch.no_grad()
    def run() -> object:
        with autocast():
            return model(ids)

    return run


def _correlation(model: ww.Encoder, ids: torch.Tensor) -> Callable[[], object]:
    positions = torch.arange(ids.shape[1], device=DEVICE)[None]
    cls = ids == model.config.cls_token_id
    assert model.untied is not None
    untied = model.untied

    @torch.no_grad()
    def run() -> object:
        with autocast():
            return untied(model.position_table(), positions, cls)

    return run
