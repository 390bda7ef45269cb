"""GEOM's appendix A and TUPE's proposition 1 in numbers, on your corpus: every figure of docs/theory.md, in about a
minute.

    python examples/theory
    python examples/theory --corpus my-texts/ --positions 64

A tiny untrained encoder reads the first tokens of each document; nothing is trained and nothing is written.
"""

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product

import dynamics
import forcing as measured
import inequalities
import numpy as np
import toeplitz
import torch
from scipy.spatial.distance import cdist

import whatwhere as ww
from whatwhere.corpus import load_tokenizer, open_source, special_token_ids, train_tokenizer
from whatwhere.corpus.counting import count_source
from whatwhere.geometry import (
    corrected_hellinger,
    corrected_squares,
    hellinger,
    jackknife,
    monotonicity_violations,
    positional_counts,
    positional_distributions,
    violations_of_distances,
)

VOCABULARY = 4096
ROWS = 6400
SUPPORT = 500
Build = Callable[..., ww.EncoderForMaskedLM]


def say(what: str, *values: float | str) -> None:
    """One line: what was measured, and the numbers."""
    print(f"  {what:<100}" + "  ".join(v if isinstance(v, str) else f"{v:.4g}" for v in values), flush=True)


def encoder(name: str, **fields) -> ww.EncoderForMaskedLM:
    """A tiny untrained model without dropout, with GEOM's residual stream, always of the same seed."""
    torch.manual_seed(0)
    return ww.EncoderForMaskedLM(ww.preset(name, "tiny", dropout=0.0, residual="stream", **fields)).eval()


def theorem_1(build: Build, heads: np.ndarray) -> None:
    print("Theorem 1: an encoder without positions follows every permutation")
    model = build("nope").double()
    ids = torch.from_numpy(heads[:4])
    orders = [torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(s)) for s in range(50)]
    orders = [order for order in orders if (order[order] != torch.arange(len(order))).any()]
    gaps = np.array([measured.permutation_gaps(model, ids, order) for order in orders])
    say("largest gap of f(t')_i = f(t)_σ(i), random permutations, relative", gaps[:, 0].max())
    say("smallest gap of the printed f(t')_σ(i) = f(t)_i, those that are not their own inverse", gaps[:, 1].min())


def hypothesis_1(dist: np.ndarray) -> None:
    print("(A1): an increasing kernel of distances that is positive definite")
    for name, f in (("1 + d", lambda d: 1 + d), ("exp d", np.exp), ("d²", np.square)):
        alpha = f(dist)
        say(
            f"f(d) = {name}: smallest minor, smallest eigenvalue",
            dynamics.smallest_minor(alpha),
            np.linalg.eigvalsh(alpha)[0],
        )
    alpha = dynamics.exponential_kernel(dist)
    say("f(d) = exp(-d): the same", dynamics.smallest_minor(alpha), np.linalg.eigvalsh(alpha)[0])


