"""What is wanted from an accelerator, in order: correctness on CUDA, speed, a paper-size study. Results as records and one table.

Run: python benchmarks/gpu.py --out docs/results/DATE-NAME [--parts correctness,speed,study] [--corpus SPEC] [--minutes 18] [--tiny]
`--tiny` runs every line on small shapes, on a CPU too.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM

import whatwhere as ww
from whatwhere.encoder import PRESETS
from whatwhere.encoder.attention import BACKENDS
from whatwhere.records import Record, write_records
from whatwhere.study.config import StudyConfig
from whatwhere.study.run import run_study

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 8e-2}  # largest error over the largest value of the float64 reference


def inputs(vocab: int, b: int, n: int, padded: bool) -> dict[str, torch.Tensor]:
    """Random ids with special tokens at the ends and in the middle, a fifth labelled; the last row half padded if asked."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, vocab, (b, n), generator=generator)
    ids[:, 0], ids[:, n // 3], ids[:, -1] = 2, 3, 3
    mask = torch.ones_like(ids)
    if padded:
        mask[-1, n // 2 :] = 0
    labels = torch.where((torch.rand(b, n, generator=generator) < 0.2) & (mask == 1), ids, -100)
    batch = {"input_ids": ids, "labels": labels, **({"attention_mask": mask} if padded else {})}
    return {key: value.to(DEVICE) for key, value in batch.items()}


def gradients(model: Any, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    out = model(**batch)
    out.loss.backward()
    found = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": out.logits.detach().double(), **found}


def correctness(tiny: bool) -> tuple[list[Record], list[str]]:
    """Logits and every parameter's gradient of each preset and backend against float64 eager on the same weights."""
    torch.backends.cuda.matmul.allow_tf32 = False
    n, size = (24, "tiny") if tiny else (200, "small")
    records, lines = [], ["| preset | backend | type | largest relative error | where |", "| --- | --- | --- | --- | --- |"]
    for name in PRESETS:
        reference = ww.EncoderForMaskedLM(ww.preset(name, size, vocab_size=500)).double().to(DEVICE).eval()
        with torch.no_grad():
            for key, parameter in reference.named_parameters():
                if "relative" in key:
                    parameter.normal_()  # the zeros that the tables start with would hide mistakes
        reference.set_attn_implementation("eager")
        batch = inputs(500, 4, n, padded=True)
        expected = gradients(reference, batch)
        for backend in BACKENDS:
            for dtype, tolerance in TOLERANCE.items():
                model = ww.EncoderForMaskedLM(reference.config).to(DEVICE, dtype).eval()
                model.load_state_dict(reference.state_dict())
                model.set_attn_implementation(backend)
                found = gradients(model, batch)
                errors = {k: float((found[k] - v).abs().max() / v.abs().max().clamp(min=1e-6)) for k, v in expected.items()}
                worst = max(errors, key=lambda k: errors[k])
                kind = str(dtype).removeprefix("torch.")
                verdict = "" if errors[worst] <= tolerance else " **over tolerance**"
                lines.append(f"| {name} | {backend} | {kind} | {errors[worst]:.1e}{verdict} | {worst} |")
                records.append(Record("gpu", name, f"error.{backend}.{kind}", errors[worst]))
    return records, lines


def theirs(name: str, n: int, tiny: bool, vocab: int) -> Any:
    """transformers' BERT or ModernBERT of the paper baselines' shape."""
    shape = {"hidden_size": 120, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 480}
    if not tiny:
        shape = {"hidden_size": 720, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 2880}
    common = {**shape, "vocab_size": vocab, "max_position_embeddings": n, "attn_implementation": "sdpa"}
    if name == "bert":
        return BertForMaskedLM(BertConfig(**common))
    return ModernBertForMaskedLM(ModernBertConfig(**common, global_attn_every_n_layers=1, pad_token_id=0, cls_token_id=2, sep_token_id=3))


def speed(tiny: bool) -> tuple[list[Record], list[str]]:
    """Training tokens a second and peak memory at paper size, with transformers' models beside ours."""
    lengths, tokens, repeats, vocab = ((32, 64), 256, 2, 500) if tiny else ((128, 512, 2048, 8192), 131_072, 10, 30_522)
    records, lines = [], ["| n | model | backend | tokens/s | peak GiB | time / ap sdpa |", "| --- | --- | --- | --- | --- | --- |"]
    for n in lengths:
        base = None
        ours = [(name, backend) for name in ("ap", "dstg", "rp", "rope") for backend in reversed(BACKENDS)]
        for name, backend in [*ours, ("bert", "sdpa"), ("modernbert", "sdpa")]:
            try:
                if name in PRESETS:
                    size = "tiny" if tiny else "paper"
                    model: Any = ww.EncoderForMaskedLM(ww.preset(name, size, vocab_size=vocab, max_position_embeddings=max(n, 128)))
                    model.set_attn_implementation(backend)
                else:
                    model = theirs(name, n, tiny, vocab)
                seconds, memory = time_steps(model.to(DEVICE), inputs(vocab, max(1, tokens // n), n, padded=False), repeats)
            except torch.cuda.OutOfMemoryError:
                lines.append(f"| {n} | {name} | {backend} | out of memory | | |")
                torch.cuda.empty_cache()
                continue
            base = base or seconds
            rate = max(1, tokens // n) * n / seconds
            lines.append(f"| {n} | {name} | {backend} | {rate:,.0f} | {memory / 2**30:.2f} | {seconds / base:.2f} |")
            records.append(Record("gpu", name, f"tokens_per_second.{backend}.{n}", rate, unit="tokens/s"))
            records.append(Record("gpu", name, f"memory.peak.{backend}.{n}", float(memory), unit="bytes"))
    return records, lines


def time_steps(model: Any, batch: dict[str, torch.Tensor], repeats: int) -> tuple[float, int]:
    """Median seconds of a bf16 training step after three warm-up steps, and peak memory in bytes (0 on a CPU)."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(repeats + 3):
        began = time.perf_counter()
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return median(times[3:]), torch.cuda.max_memory_allocated() if DEVICE.type == "cuda" else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--parts", default="correctness,speed,study", help="which parts, with commas")
    parser.add_argument("--corpus", default="python-docs", help="corpus of the study")
    parser.add_argument("--tokenizer", default=None, help="vocabulary file, tokenizer folder or Hub name")
    parser.add_argument("--minutes", type=float, default=18.0, help="minutes of the study")
    parser.add_argument("--tiny", action="store_true", help="small shapes, a short study")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for part, measure in (("correctness", correctness), ("speed", speed)):
        if part in arguments.parts.split(","):
            records, lines = measure(arguments.tiny)
            write_records(arguments.out / f"{part}.parquet", records)
            (arguments.out / f"{part}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
            print("\n".join(lines), flush=True)
    if "study" in arguments.parts.split(","):
        size = "tiny" if arguments.tiny else "paper"
        config = StudyConfig.load(
            None, corpus=arguments.corpus, tokenizer=arguments.tokenizer, size=size, minutes=arguments.minutes, length=None
        )
        print(run_study(config, arguments.out / "study"), flush=True)


if __name__ == "__main__":
    main()
