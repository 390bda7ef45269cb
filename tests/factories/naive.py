"""Every scheme written out from its equations: float64, one example, loops over heads h, queries i and keys j.

Nothing of the package is called. Weights come in as a dictionary of tensors under the names of
`Encoder.named_parameters()`, choices as an `EncoderConfig`. Equations: TUPE (Ke et al. 2021) 3, 5, 7-11 and its
sections 3.3, 4.3, 5; DSTG 1-3; SPLIT's notes; RoFormer 34; Press et al. 2022; Vaswani et al. 2017; KERPLE (Chi
et al. 2022); TISA (Wennberg and Henter 2021); Sandwich (Chi et al. 2023); FIRE (Li et al. 2024); DAPE (Zheng et al.
2024); BiPE (He et al. 2024). Vectors are (d,) tensors, lists run over tokens.
"""

import math

import torch
from naive_vectors import Weights, gelu, layer_norm, linear, rms_norm, softmax, swish
from torch import Tensor

Streams = list[list[Tensor]]  # streams of tokens of vectors


# Positions


def sinusoid(rows: int, width: int) -> Tensor:
    """Vaswani et al. 2017, section 3.5: sin(i / 10000^(2k/d)) in column 2k, cos in column 2k + 1 (none for an odd last
    one)."""
    return torch.stack([waves(i, width) for i in range(rows)])


