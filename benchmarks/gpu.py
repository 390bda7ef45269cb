"""What is wanted from an accelerator, in order: correctness on CUDA, speed, a paper-size study. Results as records and
one table.

Run: python -m benchmarks.gpu --out docs/results/DATE-NAME [--parts correctness,speed,study] [--corpus SPEC] [--minutes
18] [--models NAME,NAME] [--lengths 128,512] [--tiny] `--tiny` runs every line on small shapes, on a CPU too, where
flex_attention has no backward pass and is passed over.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import whatwhere as ww
from whatwhere.encoder import PRESETS
from whatwhere.encoder.attention import BACKENDS
from whatwhere.records.record import Record, write_records
from whatwhere.study.study import run_study
from whatwhere.study.study_settings import StudyConfig

from .models import masked_batch, options, ours, theirs, training_step
from .timing import DEVICE, clock

# Largest error over the largest value of the float64 reference. With the normalised residual the gradients of the last
# norms are 0.095 off in bfloat16 in `nope` and `rope`, as much with eager as with sdpa.
TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 0.12}
SPEED = ("ap", "dstg", "rp", "rope", "tupe-r", "split")
LENGTHS = (128, 512, 2048, 8192)


def gradients(model: Any, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Logits and the gradient of every parameter, in float64."""
    model.zero_grad()
    out = model(**batch, **options(model))
    out.loss.backward()
    found = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": out.logits.detach().double(), **found}


def correctness(models: Sequence[str], tiny: bool) -> tuple[list[Record], list[str]]:
    """Logits and every parameter's gradient of each preset and backend against float64 eager on the same weights.

    An error is the largest difference over the largest value; in bf16 over at least a hundredth of the largest gradient
    of the model, as nearly vanishing gradients are all rounding there.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    n, size = (24, "tiny") if tiny else (200, "small")
    records: list[Record] = []
    lines: list[str] = []
    show(lines, "| preset | backend | type | largest relative error | where |")
    show(lines, "| --- | --- | --- | --- | --- |")
    batch = masked_batch(500, 4, n, padded=True)
    for name in models:
        reference = ours(ww.preset(name, size, vocab_size=500), "eager").double().eval()
        with torch.no_grad():
            for parameter in reference.parameters():
                if not parameter.any():
                    parameter.normal_()  # the zeros that biases and tables start with would hide mistakes
        expected = gradients(reference, batch)
        size_of = {key: float(value.abs().max()) for key, value in expected.items()}
        steepest = max(value for key, value in size_of.items() if key != "logits")
        for backend in BACKENDS:
            for dtype, tolerance in TOLERANCE.items():
                kind = str(dtype).removeprefix("torch.")
                model = ww.EncoderForMaskedLM(reference.config).to(DEVICE, dtype).eval()
                model.load_state_dict(reference.state_dict())
                model.set_attn_implementation(backend)
                try:
                    found = gradients(model, batch)
                except ValueError as refused:  # a pair that is declared not to work says so
                    show(lines, f"| {name} | {backend} | {kind} | not run | {refused} |")
                    continue
                except Exception as error:  # of a compiler, a kernel: one row more, and the rest is measured
                    show(lines, f"| {name} | {backend} | {kind} | **failed** | {first_line(error)} |")
                    continue
                least = 1e-6 if dtype is torch.float32 else steepest / 100
                errors = {k: float((found[k] - v).abs().max()) / max(size_of[k], least) for k, v in expected.items()}
                worst = max(errors, key=lambda k: errors[k])
                verdict = "" if errors[worst] <= tolerance else " **over tolerance**"
                show(lines, f"| {name} | {backend} | {kind} | {errors[worst]:.1e}{verdict} | {worst} |")
                records.append(Record("gpu", name, f"error.{backend}.{kind}", errors[worst]))
    return records, lines


def show(lines: list[str], line: str) -> None:
    """Add a line to a table and print it: a run that is cut short leaves what it has measured."""
    lines.append(line)
    print(line, flush=True)


def first_line(error: Exception) -> str:
    """The first words of what a library says went wrong."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def ceiling(size: int, repeats: int) -> float:
    """Operations a second of a square bf16 product."""
    a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    seconds = [clock(lambda: a @ b) for _ in range(repeats + 3)]
    return 2 * size**3 / median(seconds[3:])


def operations(model: Any, n: int, vocab: int) -> float:
    """Operations of one row's forward and backward pass, counted by torch with the matrices of eager attention."""
    batch = masked_batch(vocab, 1, n)
    with FlopCounterMode(display=False) as counter:
        model(**batch, **options(model)).loss.backward()
    model.zero_grad()
    return counter.get_total_flops()