def hypothesis_2(build: Build, heads: np.ndarray, p: np.ndarray, dist: np.ndarray) -> np.ndarray:
    """Prints, and returns b of the text's positions, (n, d)."""
    model = build("ap")
    print("(A2): |b_i - b_j| ≤ C_b · d_H, with the gradient of a real encoder")
    pairs = np.triu_indices(len(dist), 1)
    text = slice(1, 1 + len(dist))
    found = measured.forcing(model, measured.masked_rows(heads, model.config))
    b = found.b[text]
    ratios = dynamics.forcing_ratios(b, dist)
    say("C_b, the largest ratio; median; smallest", ratios.max(), float(np.median(ratios)), ratios.min())
    squares = corrected_squares(*found.halves[:, text])[pairs]
    gaps = np.sqrt(np.maximum(squares, 0))
    say(
        "correlation of |b_i - b_j| (noise taken off) with d_H, and with |i - j|",
        float(np.corrcoef(gaps, dist[pairs])[0, 1]),
        float(np.corrcoef(gaps, pairs[1] - pairs[0])[0, 1]),
    )
    say(
        "share of mean |b_i - b_j|² that is the noise of finitely many batches",
        1 - squares.mean() / (cdist(b, b)[pairs] ** 2).mean(),
    )
    first = measured.first_attention(model)
    constant = (
        np.linalg.norm(p @ first.E, axis=1).max() * np.linalg.norm(first.M, 2, axis=(1, 2)).max() / np.sqrt(first.d_k)
    )
    say(
        "C_b of Lemma 12 as printed, 4√2 ‖ē‖‖M‖/√d_k; with the n of its proof",
        4 * 2**0.5 * constant,
        2 * 2**0.5 * len(dist) * constant,
    )
    with torch.no_grad():  # M = 0: every word attends to all alike, whatever the positions, and the formula is 0
        for layer in model.encoder.layers:
            layer.attention.qkv[0].weight[: model.config.hidden_size] = 0
    without = measured.forcing(model, measured.masked_rows(heads[::2], model.config)).b[text]
    say(
        "C_b with all query matrices zero, where both formulas give 0 (half the documents)",
        dynamics.forcing_ratios(without, dist).max(),
    )
    exact = encoder("ap", vocab_size=9, initializer_range=0.1).double()
    b5 = measured.forcing(exact, measured.copied_token_batches(4, 5, exact.config)).b[1:6]
    gap = [np.linalg.norm(b5[i] - b5[j]) / np.linalg.norm(b5, axis=1).max() for i, j in ((0, 1), (2, 3), (0, 2))]
    say("all d_H = 0, tokens 0, 1 equal, exact: |b_0-b_1|, |b_2-b_3|, |b_0-b_2| over max |b_i|", *gap)
    return b


