"""Speed of attention and of training steps: fused against eager, and dstg against ap at equal semantic width (CPU or CUDA).

Ratios are medians of alternating runs in one process. Budgets (docs/state.md): fused at least 1.2x eager at 512 tokens, forward and
backward; a dstg step at most 1.25x an ap step on CPU. Run: python benchmarks/bench_attention.py [--quick]
"""

import sys
import time
from collections.abc import Callable
from statistics import median

import torch

import whatwhere as ww
from whatwhere.training.loop import bf16_pays

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB = 30522


def clock(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def alternate(first: Callable[[], None], second: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Median seconds of both, run in turn after one warm-up each."""
    clock(first), clock(second)
    times = [(clock(first), clock(second)) for _ in range(repeats)]
    return median(t[0] for t in times), median(t[1] for t in times)


def token_ids(b: int, n: int) -> torch.Tensor:
    ids = torch.randint(5, VOCAB, (b, n), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -1], ids[:, n // 2] = 2, 3, 3  # [SEP] between two documents, as in run-on windows
    return ids.to(DEVICE)


def show(what: str, first: float, second: float, budget: str) -> None:
    note = f"  budget: {budget}" if budget else ""
    print(f"{what:48} {first * 1e3:9.1f} ms / {second * 1e3:9.1f} ms = {first / second:5.2f}{note}", flush=True)


def attention_alone(n: int, b: int, repeats: int) -> None:
    """One paper-size dstg attention module, forward and backward."""
    model = ww.Encoder(ww.preset("dstg")).to(DEVICE)
    ids = token_ids(b, n)
    layout = model.layout(ids, None, torch.arange(n, device=DEVICE).expand(b, n), None)
    attention = model.layers[0].attention
    streams = tuple(torch.randn(b, n, d, device=DEVICE, requires_grad=True) for d in (48, 720))

    def run(backend: str) -> Callable[[], None]:
        def step() -> None:
            outputs, _ = attention(streams, layout, backend)
            sum(o.sum() for o in outputs).backward()

        return step

    eager, fused = alternate(run("eager"), run("sdpa"), repeats)
    budget = {512: 1.2, 2048: 1.5}.get(n)
    show(f"attention alone, eager / fused, n={n} b={b}", eager, fused, f"at least {budget}" if budget else "")


def training_step(name: str, n: int, b: int, backend: str, size: str = "paper") -> Callable[[], None]:
    config = ww.preset(name, size, vocab_size=VOCAB, max_position_embeddings=max(n, 128))
    model = ww.EncoderForMaskedLM(config).to(DEVICE)
    model.set_attn_implementation(backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = token_ids(b, n)
    labels = torch.where(torch.rand(b, n, generator=torch.Generator().manual_seed(1)).to(DEVICE) < 0.2, ids, -100)

    def step() -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=bf16_pays(DEVICE)):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def steps(n: int, b: int, repeats: int) -> None:
    ours, base = alternate(training_step("dstg", n, b, "sdpa"), training_step("ap", n, b, "sdpa"), repeats)
    show(f"training step, dstg / ap, n={n} b={b}", ours, base, "at most 1.25")
    eager, fused = alternate(training_step("dstg", n, b, "eager"), training_step("dstg", n, b, "sdpa"), repeats)
    show(f"training step, eager / fused, n={n} b={b}", eager, fused, "never below 1")


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    repeats = 3 if quick else 7
    precision = "bf16" if bf16_pays(DEVICE) else "float32"
    print(
        f"{DEVICE}, {torch.get_num_threads()} threads; training steps in {precision}, attention alone in float32; paper size, V = {VOCAB}"
    )
    for n, b in ((128, 16), (512, 4)) if quick else ((128, 32), (512, 8), (2048, 2)):
        attention_alone(n, b, repeats)
    for n, b in ((128, 8),) if quick else ((128, 16), (512, 4)):
        steps(n, b, repeats)


if __name__ == "__main__":
    main()