def speed(models: Sequence[str], lengths: Sequence[int], tiny: bool) -> tuple[list[Record], list[str]]:
    """Training tokens a second, peak memory and share of the bf16 ceiling at paper size; transformers' models beside
    ours, no dropout."""
    tokens, repeats, vocab = (256, 2, 500) if tiny else (131_072, 10, 30_522)
    size = "tiny" if tiny else "paper"
    best = ceiling(256 if tiny else 8192, repeats)
    records = [Record("gpu", "matmul", "ceiling.bf16", best, unit="operations/s")]
    lines: list[str] = []
    show(lines, f"bf16 ceiling: {best / 1e12:.2f} Tflop/s\n")
    show(lines, "| n | model | backend | tokens/s | peak GiB | of ceiling | time / base |")
    show(lines, "| --- | --- | --- | --- | --- | --- | --- |")
    for n in lengths:
        rows = max(1, tokens // n)
        for name in models:
            config = ww.preset(name, size, vocab_size=vocab, max_position_embeddings=max(n, 128), dropout=0.0)
            peer = {"ap": "modernbert", "tupe-r": "bert"}.get(name)  # of the same block and shape
            cells = [(name, backend) for backend in ("sdpa", "flex_attention", "eager")] + (
                [(peer, "sdpa")] if peer else []
            )
            base = None
            work = None
            for label, backend in cells:
                torch.cuda.empty_cache()
                try:
                    model: Any = ours(config, backend) if label == name else theirs(label, config)
                    if work is None:
                        model.set_attn_implementation("eager")
                        work = operations(model, n, vocab)
                        model.set_attn_implementation(backend)
                    seconds, memory = time_steps(model, masked_batch(vocab, rows, n), repeats)
                except torch.cuda.OutOfMemoryError:
                    show(lines, f"| {n} | {label} | {backend} | out of memory | | | |")
                    continue
                except ValueError as refused:
                    show(lines, f"| {n} | {label} | {backend} | not run: {refused} | | | |")
                    continue
                except Exception as error:
                    show(lines, f"| {n} | {label} | {backend} | **failed**: {first_line(error)} | | | |")
                    continue
                base = base or seconds
                share = rows * work / seconds / best
                rate = rows * n / seconds
                figures = f"{rate:,.0f} | {memory / 2**30:.2f} | {share:.2f} | {seconds / base:.2f}"
                show(lines, f"| {n} | {label} | {backend} | {figures} |")
                records.append(Record("gpu", label, f"tokens_per_second.{name}.{backend}.{n}", rate, unit="tokens/s"))
                records.append(Record("gpu", label, f"memory.peak.{name}.{backend}.{n}", float(memory), unit="bytes"))
    show(
        lines,
        "\nBase: the same shape's sdpa. Operations: those of our eager model of that shape, also for transformers'.",
    )
    return records, lines


def time_steps(model: Any, batch: dict[str, torch.Tensor], repeats: int) -> tuple[float, int]:
    """Median seconds of a bf16 training step after three warm-up steps, and peak memory in bytes (0 on a CPU)."""
    cuda = DEVICE.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    step = training_step(model, batch, "bf16")
    times = [clock(step) for _ in range(repeats + 3)]
    return median(times[3:]), torch.cuda.max_memory_allocated() if cuda else 0


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--parts", default="correctness,speed,study", help="which parts, with commas")
    parser.add_argument("--corpus", default="python-docs", help="corpus of the study")
    parser.add_argument("--tokenizer", default=None, help="vocabulary file, tokenizer folder or Hub name")
    parser.add_argument("--minutes", type=float, default=18.0, help="minutes of the study")
    parser.add_argument("--models", default=None, help="presets, with commas; all, and six whose speed is measured")
    parser.add_argument("--lengths", default=None, help="tokens of the rows whose speed is measured, with commas")
    parser.add_argument("--tiny", action="store_true", help="small shapes, a short study")
    arguments = parser.parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = arguments.models.split(",") if arguments.models else None
    lengths = (32, 64) if arguments.tiny else LENGTHS
    if arguments.lengths:
        lengths = tuple(int(n) for n in arguments.lengths.split(","))
    measures = {
        "correctness": lambda: correctness(names or list(PRESETS), arguments.tiny),
        "speed": lambda: speed(names or SPEED, lengths, arguments.tiny),
    }
    for part, measure in measures.items():
        if part in arguments.parts.split(","):
            records, lines = measure()
            write_records(arguments.out / f"{part}.parquet", records)
            (arguments.out / f"{part}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if "study" in arguments.parts.split(","):
        size = "tiny" if arguments.tiny else "paper"
        config = StudyConfig.load(
            None,
            corpus=arguments.corpus,
            tokenizer=arguments.tokenizer,
            size=size,
            minutes=arguments.minutes,
            length=None,
        )
        print(run_study(config, arguments.out / "study"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
