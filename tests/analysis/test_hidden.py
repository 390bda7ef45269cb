"""Sentence maps against scikit-learn document by document, the null, and documents without sentences."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import calinski_harabasz_score

import whatwhere as ww
from whatwhere.analysis.hidden import SentenceMaps, _cuts
from whatwhere.analysis.passes import ChosenWindows, read
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select

N = 30
WIDTH = 7
LAYERS = 2


def documents(count=12, n=N, mean_length=5, seed=0):
    """[CLS], sentences of random lengths, [SEP]; input_ids[:, 0] is the number of the document."""
    rng = np.random.default_rng(seed)
    segments = np.cumsum(rng.random((count, n)) < 1 / mean_length, axis=1)
    regular = np.ones((count, n), dtype=bool)
    regular[:, [0, -1]] = False
    positions = np.tile(np.arange(n), (count, 1))
    segments = segments - segments[:, 1:2]
    targets = {"token": positions / n, "segment": segments.astype(float), "intra": np.zeros((count, n))}
    return ChosenWindows(np.tile(np.arange(count)[:, None], (1, n)), positions, None, regular, targets)


class Fixed(torch.nn.Module):
    """A model whose hidden states are given, found by the number of the document."""

    def __init__(self, features, position_size=0):
        super().__init__()
        self.features = [torch.as_tensor(f) for f in features]
        self.config = SimpleNamespace(
            hidden_size=features[0].shape[-1], position_size=position_size, num_hidden_layers=len(features) - 1
        )

    def forward(self, input_ids, position_ids, output_hidden_states):
        return SimpleNamespace(hidden_states=tuple(f[input_ids[:, 0]] for f in self.features))


def states(count=12, n=N, seed=1):
    return [
        np.random.default_rng([seed, layer]).normal(size=(count, n, WIDTH)) * np.arange(1, WIDTH + 1)
        for layer in range(LAYERS + 1)
    ]


def maps(features, docs, position_size=0, batch_size=5, **options):
    model = Fixed(features, position_size)
    reader = SentenceMaps(model, **options)
    read(model, docs, [reader], batch_size=batch_size)
    return reader


def value(records, metric, layer, part="all"):
    (found,) = select(records, metric=metric, layer=layer, part=part)
    return found.value


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_records_equal_scikit_learn_document_by_document(offset):
    docs = documents()
    features = [f + offset for f in states()]
    records = maps(features, docs, position_size=3, shuffles=4).records(RecordContext("m", 3, "s"))
    assert {(r.study, r.model, r.seed, r.n) for r in records} == {("s", "m", 3, 12)}
    for part, columns in (("all", slice(0, 7)), ("position", slice(0, 3)), ("semantic", slice(3, 7))):
        for layer, f in enumerate(features):
            top = []
            separation = []
            null = []
            for i in range(len(docs)):
                x = f[i, docs.regular[i]][:, columns]
                labels = docs.targets["segment"][i, docs.regular[i]].astype(int)
                top.append(PCA().fit(x).explained_variance_ratio_[:2].sum())
                separation.append(calinski_harabasz_score(x, labels))
                shuffled = _cuts(np.where(docs.regular[i], docs.targets["segment"][i], -1).astype(int), 4, i)[1:]
                null.append(
                    np.exp(np.mean([np.log(calinski_harabasz_score(x, cut[docs.regular[i]])) for cut in shuffled]))
                )
            assert value(records, "hidden.top2", layer, part) == pytest.approx(np.mean(top))
            assert value(records, "sentences.separation", layer, part) == pytest.approx(np.mean(separation))
            assert value(records, "sentences.null", layer, part) == pytest.approx(np.mean(null))
            excess = np.log(separation) - np.log(null)
            assert value(records, "sentences.excess", layer, part) == pytest.approx(np.mean(excess))


def test_separation_is_the_equation_written_out():
    docs = documents(count=1)
    (x, *_) = states(count=1)
    inside = docs.regular[0]
    x, labels = x[0, inside], docs.targets["segment"][0, inside]
    between = 0.0
    within = 0.0
    for s in set(labels):
        own = x[labels == s]
        between += len(own) * float(np.sum((own.mean(0) - x.mean(0)) ** 2))
        within += sum(float(np.sum((row - own.mean(0)) ** 2)) for row in own)
    sentences = len(set(labels))
    records = maps(states(count=1), docs).records(RecordContext("m", 0, "s"))
    expected = between / (sentences - 1) / (within / (len(x) - sentences))
    (found,) = select(records, metric="sentences.separation", layer=0)
    assert found.value == pytest.approx(expected) and (found.low, found.high, found.n) == (None, None, 1)


def test_shuffled_cuts_are_stretches_of_the_same_lengths():
    segments = np.array([-1, 0, 0, 0, 1, -1, 2, 2, 5, -1])
    own, *others = _cuts(segments, 20, 3)
    np.testing.assert_array_equal(own, [-1, 0, 0, 0, 1, -1, 2, 2, 3, -1])
    for cut in others:
        inside = cut[segments >= 0]
        assert (
            sorted(np.bincount(inside)) == [1, 1, 2, 3]
            and (np.diff(inside) >= 0).all()
            and (cut[segments < 0] == -1).all()
        )
    assert len({tuple(c) for c in others}) > 5
    np.testing.assert_array_equal(_cuts(segments, 20, 3)[1:], others)
    assert not np.array_equal(_cuts(segments, 20, 4)[1:], others)


def test_excess_tells_sentences_from_mere_neighbourhood():
    docs = documents(count=60, n=60, seed=10)  # the null is unbiased: over 20 such seeds z has mean 0
    rng = np.random.default_rng(100)
    walk = np.cumsum(rng.normal(size=(60, 60, WIDTH)), axis=1)  # neighbours are close, sentences mean nothing
    sentence = rng.normal(size=(60, 60, WIDTH))[np.arange(60)[:, None], docs.targets["segment"].astype(int)]
    records = maps([walk, walk + 4 * sentence], docs).records(RecordContext("m", 0, "s"))
    (plain,), (marked,) = (select(records, metric="sentences.excess", layer=layer) for layer in (0, 1))
    assert plain.low < 0 < plain.high and value(records, "sentences.separation", 0) > 5
    assert marked.low > 0.3 and marked.low < marked.value < marked.high


def test_equal_lengths_have_no_other_order():
    docs = documents()
    docs.targets["segment"][:] = (np.arange(N) - 1) // 7
    records = maps(states(), docs).records(RecordContext("m", 0, "s"))
    assert value(records, "sentences.excess", 0) == pytest.approx(0.0, abs=1e-12)


def test_special_tokens_and_batches_change_nothing():
    docs = documents()
    features = states()
    spoiled = [f.copy() for f in features]
    for f in spoiled:
        f[:, 0] = np.nan
        f[:, -1] = 1e9
    plain, other = (
        maps(f, docs, batch_size=b).records(RecordContext("m", 0, "s")) for f, b in ((features, 12), (spoiled, 1))
    )
    for a, b in zip(plain, other, strict=True):
        assert (a.metric, a.layer, a.n) == (b.metric, b.layer, b.n)
        assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high))


def test_documents_of_one_sentence_are_left_out_and_counted():
    docs = documents()
    docs.targets["segment"][:3] = 0
    docs.targets["segment"][3] = np.arange(N)  # every token a sentence
    records = maps(states(), docs).records(RecordContext("m", 0, "s"))
    assert {r.n for r in records if r.metric == "hidden.top2"} == {12}
    assert {r.n for r in records if r.metric != "hidden.top2"} == {8}


def test_text_without_boundaries_has_no_sentences(caplog):
    """Text without boundaries has no sentences and the log says so."""
    docs = documents()
    docs.targets["segment"][:] = 0
    reader = maps(states(), docs)
    with caplog.at_level(logging.WARNING):
        records = reader.records(RecordContext("m", 0, "s"))
    assert {r.metric for r in records} == {"hidden.top2"} and "two sentences" in caplog.text
    assert set(reader.arrays()["segments"][:, 1:-1].ravel()) == {0}


def test_states_that_do_not_vary_have_no_records():
    docs = documents()
    features = [np.full((12, N, WIDTH), 0.3, dtype=np.float32)] + [f.astype(np.float32) for f in states()[1:]]
    records = maps(features, docs).records(RecordContext("m", 0, "s"))
    assert {r.layer for r in records} == {1, 2}
    constant_in_sentences = docs.targets["segment"][..., None] * np.ones(WIDTH)
    records = maps([constant_in_sentences], docs).records(RecordContext("m", 0, "s"))
    assert {r.metric for r in records} == {"hidden.top2"} and records[0].value == pytest.approx(1.0)


def test_arrays_are_the_scores_of_the_first_documents():
    docs = documents()
    features = states()
    arrays = maps(features, docs, position_size=3, batch_size=3).arrays()
    assert set(arrays) == {"scores.all", "scores.position", "scores.semantic", "segments"}
    assert arrays["segments"].shape == (4, N) and all(a.dtype == np.float32 for a in arrays.values())
    assert (arrays["segments"][:, [0, -1]] == -1).all()
    np.testing.assert_array_equal(arrays["segments"][:, 1:-1], docs.targets["segment"][:4, 1:-1])
    for part, columns in (("all", slice(0, 7)), ("position", slice(0, 3)), ("semantic", slice(3, 7))):
        scores = arrays[f"scores.{part}"]
        assert scores.shape == (4, LAYERS + 1, N, 2)
        for i in range(4):
            for layer, f in enumerate(features):
                pca = PCA(2).fit(f[i, 1:-1][:, columns])
                np.testing.assert_allclose(
                    np.abs(scores[i, layer]), np.abs(pca.transform(f[i][:, columns])), rtol=1e-4, atol=1e-4
                )
            inside = scores[i, :, 1:-1]
            assert (np.sum(inside[0] * (np.arange(N - 2) - (N - 3) / 2)[:, None], axis=0) >= 0).all()
            assert (np.sum(inside[1:] * inside[:-1], axis=1) >= 0).all()


def test_few_documents_and_one_column_are_kept():
    """Fewer documents and one column are shown as they are."""
    arrays = maps([f[:2] for f in states()], documents(count=2), position_size=1).arrays()
    assert arrays["scores.position"].shape == (2, LAYERS + 1, N, 2) and not arrays["scores.position"][..., 1].any()


def test_a_model_of_two_streams_in_one_pass():
    torch.manual_seed(0)  # of some weights in a thousand the percentile interval leaves out its own value
    model = ww.EncoderForMaskedLM(
        ww.preset("dstg", "tiny", vocab_size=40, num_hidden_layers=2, max_position_embeddings=N)
    )
    reader = SentenceMaps(model)
    docs = documents()
    docs.input_ids[:] = np.random.default_rng(0).integers(5, 40, docs.input_ids.shape)
    read(model, docs, [reader])
    records = reader.records(RecordContext("dstg", 1, "s"))
    found = {(r.metric, r.layer, r.part) for r in records}
    metrics = ("hidden.top2", "sentences.separation", "sentences.null", "sentences.excess")
    assert found == {
        (m, layer, part) for m in metrics for layer in range(3) for part in ("all", "position", "semantic")
    }
    assert all(r.low <= r.value <= r.high for r in records)


def test_nan_states_and_missing_windows_are_refused():
    features = states()
    features[1][4, 5, 6] = np.nan
    with pytest.raises(ValueError, match=r"hidden\[1\] has NaN"):
        maps(features, documents())
    with pytest.raises(ValueError, match="No window has passed"):
        SentenceMaps(Fixed(features)).records(RecordContext("m", 0, "s"))
    assert SentenceMaps(Fixed(features)).arrays() == {}