def hypothesis_3(source, tokenizer, positions: int, phrases: bool) -> None:
    print(f"(A3): d_H(i, j) ≤ d_H(i, k) whenever |i-j| < |i-k|, {source.name}")
    counts = count_source(source, tokenizer, positions, phrases=phrases, progress=False)
    kept = positional_distributions(counts.total(), min_support=SUPPORT)
    plain = hellinger(kept.p)
    groups = [counts.group(g) for g in range(counts.groups)]
    corrected = corrected_hellinger(groups, kept.positions).signed
    say(f"positions with {SUPPORT} tokens, of {positions}", str(len(kept.positions)))
    for name, dist in (("plug-in", plain), ("corrected for small samples", corrected)):
        where = dynamics.violations_by_position(dist)
        tenth = max(len(where) // 10, 1)
        say(
            f"{name}: share violated; by i in the first tenth, between, in the last tenth",
            violations_of_distances(dist, kept.positions, signed=True),
            where[:tenth].mean(),
            where[tenth:-tenth].mean(),
            where[-tenth:].mean(),
        )
    start = jackknife(groups, nearer_than_the_first, summed=False)
    say("d²(1, 0) - d²(1, 3), corrected, and its 95 % interval: above 0 where (A3) fails", *start)


def nearer_than_the_first(groups: list) -> float:
    """How much farther position 1 is from position 0, its neighbour, than from position 3."""
    squares = corrected_hellinger(groups, np.array([0, 1, 3])).squares
    return squares[1, 0] - squares[1, 2]


def flow_and_bound(dist: np.ndarray, b: np.ndarray) -> None:
    print("Flow (6), bound (13), monotonicity")
    done = dynamics.flow(dynamics.exponential_kernel(dist), b)
    size = np.abs(done.fixed_point).max()
    say(
        "corpus and encoder, kernel exp(-d_H): |P(t) - α⁻¹b| at the end, relative",
        np.abs(done.tables[-1] - done.fixed_point).max() / size,
    )
    say(
        "violations of the corpus' distances, of b, and of the fixed point",
        violations_of_distances(dist),
        monotonicity_violations(b),
        monotonicity_violations(done.fixed_point),
    )
    draw = np.random.default_rng(0)
    random = hellinger(draw.dirichlet(np.ones(5), size=8))
    pairs = np.triu_indices(8, 1)
    for unit in (1.0, 0.01):
        alpha = dynamics.exponential_kernel(random, height=unit)
        force = np.full((8, 1), unit)
        done = dynamics.flow(alpha, force)
        gaps = cdist(done.fixed_point, done.fixed_point)[pairs]
        printed, proof = (
            dynamics.separation_bound(alpha, force, random, done.radius, unit, form)[pairs]
            for form in ("printed", "proof")
        )
        say(
            f"8 random positions, α and b × {unit}: pairs that break (13) printed, of the proof, of 28",
            str(np.sum(gaps > printed)),
            str(np.sum(gaps > proof)),
        )
    say("smallest value of the proof's bound, over 2R", proof.min() / (2 * done.radius))
    arc = hellinger(dynamics.arc_distributions(8))
    done = dynamics.flow(dynamics.exponential_kernel(arc, 0.5), (-1.0) ** np.arange(8)[:, None])
    say(
        "8 positions on an arc: violations of d_H, of the fixed point for b = ±1 in turn",
        violations_of_distances(arc),
        monotonicity_violations(done.fixed_point),
    )


def lemmas_11_and_12(build: Build, heads: np.ndarray, p: np.ndarray) -> None:
    print("Lemmas 11 and 12: E[δ_ij] = D(μ_i‖μ_j), and its differences")
    model = build("tupe-free", block="neobert", reset="none", num_hidden_layers=1).double()
    delta = measured.score_gradients(model, measured.masked_rows(heads[:1024], model.config))[
        :, 1 : 1 + len(p), 1 : 1 + len(p)
    ]
    whole = measured.score_gradients(model, measured.masked_rows(heads[:128], model.config))[
        :, 1 : 1 + len(p), : heads.shape[1] + 2
    ]
    say(
        "largest sum of E[δ_ij] over j, relative to the sum of sizes",
        np.abs(whole.sum(2)).max() / np.abs(whole).sum(2).min(),
    )
    smoothed = (p + 1e-6) / (p + 1e-6).sum(axis=1, keepdims=True)
    divergences = inequalities.kl_divergences(smoothed)
    off = ~np.eye(len(p), dtype=bool)
    say(
        "correlation of E[δ_ij] with D(μ_i‖μ_j) over i ≠ j, mean over heads; share of E[δ_ij] < 0",
        float(np.mean([np.corrcoef(head[off], divergences[off])[0, 1] for head in delta])),
        float(np.mean(delta[:, off] < 0)),
    )
    draw = np.random.default_rng(0)
    for tokens in (2, 5, 20):
        share = inequalities.kl_step_share(inequalities.kl_divergences(draw.dirichlet(np.ones(tokens), size=200)))
        say(f"triples that break |D(i‖k) - D(j‖k)| ≤ D(i‖j), uniform over {tokens} tokens", share)
    say(
        "the same for the corpus' positions (1e-6 added to each share); infinite D without it",
        inequalities.kl_step_share(divergences),
        float(np.mean(np.isinf(inequalities.kl_divergences(p))[off])),
    )
    say(
        "largest D / (2√2 d_H): (0.99, 0.01) and its mirror; the corpus",
        inequalities.kl_upper_bound(np.array([[0.99, 0.01], [0.01, 0.99]])).used(),
        inequalities.kl_upper_bound(smoothed).used(),
    )


def lemma_16(build: Build, heads: np.ndarray, p: np.ndarray) -> None:
    print("Lemma 16 on the first layer of the encoder: largest left/right of any pair (printed; sharp)")
    first = measured.first_attention(build("ap"))
    case = inequalities.mean_embedding_bound(p, first.E)
    say("(i) mean embeddings", case.used(), case.used("sharp"))
    cases = [inequalities.attention_bound(p, first.E, M, first.d_k) for M in first.M]
    say("(ii) softmax of mean scores, worst head", max(c.used() for c in cases), max(c.used("sharp") for c in cases))
    weights = [inequalities.expected_attention(p, first.E, M, first.d_k, heads[:32]) for M in first.M]
    cases = [inequalities.attention_bound(p, first.E, M, first.d_k, w) for M, w in zip(first.M, weights, strict=True)]
    say("(ii) expected weights, worst head", max(c.used() for c in cases), max(c.used("sharp") for c in cases))
    E = np.array([[1.0], [-1.0], [2.0], [-2.0]])
    q = np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]])
    expected = inequalities.expected_attention(q, E, np.eye(1), 1, np.array(list(product([0, 1], [2, 3], [2, 3]))))
    case = inequalities.attention_bound(q, E, np.eye(1), 1, expected)
    say("(ii) tokens ±1, ±2 whose means vanish: left, right", case.left[0, 1], case.printed[0, 1])
    draw = np.random.default_rng(0)
    values = first.E[heads[0]] @ first.W_V[0]
    errors = []
    for _ in range(100):
        exact, printed = inequalities.score_gradient(
            values, draw.dirichlet(np.ones(len(values))), draw.normal(size=values.shape[1])
        )
        errors.append(np.linalg.norm(printed - exact) / np.linalg.norm(exact))
    say("(iii) error of the printed derivative, relative, median of 100 random gradients", float(np.median(errors)))


