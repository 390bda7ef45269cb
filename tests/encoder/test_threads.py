"""Threads that read one model: what one inspects, changes or computes without dropout is nothing to the others."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch
from encoder_models import VOCAB, build

THREADS = 8
ROUNDS = 12


def texts(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    rows = [torch.randint(5, VOCAB, (1, 5 + i), generator=generator) for i in range(count)]
    for row in rows:
        row[:, 0] = 2
        row[:, -1] = 3
    return rows


def test_inspecting_is_of_one_thread():
    """Odd threads remove a term while even ones predict: logits of these stay as alone, and each sees its own text.

    The callbacks were the model's: others' logits moved by 7, and terms of other texts came in.
    """
    model = build("dstg")
    rows = texts(THREADS)
    with torch.no_grad():
        alone = [model(ids).logits for ids in rows]
    start = Barrier(THREADS)

    def work(number: int) -> tuple[float, set[int]]:
        ids = rows[number]
        lengths = set()
        worst = 0.0

        def see(block, terms, allowed):
            lengths.add(terms["semantic"].shape[-1])
            return {**terms, "semantic": terms["semantic"] * 0}

        start.wait()
        with torch.no_grad():
            for _ in range(ROUNDS):
                if number % 2:
                    with model.inspect_terms(see):
                        changed = model(ids).logits
                    assert (changed - alone[number]).abs().max() > 1e-3
                else:
                    worst = max(worst, float((model(ids).logits - alone[number]).abs().max()))
        return worst, lengths

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS)))
    assert [worst for worst, _ in results] == [0.0] * THREADS
    assert [lengths for _, lengths in results] == [{5 + i} if i % 2 else set() for i in range(THREADS)]
    with torch.no_grad():
        assert all(torch.equal(model(ids).logits, before) for ids, before in zip(rows, alone, strict=True))


def test_terms_of_threads_are_of_their_texts():
    """Terms computed at once in eight threads equal those computed one after another; a training model stays one.

    They raised for texts of unequal length, and the model was left in evaluation mode.
    """
    model = build("tupe-r").train()
    rows = texts(THREADS)
    alone = [model.attention_terms(input_ids=ids) for ids in rows]
    start = Barrier(THREADS)

    def work(number: int) -> bool:
        start.wait()
        terms = [model.attention_terms(input_ids=rows[number]) for _ in range(ROUNDS)]
        return all(torch.equal(one[name], term) for one in terms for name, term in alone[number].items())

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))
    assert all(module.training for module in model.modules())


def test_overlapping_inspections_leave_nothing_behind(ids):
    """Inspections closed in the order in which they began leave no callback."""
    model = build("rope")
    seen = []
    one, other = (model.inspect_terms(lambda block, terms, allowed, name=name: seen.append(name)) for name in "ab")
    one.__enter__()
    other.__enter__()
    model(ids)
    one.__exit__(None, None, None)
    model(ids)
    other.__exit__(None, None, None)
    model(ids)
    assert seen == ["b"] * 4