def waves(position: float, width: int) -> Tensor:
    """The row of a position, which may be any real number."""
    row = torch.zeros(width, dtype=torch.float64)
    for k in range((width + 1) // 2):
        angle = position / 10000 ** (2 * k / width)
        row[2 * k] = math.sin(angle)
        if 2 * k + 1 < width:
            row[2 * k + 1] = math.cos(angle)
    return row


def table_row(weights: Weights, c, position: float) -> Tensor:
    """Row of the position table before any norm, mapped to the width in which it is used."""
    at = "position_embeddings.table"
    width = c.table_width or c.position_size or c.hidden_size
    if c.absolute == "learned":
        row = weights[f"{at}.weight"][position]
    elif c.absolute == "sinusoidal":
        fixed = sinusoid(c.max_position_embeddings, width)
        scale = c.table_scale or c.position_initializer_range / float((fixed**2).mean()) ** 0.5
        row = scale * waves(position, width)
    elif c.absolute == "fixed":  # half a turn over all positions in two columns, a tenth as large, held in float32
        row = torch.zeros(width, dtype=torch.float64)
        angle = math.pi * position / c.max_position_embeddings
        row[:2] = torch.tensor([math.cos(angle) / 10, math.sin(angle) / 10]).double()
    elif c.absolute == "low_rank":  # GEOM remark 8: P = A Bᵀ
        row = weights[f"{at}.A"][position] @ weights[f"{at}.B"].T
    elif c.absolute == "fourier":  # LOWDIM section 5
        angle = torch.exp(weights[f"{at}.log_frequency"]) * position + weights[f"{at}.phase"]
        pairs = [weights[f"{at}.amplitude"] * torch.sin(angle), weights[f"{at}.amplitude"] * torch.cos(angle)]
        row = torch.stack(pairs, dim=-1).flatten()[:width]
    else:
        raise NotImplementedError(c.absolute)
    name = "position_embeddings.map"
    return linear(row, weights, name) if f"{name}.weight" in weights else row


def t5_bucket(distance: int, buckets: int, furthest: int) -> int:
    """T5, as DSTG A.1 describes it: half of the buckets each way, exact to a quarter of them, then logarithmic."""
    half = buckets // 2
    exact = buckets // 4
    offset = half if distance > 0 else 0
    size = abs(distance)
    if size < exact:
        return offset + size
    return offset + min(half - 1, exact + int(math.log(size / exact) / math.log(furthest / exact) * (half - exact)))


def alibi_slopes(heads: int) -> list[float]:
    """Press et al. 2022: 2^(-8/h), 2^(-16/h), ... for a power of two; else those of the power below and every other one
    of its double."""
    if math.log2(heads).is_integer():
        return [2.0 ** (-8.0 * (k + 1) / heads) for k in range(heads)]
    below = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(below) + alibi_slopes(2 * below)[::2][: heads - below]


def rotate(x: Tensor, position: int, theta: float) -> Tensor:
    """RoFormer eq. 34: the pair (x_k, x_{k + d/2}) turned by the angle position · theta^(-2k/d)."""
    half = len(x) // 2
    turned: list[Tensor] = [x[0]] * len(x)
    for k in range(half):
        angle = position * theta ** (-2 * k / len(x))
        turned[k] = x[k] * math.cos(angle) - x[k + half] * math.sin(angle)
        turned[k + half] = x[k + half] * math.cos(angle) + x[k] * math.sin(angle)
    return torch.stack(turned)


def turned(x: Tensor, position: int, c) -> Tensor:
    """GPT-NeoX: the first columns of a query or key rotate, an even number, and the others stay."""
    width = 2 * max(1, round(c.rotation_share * len(x) / 2))
    return torch.cat([rotate(x[:width], position, c.rope_theta), x[width:]])


def decayed(x: Tensor, y: Tensor, distance: int, c) -> Tensor:
    """xPos in both directions: pair k of the product falls as ζ_k^(|distance| / s), ζ_k = (k / (d/2) + γ) / (1 + γ)."""
    half = len(x) // 2
    gamma = 0.4
    zeta = [(k / half + gamma) / (1 + gamma) for k in range(half)]
    fall = torch.tensor([z ** (abs(distance) / c.xpos_scale_base) for z in zeta + zeta], dtype=x.dtype)
    return (fall * x) @ y


def relative_value(weights: Weights, c, at: str, distance: int, h: int) -> Tensor:
    """b_{j-i} of head h for distance j - i."""
    if c.relative == "t5":
        return weights[f"{at}.function.table"][t5_bucket(distance, c.relative_buckets, c.relative_max_distance), h]
    if c.relative == "alibi":
        slopes = c.alibi_slopes or alibi_slopes(c.num_attention_heads)
        return torch.tensor(-slopes[h] * abs(distance), dtype=torch.float64)
    if c.relative == "kerple_log":  # Chi et al. 2022: -r1 log(1 + r2 |i - j|)
        r1, r2 = weights[f"{at}.function.log_r"][:, h].exp()
        return -r1 * torch.log(1 + r2 * abs(distance))
    if c.relative == "kerple_power":  # -r1 |i - j|^r2, r2 in (0, 2)
        r1, r2 = (weights[f"{at}.function.{name}"][h] for name in ("log_r1", "logit_r2"))
        return -r1.exp() * torch.as_tensor(abs(distance), dtype=r1.dtype) ** (2 * torch.sigmoid(r2))
    if c.relative == "sandwich":  # Chi et al. 2023: sinusoidal vectors of width 128, head h of H divided by 8h/H
        vectors = [waves(position, 128) for position in (0, abs(distance))]
        return (vectors[0] @ vectors[1] - 64) / (8 * (h + 1) / c.num_attention_heads)
    if c.relative == "tisa":  # Wennberg and Henter 2021: Σ_s a_s exp(-|b_s| (j - i - c_s)²)
        a, b, offset = (weights[f"{at}.function.{name}"][:, h] for name in ("amplitude", "sharpness", "offset"))
        return sum(a[s] * torch.exp(-abs(b[s]) * (distance - offset[s]) ** 2) for s in range(c.tisa_kernels or 5))
    t = c.relative_max_distance
    place = max(-t, min(t, distance)) + t  # TUPE footnote 2: clip(j - i, -t, t), a value each
    if c.relative == "clipped":
        return weights[f"{at}.function.table"][place, h]
    if c.relative == "product":  # TUPE section 5: (r_{j-i} F^Q)(r_{j-i} F^K)ᵀ
        r = weights[f"{at}.function.table"][place]
        d = c.d_head
        query = heads_of(linear(r, weights, f"{at}.function.query"), c)[h]
        key = heads_of(linear(r, weights, f"{at}.function.key"), c)[h]
        return query @ key / math.sqrt(d)
    raise NotImplementedError(c.relative)


# Attention


def heads_of(x: Tensor, c) -> tuple[Tensor, ...]:
    """Head h has the h-th slice of a vector that is heads times as wide."""
    return x.view(c.num_attention_heads, -1).unbind(0)


def projections(weights: Weights, c, layer: int, streams: Streams):
    """q[s][i][h], k[s][j][h] and v[s][j] (all heads in one vector) of each stream s."""
    qk = c.num_attention_heads * c.d_head
    q = []
    k = []
    v = []
    for s, tokens in enumerate(streams):
        together = [linear(x, weights, f"layers.{layer}.attention.qkv.{s}").split([qk, qk, len(x)]) for x in tokens]
        q.append([heads_of(parts[0], c) for parts in together])
        k.append([heads_of(parts[1], c) for parts in together])
        v.append([parts[2] for parts in together])
    return q, k, v


def position_terms(weights: Weights, c, positions: list[int], cls: list[bool]):
    """The position-only values v_ij of TUPE, [h][i][j], before b_{j-i}; [CLS] reset to θ (eq. 9). Also p U_Q and p
    U_K."""
    n = len(positions)
    d = c.d_head
    heads = range(c.num_attention_heads)
    norm = [weights.get("untied.norm.weight"), weights.get("untied.norm.bias")]
    if c.untied == "free":  # TUPE section 5: no product, a parameter each pair
        v = [[[weights["untied.free"][h, i, j] for j in positions] for i in positions] for h in heads]
        theta = weights.get("untied.theta")
        queries = None
        keys = None
    else:
        scale = 1 / math.sqrt((4 if c.untied == "crossed" else 2) * d)
        p = [layer_norm(table_row(weights, c, i), *norm, c.norm_eps) for i in positions]
        queries = [heads_of(linear(x, weights, "untied.query"), c) for x in p]
        keys = [heads_of(linear(x, weights, "untied.key"), c) for x in p]
        v = [[[scale * (queries[i][h] @ keys[j][h]) for j in range(n)] for i in range(n)] for h in heads]
        theta = None
        if (
            c.reset != "none"
        ):  # section 3.3: θ = 1/√(2d) (p_θ U^Q)(p_θ U^K)ᵀ, with the LayerNorm of everything that U reads
            vectors = [layer_norm(x, *norm, c.norm_eps) for x in weights["untied.cls"]]
            pairs = [
                (heads_of(linear(x, weights, "untied.query"), c), heads_of(linear(x, weights, "untied.key"), c))
                for x in vectors
            ]
            theta = [[scale * (query[h] @ key[h]) for h in range(c.num_attention_heads)] for query, key in pairs]
    if c.reset != "none":
        v = reset(v, theta, cls)
    return v, queries, keys


def reset(v, theta, cls: list[bool]):
    """TUPE eq. 9 with [CLS] wherever it stands: θ1 from [CLS], θ2 from others to [CLS]; v, and so the result,
    [h][i][j]."""
    n = len(cls)
    return [
        [[theta[0][h] if cls[i] else theta[1][h] if cls[j] else v[h][i][j] for j in range(n)] for i in range(n)]
        for h in range(len(v))
    ]


def network(weights: Weights, at: str, read: list[Tensor], activation) -> Tensor:
    """A network of one hidden layer on the numbers that it reads: a value for each head."""
    hidden = activation(torch.hstack(read) @ weights[f"{at}.inner"] + weights[f"{at}.inner_offset"])
    return hidden @ weights[f"{at}.outer"] + weights[f"{at}.outer_offset"]


def content_terms(weights: Weights, c, layer: int, q, k, positions: list[int], visible: list[list[bool]]):
    """The terms of a word and a distance, each [h][i][j], and the queries q[i][h] that meet the words' keys."""
    at = f"layers.{layer}.attention.pair_terms"
    n = len(positions)
    d = c.d_head
    heads = c.num_attention_heads
    back = [[i - j for j in positions] for i in positions]  # i - j, as most of these papers count

    def term(value):
        return [[[value(h, i, j) for j in range(n)] for i in range(n)] for h in range(heads)]

    if c.pair_terms == "shaw":  # eq. 4: x_i W^Q (a_ij^K)ᵀ / √d, a by clip(j - i, -k, k)
        reach = c.relative_max_distance
        table = weights[f"{at}.table"]
        a = {m: table[max(-reach, min(reach, -m)) + reach] for row in back for m in row}
        return q, {"semantic_to_relative": term(lambda h, i, j: q[i][h] @ a[back[i][j]] / math.sqrt(d))}
    if c.pair_terms == "deberta":  # eq. 3 and 4: δ is 0 for i - j <= -K, 2K - 1 for i - j >= K, else i - j + K
        furthest = c.max_position_embeddings
        vectors = weights["distance_vectors.table"]

        def delta(m):
            return 0 if m <= -furthest else 2 * furthest - 1 if m >= furthest else m + furthest

        different = sorted({delta(sign * m) for row in back for m in row for sign in (1, -1)})
        keys, queries = (
            {m: heads_of(linear(vectors[m], weights, f"{at}.{name}"), c) for m in different}
            for name in ("key", "query")
        )
        return q, {
            "semantic_to_relative": term(lambda h, i, j: q[i][h] @ keys[delta(back[i][j])][h] / math.sqrt(3 * d)),
            "relative_to_semantic": term(lambda h, i, j: k[j][h] @ queries[delta(back[j][i])][h] / math.sqrt(3 * d)),
        }
    if c.pair_terms == "xl":  # section 3.3: (a) + (b) + (c) + (d)
        u = weights[f"{at}.u"]
        v = weights[f"{at}.v"]
        half = c.semantic_size // 2
        waves = {
            m: torch.tensor(
                [f(m * 10000 ** (-2 * w / c.semantic_size)) for f in (math.sin, math.cos) for w in range(half)],
                dtype=torch.float64,
            )
            for row in back
            for m in row
        }
        r = {m: heads_of(linear(x, weights, f"{at}.project"), c) for m, x in waves.items()}
        return [[x + u[h] for h, x in enumerate(row)] for row in q], {
            "semantic_to_relative": term(lambda h, i, j: q[i][h] @ r[back[i][j]][h] / math.sqrt(d)),
            "relative": term(lambda h, i, j: v[h] @ r[back[i][j]][h] / math.sqrt(d)),
        }
    if c.pair_terms == "fire":  # Li et al. 2024, in both directions
        rate = weights[f"{at}.c"].abs()
        least = (weights[f"{at}.stretch"] * c.max_position_embeddings / 4).abs()

        def fire(h, i, j):
            far = torch.log(1 + rate * torch.maximum(least, torch.tensor(max(positions[i], positions[j]))))
            share = torch.log(1 + rate * abs(back[i][j])) / far
            return network(weights, f"{at}.network", [share], lambda x: x.clamp(min=0))[h]

        return q, {"relative": term(fire)}
    if c.pair_terms == "dape":  # Zheng et al. 2024: f reads the scores of all heads, then the biases of all heads
        r1, r2 = weights[f"{at}.bias.log_r"].exp()

        def kerple(h, i, j):
            return -r1[h] * torch.log(1 + r2[h] * abs(back[i][j]))

        def adapted(h, i, j):
            read = [q[i][g] @ k[j][g] / math.sqrt(d) for g in range(heads)] + [kerple(g, i, j) for g in range(heads)]
            return network(weights, f"{at}.network", read, lambda x: torch.where(x > 0, x, 0.01 * x))[h]

        return q, {"semantic_to_relative": term(adapted), "relative": term(kerple)}
    assert c.pair_terms == "cope"

    def cope(h, i, j):  # eq. 3-5: p sums gates over the keys from j to i, z is interpolated, q_i·e(p) is not scaled
        table = weights[f"{at}.before" if back[i][j] >= 0 else f"{at}.after"]
        seen = [m for m in range(n) if visible[i][m] and 0 <= back[i][m] * back[i][j] <= back[i][j] ** 2]
        seen = [i] if i == j else seen
        gates = [torch.sigmoid(q[i][h] @ k[m][h] / math.sqrt(d)) for m in seen]
        p = sum(gates, torch.zeros((), dtype=torch.float64)).clamp(max=len(table) - 1)
        below = math.floor(p.detach())
        above = math.ceil(p.detach())
        return (1 - (p - below)) * (q[i][h] @ table[below]) + (p - below) * (q[i][h] @ table[above])

    return q, {"semantic_to_relative": term(cope)}


def terms(weights: Weights, c, layer: int, streams: Streams, positions: list[int], ids: list[int], visible):
    """The named terms of the scores, each [h][i][j], and the values v[s][j]."""
    n = len(positions)
    d = c.d_head
    heads = c.num_attention_heads
    cls = [token == c.cls_token_id for token in ids]
    special = [token in (c.cls_token_id, c.sep_token_id) for token in ids]
    q, k, v = projections(weights, c, layer, streams)
    if c.rotation != "none":
        q, k = ([[[turned(x, positions[i], c) for x in row] for i, row in enumerate(part[0])]] for part in (q, k))
    together = {"none": 1, "position": 2, "free": 2, "crossed": 4}[c.untied]
    scale = 1 / math.sqrt(together * d)  # TUPE: 1/√d, 1/√(2d) (eq. 7), 1/√(4d) (section 4.3)

    def term(query, key):
        return [[[scale * (query[i][h] @ key[j][h]) for j in range(n)] for i in range(n)] for h in range(heads)]

    found = {}
    if c.pair_terms != "none":
        scale = 1 / math.sqrt((3 if c.pair_terms == "deberta" else 1) * d)
        q[-1], found = content_terms(weights, c, layer, q[-1], k[-1], positions, visible)
    if len(streams) == 1:
        (q,) = q
        (k,) = k
        name = "mixed" if c.absolute != "none" and c.untied == "none" else "semantic"
        found[name] = term(q, k)
        if c.rotation == "xpos":
            found[name] = [
                [
                    [scale * decayed(q[i][h], k[j][h], positions[j] - positions[i], c) for j in range(n)]
                    for i in range(n)
                ]
                for h in range(heads)
            ]
    else:
        (q_pos, q) = q
        (k_pos, k) = k
        found["semantic"] = term(q, k)
        absolute = term(q_pos, k_pos)
        if c.stream_qk == "joint":  # SPLIT: one W_Q over [p ‖ s], so that q = p W_pos + s W_sem, and likewise k
            found["semantic_to_absolute"] = term(q, k_pos)
            found["absolute_to_semantic"] = term(q_pos, k)
        elif c.absolute_skips_special:  # DSTG eq. 2: 1[i ∉ S ∧ j ∉ S]
            zero = torch.zeros((), dtype=torch.float64)
            absolute = [
                [[zero if special[i] or special[j] else row[i][j] for j in range(n)] for i in range(n)]
                for row in absolute
            ]
        found["absolute"] = absolute
    if c.untied != "none":
        found["absolute"], u_query, u_key = position_terms(weights, c, positions, cls)
        if c.untied == "crossed":  # TUPE section 4.3, BERT-A^d
            found["semantic_to_absolute"] = term(q, u_key)
            found["absolute_to_semantic"] = term(u_query, k)
    if c.relative != "none":
        at = "relative" if c.relative_shared else f"layers.{layer}.attention.relative"
        distances = sorted({j - i for i in positions for j in positions})
        b = [{distance: relative_value(weights, c, at, distance, h) for distance in distances} for h in range(heads)]
        bias = [[[b[h][positions[j] - positions[i]] for j in range(n)] for i in range(n)] for h in range(heads)]
        if c.relative_special == "shared":  # DSTG eq. 1; i is the query
            rho = weights[f"{at}.special"].unbind(0)
            for h in range(heads):
                for i in range(n):
                    for j in range(n):
                        if special[i] or special[j]:
                            bias[h][i][j] = rho[0 if special[i] and special[j] else 1 if special[i] else 2][h]
        if c.relative_special == "each":  # the code of DSTG's authors: rows first, then columns over them
            row, column = weights[f"{at}.special"].split(2)  # each of [CLS], of [SEP]
            for h in range(heads):
                for s, token in enumerate((c.cls_token_id, c.sep_token_id)):
                    for i in [i for i in range(n) if ids[i] == token]:
                        bias[h][i] = [row[s][h]] * n
                for s, token in enumerate((c.cls_token_id, c.sep_token_id)):
                    for j in [j for j in range(n) if ids[j] == token]:
                        for i in range(n):
                            bias[h][i][j] = column[s][h]
        if c.reset == "sum" and c.untied != "none":  # eq. 11: b_{j-i} stands inside the reset, and θ is in `absolute`
            bias = reset(bias, torch.zeros(2, heads, dtype=torch.float64), cls)
        elif c.reset != "none":  # each correlation with a θ of its own, as in the published code
            bias = reset(bias, weights[f"{at}.cls"], cls)
        found["relative"] = bias
    return found, v


def attention_weights(c, found, visible: list[list[bool]]):
    """softmax over the visible keys of the sum of all terms: [h][i], vectors over j with 0 at keys that are not
    seen."""
    n = len(visible)
    hidden = torch.tensor(-math.inf, dtype=torch.float64)

    def row(h, i):
        return softmax([sum(term[h][i][j] for term in found.values()) if visible[i][j] else hidden for j in range(n)])

    return [[row(h, i) for i in range(n)] for h in range(c.num_attention_heads)]


def mix(weights: Weights, c, layer: int, attn, v) -> Streams:
    """Outputs of the attention, each stream by its own W_O: [s][i]. `attn` is [h][i], vectors over j; `v` is [s][j]."""
    n = len(v[0])
    heads = c.num_attention_heads
    widths = [len(tokens[0]) for tokens in v]
    if c.stream_values == "consecutive":  # SPLIT: [p W_pos ‖ s W_sem] sliced over the heads as if it were one vector
        v = [[torch.cat([tokens[j] for tokens in v]) for j in range(n)]]
    mixed = []
    for tokens in v:
        slices = torch.stack(tokens).view(n, heads, -1).unbind(1)  # of each head: (n, width)
        mixed.append([torch.cat([attn[h][i] @ slices[h] for h in range(heads)]) for i in range(n)])
    if c.stream_values == "consecutive":
        mixed = [list(parts) for parts in zip(*(x.split(widths) for x in mixed[0]), strict=True)]
    return [[linear(x, weights, f"layers.{layer}.attention.out.{s}") for x in tokens] for s, tokens in enumerate(mixed)]


# Blocks


def norm(weights: Weights, c, name: str, streams: Streams) -> Streams:
    """A norm for each stream: RMSNorm in the NeoBERT block, LayerNorm in BERT's."""
    out = []
    for s, tokens in enumerate(streams):
        weight = weights[f"{name}.norms.{s}.weight"]
        bias = weights.get(f"{name}.norms.{s}.bias")
        if c.block == "bert":
            out.append([layer_norm(x, weight, bias, c.norm_eps) for x in tokens])
        else:
            out.append([rms_norm(x, weight, c.norm_eps) for x in tokens])
    return out


def feed_forward(weights: Weights, c, layer: int, streams: Streams) -> Streams:
    """DSTG eq. 3 and the lines after it (one up-projection of all streams), or SPLIT's separate MLPs; SwiGLU or
    GELU."""
    at = f"layers.{layer}.feed_forward"
    widths = [len(tokens[0]) for tokens in streams]
    sizes = [c.intermediate_size * width // sum(widths) for width in widths]

    def inner(x: Tensor, name: str) -> Tensor:
        up = linear(x, weights, name)
        if c.block == "bert":
            return gelu(up)
        gate, up = up.chunk(2)
        return swish(gate) * up

    out: Streams = [[] for _ in streams]
    for i in range(len(streams[0])):
        if c.stream_feed_forward == "separate":
            parts = [inner(tokens[i], f"{at}.up.{s}") for s, tokens in enumerate(streams)]
        else:
            parts = list(inner(torch.cat([tokens[i] for tokens in streams]), f"{at}.up.0").split(sizes))
        for s, part in enumerate(parts):
            assert len(part) == sizes[s]
            out[s].append(linear(part, weights, f"{at}.down.{s}"))
    return out


def add(first: Streams, second: Streams) -> Streams:
    return [[x + y for x, y in zip(a, b, strict=True)] for a, b in zip(first, second, strict=True)]


def block(weights: Weights, c, layer: int, streams: Streams, positions, ids, visible):
    """New streams and the terms of the scores. NeoBERT: norms before, on the branch; BERT: norms after the sum."""
    at = f"layers.{layer}"
    if c.block == "neobert":
        normed = norm(weights, c, f"{at}.attention_norm", streams)
        found, v = terms(weights, c, layer, normed, positions, ids, visible)
        update = mix(weights, c, layer, attention_weights(c, found, visible), v)
        streams = add(normed if c.residual == "normalized" else streams, update)
        normed = norm(weights, c, f"{at}.feed_forward_norm", streams)
        return add(normed if c.residual == "normalized" else streams, feed_forward(weights, c, layer, normed)), found
    found, v = terms(weights, c, layer, streams, positions, ids, visible)
    update = mix(weights, c, layer, attention_weights(c, found, visible), v)
    streams = norm(weights, c, f"{at}.attention_norm", add(streams, update))
    return norm(weights, c, f"{at}.feed_forward_norm", add(streams, feed_forward(weights, c, layer, streams))), found


def convolved(weights: Weights, c, tokens: list[Tensor], visible: list[list[bool]]) -> list[Tensor]:
    """x_i + c + Σ_o w_o ⊙ x_{i + o} over neighbours in the row that i may look at."""
    half = c.input_kernel // 2
    out = []
    for i, x in enumerate(tokens):
        y = x + weights["convolution.bias"]
        for o in range(-half, half + 1):
            if 0 <= i + o < len(tokens) and visible[i][i + o]:
                y = y + weights["convolution.weight"][:, half + o] * tokens[i + o]
        out.append(y)
    return out


def embed(weights: Weights, c, ids: list[int], positions: list[int], visible: list[list[bool]]) -> Streams:
    """What enters the first block: words, words + p (TUPE eq. 3), or [p ‖ words] as two streams; BERT's norm after
    it."""
    words = [weights["word_embeddings.weight"][token] for token in ids]
    if c.position_size:
        streams = [[table_row(weights, c, i) for i in positions], words]
    elif c.absolute != "none" and c.untied == "none":
        streams = [[word + table_row(weights, c, i) for word, i in zip(words, positions, strict=True)]]
    else:
        streams = [words]  # TUPE: only the word embedding is used as input
    if c.input_kernel:
        streams = [convolved(weights, c, streams[0], visible)]
    return norm(weights, c, "embedding_norm", streams) if c.block == "bert" else streams


def segments(c, ids: list[int], visible: list[list[bool]]) -> tuple[list[int], list[int]]:
    """BiPE: the place of each token behind the last end before it, at most the table's last row, and how many ends."""
    before = [[j for j in range(i) if visible[i][j]] for i in range(len(ids))]
    ends = [[j for j in row if ids[j] in (c.segment_end_ids or [c.sep_token_id])] for row in before]
    places = [sum(j > max(end, default=-1) for j in row) for row, end in zip(before, ends, strict=True)]
    return [min(place, c.max_position_embeddings - 1) for place in places], [len(end) for end in ends]


def encode(weights: Weights, c, ids: list[int], positions: list[int], visible: list[list[bool]]):
    """hidden[l] (n, hidden_size) for l = 0 ... layers, the final state, and the terms of each layer, name -> (h, n,
    n)."""
    rows = positions
    if c.bilevel:
        rows, positions = segments(c, ids, visible)
    streams = embed(weights, c, ids, rows, visible)
    hidden = [whole(streams)]
    collected = []
    for layer in range(c.num_hidden_layers):
        streams, found = block(weights, c, layer, streams, positions, ids, visible)
        hidden.append(whole(streams))
        collected.append({name: torch.stack([stacked(rows) for rows in term]) for name, term in found.items()})
    if c.block == "neobert":
        streams = norm(weights, c, "norm", streams)
    return hidden, whole(streams), collected


def stacked(rows: list[list[Tensor]]) -> Tensor:
    return torch.stack([torch.stack(row) for row in rows])


def whole(streams: Streams) -> Tensor:
    """(n, hidden_size): [position; semantic] of each token."""
    return torch.stack([torch.cat(parts) for parts in zip(*streams, strict=True)])


def visible_keys(n: int, mask: list[int] | None, documents: list[int] | None) -> list[list[bool]]:
    """Which keys a query sees: tokens that are no padding, of its own document, and always itself."""
    mask, documents = mask or [1] * n, documents or [0] * n
    return [[i == j or (bool(mask[j]) and documents[i] == documents[j]) for j in range(n)] for i in range(n)]