def proposition_1(n: int = 128) -> None:
    print(f"TUPE proposition 1, n = {n}, and its two families of biases")
    b = np.random.default_rng(0).normal(size=2 * n - 1)
    found = toeplitz.factor(b)
    matrix = toeplitz.toeplitz_matrix(b)
    say("largest error of G·D·G* with 1/√(2n)", np.abs(found.matrix() - matrix).max())
    printed = toeplitz.ToeplitzFactor(found.G / np.sqrt(2 * n), found.d).matrix().real
    say("G as printed, 1/(2n): factor by which it is too small", np.linalg.norm(matrix) / np.linalg.norm(printed))
    model = encoder("tupe-r", vocab_size=16, reset="none").encoder.double()
    with torch.no_grad():
        for parameter in model.relative.parameters():
            parameter.normal_()
        terms = model.attention_terms(torch.full((1, n), 9))
    ranks = [
        sorted({toeplitz.numerical_rank(head) for head in terms[name][0, 0].numpy()})
        for name in ("absolute", "relative")
    ]
    say("ranks in a tiny tupe-r, d_head = 32: absolute, relative (random T5 values)", *map(str, ranks))
    say("freedoms: rank 32, Toeplitz", str(toeplitz.low_rank_freedoms(n, 32)), str(2 * n - 1))
    share = toeplitz.low_rank_share(terms["relative"][0, 0, 0].numpy(), 32)
    say(
        "share of that relative bias that a correlation of rank 32 can have; of ALiBi's",
        share,
        toeplitz.low_rank_share(toeplitz.toeplitz_matrix(-np.abs(np.arange(1.0 - n, n))), 32),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--corpus", default="python-docs", help="as everywhere: python-docs, a file or folder, hub:NAME, synthetic:..."
    )
    parser.add_argument(
        "--field", default="text", help="field of a JSONL, parquet, TSV or CSV file that holds the text"
    )
    parser.add_argument(
        "--positions",
        type=int,
        default=32,
        help="tokens of a document that the encoder reads; shorter documents are left out",
    )
    parser.add_argument(
        "--phrases", action="store_true", help="documents inside longer ones are not independent of them (SST-2)"
    )
    parser.add_argument(
        "--tokenizer", help="vocabulary file, tokenizer folder or Hub name [default: train a WordPiece on the corpus]"
    )
    given = parser.parse_args(arguments)
    source = open_source(given.corpus, given.field)
    tokenizer = (
        load_tokenizer(given.tokenizer)
        if given.tokenizer
        else train_tokenizer(source, VOCABULARY, max_characters=5_000_000)
    )
    build = partial(encoder, vocab_size=len(tokenizer), **special_token_ids(tokenizer))
    heads = measured.document_heads(source, tokenizer, given.positions, most=ROWS)
    counts = positional_counts(heads, len(tokenizer), given.positions)
    p = positional_distributions(counts, min_support=2).p.toarray()
    dist = hellinger(p)
    print(
        f"{source.name}: {len(heads):,} documents of {given.positions} tokens, mean d_H "
        f"{dist[np.triu_indices(len(dist), 1)].mean():.3f}"
    )
    theorem_1(build, heads)
    hypothesis_1(dist)
    b = hypothesis_2(build, heads, p, dist)
    hypothesis_3(source, tokenizer, 4 * given.positions, given.phrases)
    flow_and_bound(dist, b)
    lemmas_11_and_12(build, heads, p)
    lemma_16(build, heads, p)
    proposition_1()


if __name__ == "__main__":
    main()
