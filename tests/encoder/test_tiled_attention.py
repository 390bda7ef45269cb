"""Attention in tiles: outputs and gradients against the plain computation."""

import itertools

import pytest
import torch
from torch import Tensor

from whatwhere.encoder import tiled_attention
from whatwhere.encoder.tiled_attention import attend_in_tiles

B = 3
H = 2
N = 7
D_QK = 5
D_V = 4
SCALE = 0.4
BASES = ["none", "batch", "shared", "distance"]
MASKS = ["none", "padding", "packing", "nothing"]
VALUES = [0, 2, 3]  # kinds of tokens with values of their own in pairs: none, special ones alike, two kinds of them
COMBINATIONS = list(itertools.product(BASES, VALUES, MASKS))


def eager(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    base: Tensor | None,
    values: Tensor | None,
    special: Tensor,
    allowed: Tensor | None,
    scale: float,
    factors: Tensor | float = 1.0,
    ahead: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """The definition; `factors` (b, h, n, n) are those of dropout, `ahead` other queries and keys, and where."""
    n = q.shape[2]
    bias = torch.zeros(1, dtype=q.dtype) if base is None else base
    if bias.dim() == 2:
        i = torch.arange(n)
        bias = bias[:, i[None, :] - i[:, None] + n - 1][None]
    if values is not None:
        pairs = values[special[:, :, None], special[:, None, :]].permute(0, 3, 1, 2)  # by the kinds of query and key
        bias = torch.where(((special[:, :, None] > 0) | (special[:, None, :] > 0))[:, None], pairs, bias)
    scores = scale * q @ k.transpose(-1, -2)
    if ahead is not None:
        scores = torch.where(ahead[2], scale * ahead[0] @ ahead[1].transpose(-1, -2), scores)
    scores = scores + bias
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    return scores.softmax(-1) * factors @ v


def inputs(base: str, kinds: int, dtype: torch.dtype = torch.float64, n: int = N) -> list[Tensor | None]:
    """q, k, v, base, values, special."""
    generator = torch.Generator().manual_seed(3)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()

    shape = {"none": None, "batch": (B, H, n, n), "shared": (1, H, n, n), "distance": (H, 2 * n - 1)}[base]
    special = torch.zeros(B, n, dtype=torch.long)
    special[0, 0] = 1  # none in the second example
    special[0, -1] = 1
    special[2, 1] = 1
    special[0, n // 2] = max(kinds - 1, 1)
    special[2, 2] = max(kinds - 1, 1)
    q = leaf(B, H, n, D_QK)
    k = leaf(B, H, n, D_QK)
    v = leaf(B, H, n, D_V)
    return [q, k, v, leaf(*shape) if shape else None, leaf(kinds, kinds, H) if kinds else None, special]


def mask(kind: str, n: int = N) -> Tensor | None:
    lengths = torch.tensor([n, n - 2, 2])
    if kind == "none":
        return None
    if kind == "padding":
        return (torch.arange(n) < lengths[:, None])[:, None, None]
    if kind == "nothing":  # the second example has no token, the first no key for its query 1
        allowed = torch.ones(B, 1, n, n, dtype=torch.bool)
        allowed[1] = False
        allowed[0, :, 1] = False
        return allowed
    documents = (torch.arange(n) >= lengths[:, None]).long()
    return (documents[:, :, None] == documents[:, None])[:, None]


def gradients(out: Tensor, arguments: list[Tensor | None]) -> list[Tensor]:
    weights = (
        torch.randn(out.shape, generator=torch.Generator().manual_seed(4)).bfloat16().to(out.dtype)
    )  # the same in every type
    return list(torch.autograd.grad(out, [a for a in arguments if a is not None and a.requires_grad], weights))


TILE_SIZES = (1 << 19, 2 * H * N * N, H * N * N, N * N, 3 * N, 1)  # examples, heads, queries at a time


@pytest.mark.parametrize("base,values,allowed", COMBINATIONS)
def test_outputs_and_gradients_are_those_of_the_definition(
    base: str, values: int, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = inputs(base, values)
    plain = eager(*arguments, mask(allowed), SCALE)
    expected = [plain.detach(), *gradients(plain, arguments)]
    for tile_size, keep in itertools.product(TILE_SIZES, (0, N)):
        monkeypatch.setattr(tiled_attention, "SCORES_PER_TILE", tile_size)
        monkeypatch.setattr(tiled_attention, "KEEP_WEIGHTS_UP_TO", keep)
        ours = attend_in_tiles(*arguments, mask(allowed), SCALE, 0.0)
        for ours_, plain_ in zip([ours.detach(), *gradients(ours, arguments)], expected, strict=True):
            torch.testing.assert_close(
                ours_,
                plain_,
                rtol=1e-11,
                atol=1e-12,
                msg=lambda text, at=(tile_size, keep): f"tile_size, keep {at}: {text}",
            )


@pytest.mark.parametrize("keep", [0, N])
@pytest.mark.parametrize("tile_size", TILE_SIZES)
@pytest.mark.parametrize(
    "base,values,allowed",
    [("none", 0, "none"), ("batch", 2, "nothing"), ("shared", 0, "padding"), ("distance", 3, "packing")],
)
def test_keys_ahead_have_a_product_of_their_own(base, values, allowed, tile_size, keep, monkeypatch) -> None:
    """Pairs with queries and keys of their own, equal over the batch or not, with dropout, in tiles of any size."""
    monkeypatch.setattr(tiled_attention, "SCORES_PER_TILE", tile_size)
    monkeypatch.setattr(tiled_attention, "KEEP_WEIGHTS_UP_TO", keep)
    arguments = inputs(base, values)
    generator = torch.Generator().manual_seed(9)
    q, k = (torch.randn(B, H, N, D_QK, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2))
    places = torch.rand(1 if base == "none" else B, 1, N, generator=generator)
    ahead = q, k, places[:, :, None] > places[:, :, :, None]
    seen = mask(allowed)
    for dropout in (0.0, 0.3):
        factors = dropout_factors(arguments[2], arguments, dropout, seed=7) if dropout else 1.0
        torch.manual_seed(7)
        ours = attend_in_tiles(*arguments, seen, SCALE, dropout, ahead)
        plain = eager(*arguments, seen, SCALE, factors, ahead)
        torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-12)
        leaves = [*arguments, q, k]
        for mine, theirs in zip(gradients(ours, leaves), gradients(plain, leaves), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-12)


def dropout_factors(v: Tensor, arguments: list[Tensor | None], dropout: float, seed: int) -> Tensor:
    """What dropout multiplies the weights by: with the identity as values, and uniform weights, the output shows it."""
    n = v.shape[2]
    zero = torch.zeros_like(arguments[0])
    identity = torch.eye(n, dtype=v.dtype).expand(*v.shape[:2], n, n)
    torch.manual_seed(seed)
    return n * attend_in_tiles(zero, zero, identity, None, None, arguments[5], None, SCALE, dropout)


@pytest.mark.parametrize("tile_size", TILE_SIZES)
@pytest.mark.parametrize("b", [1, B])
@pytest.mark.parametrize("base,allowed", list(itertools.product(["shared", "distance"], MASKS)))
@pytest.mark.parametrize("kinds", VALUES[1:])
def test_special_tokens_that_stand_alike_are_given_once(base, allowed, kinds, b, tile_size, monkeypatch) -> None:
    monkeypatch.setattr(tiled_attention, "SCORES_PER_TILE", tile_size)
    monkeypatch.setattr(tiled_attention, "KEEP_WEIGHTS_UP_TO", N if tile_size % 2 else 0)
    q, k, v, *bias, special = inputs(base, kinds)
    assert special is not None
    arguments = [q[:b], k[:b], v[:b], *bias]
    seen = mask(allowed)
    seen = None if seen is None else seen[:b]
    out = attend_in_tiles(*arguments, special[:1], seen, SCALE, 0.0)
    expected = eager(*arguments, special[:1].expand(b, -1), seen, SCALE)
    torch.testing.assert_close(out, expected)
    leaves = [q, k, v, *bias]
    for mine, theirs in zip(gradients(out, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(mine, theirs)
    with torch.no_grad():
        torch.testing.assert_close(attend_in_tiles(*arguments, special[:1], seen, SCALE, 0.0), expected)


@pytest.mark.parametrize("keep", [0, N])
@pytest.mark.parametrize("tile_size", [1 << 19, H * N * N, N * N, 3 * N])
@pytest.mark.parametrize("base,values", [("none", 0), ("shared", 0), ("distance", 3)])
def test_dropout_draws_the_same_factors_forward_and_backward(
    base: str, values: int, tile_size: int, keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled_attention, "SCORES_PER_TILE", tile_size)
    monkeypatch.setattr(tiled_attention, "KEEP_WEIGHTS_UP_TO", keep)
    arguments = inputs(base, values)
    factors = dropout_factors(arguments[2], arguments, 0.3, seed=7)
    assert set(factors.flatten().mul(0.7).round(decimals=4).tolist()) == {
        0.0,
        1.0,
    }  # 16 random bits: shares are multiples of 2^-16
    torch.manual_seed(7)
    ours = attend_in_tiles(*arguments, mask("padding"), SCALE, 0.3)
    plain = eager(*arguments, mask("padding"), SCALE, factors)
    torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-12)
    torch.rand(3)  # the state of the generator at the time of the backward pass must not matter
    for ours_, plain_ in zip(gradients(ours, arguments), gradients(plain, arguments), strict=True):
        torch.testing.assert_close(ours_, plain_, rtol=1e-11, atol=1e-12)


def test_dropout_keeps_the_declared_share_and_differs_between_calls() -> None:
    n = 64
    arguments = inputs("none", 0, n=n)
    first = dropout_factors(arguments[2], arguments, 0.1, seed=0)
    assert abs(float((first == 0).double().mean()) - 0.1) < 0.01  # 24,576 draws: five standard deviations
    zero = torch.zeros_like(arguments[0])
    identity = torch.eye(n, dtype=torch.float64).expand(B, H, n, n)
    second = n * attend_in_tiles(zero, zero, identity, None, None, arguments[5], None, SCALE, 0.1)
    assert 0.15 < float(((first == 0) != (second == 0)).double().mean()) < 0.21  # 2 · 0.1 · 0.9 if independent


@pytest.mark.parametrize("base,values,allowed", COMBINATIONS)
def test_bfloat16_is_as_close_as_its_rounding(base: str, values: int, allowed: str) -> None:
    *arguments, special = inputs(base, values, n=40)
    types = [torch.bfloat16] * 3 + [torch.float32] * 2
    narrow = [
        x if x is None else x.detach().to(dtype).requires_grad_() for x, dtype in zip(arguments, types, strict=True)
    ]
    exact = [x if x is None else x.detach().double().requires_grad_() for x in narrow]
    ours = attend_in_tiles(*narrow, special, mask(allowed, 40), SCALE, 0.0)
    plain = eager(*exact, special, mask(allowed, 40), SCALE)
    assert ours.dtype == torch.bfloat16
    for ours_, plain_ in zip(
        [ours.detach(), *gradients(ours, narrow)], [plain.detach(), *gradients(plain, exact)], strict=True
    ):
        # A few roundings by up to 2^-9 in a row, relative to the size of the whole result.
        assert float((ours_ - plain_).norm()) < 0.02 * float(plain_.norm())


def test_gradients_equal_finite_differences() -> None:
    arguments = inputs("distance", 3)
    assert torch.autograd.gradcheck(
        lambda *a: attend_in_tiles(*a, arguments[5], mask("nothing"), SCALE, 0.0), arguments[:5]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_without_a_key_are_finite(dtype: torch.dtype) -> None:
    arguments = [x.detach().to(dtype).requires_grad_() if x.is_floating_point() else x for x in inputs("distance", 3)]
    out = attend_in_tiles(*arguments, mask("nothing"), SCALE, 0.1)
    assert all(bool(x.isfinite().all()) for x in [out, *gradients(out, arguments)])


def test_a_constant_bias_gets_no_gradient_and_costs_none() -> None:
    arguments = inputs("distance", 3)
    constant = [*arguments[:3], arguments[3].detach(), arguments[4].detach(), arguments[5]]
    ours, learned = (attend_in_tiles(*a, None, SCALE, 0.0) for a in (constant, arguments))
    for ours_, learned_ in zip(gradients(ours, constant), gradients(learned, arguments)[:3], strict=True):
        assert torch.equal(ours_, learned_)


def test_long_sequences_keep_no_square_memory() -> None:
    """Nothing that grows with the square of the length is kept."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        attend_in_tiles(*inputs("distance", 3, n=900), None, SCALE, 0.1)
    assert max(kept) <= 900 * B * H * max(D_QK, D_V)


def test_strided_inputs_and_values_of_another_type() -> None:
    """Heads as they come from a joint projection, and values that autocast left in float32."""
    arguments = inputs("shared", 0, torch.float32)
    strided = [x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in arguments[:3]]
    assert torch.equal(
        attend_in_tiles(*strided, *arguments[3:], None, SCALE, 0.0), attend_in_tiles(*arguments, None, SCALE, 0.0)
    )
    narrow = attend_in_tiles(strided[0].bfloat16(), strided[1].bfloat16(), strided[2], *arguments[3:], None, SCALE, 0.0)
    assert narrow.dtype == torch.bfloat16


@pytest.mark.parametrize("b,n", [(0, 5), (2, 0), (2, 1)])
def test_empty_batches_and_single_tokens_pass(b: int, n: int) -> None:
    q = torch.randn(b, H, n, D_QK, requires_grad=True)
    table = torch.randn(H, max(2 * n - 1, 0), requires_grad=True)
    out = attend_in_tiles(q, q, q, table, None, None, None, SCALE, 0.1)
    assert out.shape == q.shape
    out.sum().backward()
