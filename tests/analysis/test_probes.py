"""Ridge probes against scikit-learn on the same features, what is left out, the splits, and the records."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline

from whatwhere.analysis import probes
from whatwhere.analysis.passes import choose_windows, written
from whatwhere.analysis.probes import probe_records, split_documents
from whatwhere.analysis.record_context import RecordContext
from whatwhere.encoder import EncoderForMaskedLM, preset
from whatwhere.records.intervals import split_interval
from whatwhere.records.metrics import range_of
from whatwhere.records.record import select

N = 24
WIDTH = 10
LAYERS = 2
METRICS = ("r2.token", "r2.segment", "r2.intra")


def windows(count, seed=0, n=N):
    """Windows with [CLS] and [SEP], random segments (some of one token); input_ids[:, 0] is the number of the
    window."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        segments = np.concatenate([[-1], np.cumsum(rng.random(n - 2) < 0.25), [-1]]).astype(np.int32)
        progress = np.full(n, np.nan, dtype=np.float32)
        for k in np.unique(segments[1:-1]):
            inside = np.flatnonzero(segments == k)
            if len(inside) > 1:
                progress[inside] = np.arange(len(inside)) / (len(inside) - 1)
        made.append(
            SimpleNamespace(
                input_ids=np.full(n, i),
                position_ids=np.arange(n),
                document_ids=np.zeros(n, dtype=int),
                segments=segments,
                progress=progress,
            )
        )
    return made


class Fixed(torch.nn.Module):
    """A model whose hidden states are given: features[l] is (windows, n, width), looked up by window number."""

    def __init__(self, features, position_size=0):
        super().__init__()
        self.features = [torch.as_tensor(f) for f in features]
        self.config = SimpleNamespace(
            hidden_size=features[0].shape[-1], position_size=position_size, num_hidden_layers=len(features) - 1
        )

    def forward(self, input_ids, position_ids, output_hidden_states):
        return SimpleNamespace(hidden_states=tuple(f[input_ids[:, 0]] for f in self.features))


class Pieces(list):
    """Windows that are pieces of documents, of the given numbers."""

    def __init__(self, window_set, numbers):
        super().__init__(window_set)
        self.numbers = numbers

    def document_numbers(self):
        return self.numbers


def which(window_set):
    return getattr(window_set, "numbers", np.arange(len(window_set)))


def own_values(records, metric, layer):
    return [r.value for r in select(records, metric=metric, layer=layer, index=(0, 1, 2, 3, 4))]


def features_of(window_set, seed=1, width=WIDTH, layers=LAYERS):
    """Mixtures of the three targets and noise, different in every layer."""
    rng = np.random.default_rng(seed)
    basis = np.stack([[w.position_ids, w.segments, np.nan_to_num(w.progress) * 9] for w in window_set]).transpose(
        0, 2, 1
    )
    return [
        basis @ rng.normal(size=(3, width)) + rng.normal(size=(*basis.shape[:2], width)) * 4 * (l + 1)
        for l in range(layers + 1)
    ]


def run(features, window_set, **options):
    position_size = options.pop("position_size", 0)
    return probe_records(
        Fixed(features, position_size), window_set, RecordContext("m", 3, "s", options.pop("step", None)), **options
    )


def sklearn_r2(features, window_set, metric, columns=slice(None), splits=5, penalty=1.0, components=None):
    """The probe written out with scikit-learn, for one layer: one fit a split."""
    regular = np.stack([w.segments >= 0 for w in window_set])
    target = {
        "r2.token": np.stack([w.position_ids / len(w.position_ids) for w in window_set]),
        "r2.segment": np.stack([w.segments for w in window_set]),
        "r2.intra": np.stack([w.progress for w in window_set]).astype(np.float64),
    }[metric]
    rows = regular & ~np.isnan(target)
    found = []
    for test in split_documents(which(window_set), splits):
        fit = rows & ~test[:, None]
        tested = rows & test[:, None]
        ridge = Ridge(alpha=penalty) if components is None else make_pipeline(PCA(components), Ridge(alpha=penalty))
        ridge.fit(features[fit][:, columns], target[fit])
        found.append(r2_score(target[tested], ridge.predict(features[tested][:, columns])))
    return found


SCALES = {
    "plain": lambda f: f,
    "offset": lambda f: f + 1e7 * np.arange(1, WIDTH + 1),
    "badly scaled": lambda f: f * 10.0 ** np.linspace(-6, 6, WIDTH),
    "offset and badly scaled": lambda f: (f + 300) * 10.0 ** np.linspace(-4, 4, WIDTH),
    "one dead feature": lambda f: f * (np.arange(WIDTH) != 2),
    "twice the same": lambda f: np.concatenate([f, f], axis=-1),
    "float32": lambda f: f.astype(np.float32),
}


@pytest.mark.filterwarnings("ignore:An ill-conditioned matrix")  # scikit-learn's, of the badly scaled case
@pytest.mark.parametrize("case", SCALES)
def test_r2_equals_sklearn_ridge_to_1e_6(case):
    window_set = windows(40)
    features = [SCALES[case](f) for f in features_of(window_set)]
    records = run(features, window_set, batch_size=7)
    for metric in METRICS:
        for layer, f in enumerate(features):
            ours = [r.value for r in select(records, metric=metric, layer=layer, index=(0, 1, 2, 3, 4))]
            # scikit-learn works in the dtype it is given; the definition is float64
            np.testing.assert_allclose(ours, sklearn_r2(f.astype(np.float64), window_set, metric), atol=1e-6)
            assert 0.01 < np.mean(ours) < 0.999


@pytest.mark.parametrize("penalty", [1e-3, 1.0, 1e4])
def test_other_penalties_equal_sklearn(penalty, monkeypatch):
    monkeypatch.setattr(probes, "PENALTY", penalty)
    window_set = windows(20)
    features = features_of(window_set)
    ours = [r.value for r in select(run(features, window_set), metric="r2.segment", layer=1, index=(0, 1, 2, 3, 4))]
    np.testing.assert_allclose(ours, sklearn_r2(features[1], window_set, "r2.segment", penalty=penalty), atol=1e-9)


def test_streams_are_probed_alone():
    window_set = windows(20)
    features = features_of(window_set)
    records = run(features, window_set, position_size=4)
    for part, columns in (("all", slice(0, 10)), ("position", slice(0, 4)), ("semantic", slice(4, 10))):
        ours = [r.value for r in select(records, metric="r2.token", layer=2, part=part, index=(0, 1, 2, 3, 4))]
        np.testing.assert_allclose(ours, sklearn_r2(features[2], window_set, "r2.token", columns), atol=1e-9)
    assert {r.part for r in run(features, window_set) if r.metric == "r2.token"} == {"all"}


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_probes_of_components_equal_sklearn_pca_and_ridge(offset):
    """PCA is fitted on the training tokens of the split alone, those that have the target."""
    window_set = windows(20)
    features = [f + offset for f in features_of(window_set)]
    records = run(features, window_set, position_size=4, components=(2, 4, 5))
    for part, columns in (("all", slice(0, 10)), ("position", slice(0, 4)), ("semantic", slice(4, 10))):
        for metric in METRICS:
            for k in (2, 4, 5):
                ours = [
                    r.value
                    for r in select(records, metric=metric, layer=1, part=f"{part}.pca{k}", index=(0, 1, 2, 3, 4))
                ]
                if k > columns.stop - columns.start:
                    assert ours == []
                else:
                    np.testing.assert_allclose(
                        ours, sklearn_r2(features[1], window_set, metric, columns, components=k), atol=1e-8
                    )
    as_ever = run(features, window_set, position_size=4)
    assert [r for r in records if ".pca" not in (r.part or "")] == as_ever
    whole, four = (select(records, metric="r2.token", part=part, index=None) for part in ("position", "position.pca4"))
    assert [r.value for r in whole] == pytest.approx(
        [r.value for r in four]
    )  # all components are a rotation of the columns


def test_the_step_is_in_every_record():
    window_set = windows(12)
    assert {r.step for r in run(features_of(window_set), window_set, step=0, components=(2,))} == {0}
    assert {r.step for r in run(features_of(window_set), window_set)} == {None}


def test_huge_equal_features_lose_no_fit():
    """The penalty vanishes in rounding beside 1e9² and the Gram matrix is singular: the shortest solution, as
    scikit-learn."""
    window_set = windows(20)
    features = [np.concatenate([f, f, f], axis=-1) * 1e9 for f in features_of(window_set)]
    ours = [r.value for r in select(run(features, window_set), metric="r2.token", layer=0, index=(0, 1, 2, 3, 4))]
    np.testing.assert_allclose(ours, sklearn_r2(features[0] / 1e9, window_set, "r2.token", penalty=1e-9), atol=1e-6)


def test_special_tokens_are_not_seen():
    window_set = windows(15)
    features = features_of(window_set)
    spoiled = [f.copy() for f in features]
    for f in spoiled:
        f[:, 0] = np.nan
        f[:, -1] = 1e9
    assert run(features, window_set) == run(spoiled, window_set)


def test_one_token_segments_are_left_out_of_intra_only():
    window_set = windows(15)
    records = run(features_of(window_set), window_set)
    alone = sum(int(np.isnan(w.progress[1:-1]).sum()) for w in window_set)
    assert alone > 0
    n = {metric: select(records, metric=metric, layer=0, index=None)[0].n for metric in METRICS}
    assert n == {"r2.token": 15 * 22, "r2.segment": 15 * 22, "r2.intra": 15 * 22 - alone}


@pytest.mark.parametrize("documents", [10, 23, 500])
def test_splits_hold_out_a_fifth_and_differ(documents):
    test = split_documents(np.arange(documents), 5)
    assert set(test.sum(1)) == {round(documents / 5)}
    assert len({tuple(t) for t in test}) == 5
    np.testing.assert_array_equal(test[:3], split_documents(np.arange(documents), 3))


@pytest.mark.parametrize("documents", [2, 3, 10, 37])
def test_splits_keep_a_document_on_one_side(documents):
    """Windows of one document are on one side of every split."""
    numbers = np.random.default_rng(0).integers(documents, size=150)
    numbers[:documents] = np.arange(documents)
    test = split_documents(numbers, 5)
    for held_out in test:
        assert not set(numbers[held_out]) & set(numbers[~held_out])
        assert len(set(numbers[held_out])) == max(1, round(documents / 5))


def test_probes_split_the_documents_that_a_set_names():
    """Twelve documents of five windows, whose features give the document away and a target that it alone decides."""
    window_set = Pieces(windows(60), np.repeat(np.arange(12), 5))
    rng = np.random.default_rng(0)
    offsets = rng.normal(size=(12, WIDTH))[window_set.numbers]
    features = [f + 50 * offsets[:, None] for f in features_of(window_set)]
    records = run(features, window_set)
    for layer in range(LAYERS + 1):
        own = own_values(records, "r2.segment", layer)
        np.testing.assert_allclose(own, sklearn_r2(features[layer], window_set, "r2.segment"), atol=1e-6)
    (whole,) = select(records, metric="r2.segment", layer=0, index=None)
    wanted = split_interval(own_values(records, "r2.segment", 0), 12, range_of("r2.segment"))
    assert (whole.low, whole.high) == pytest.approx(wanted)
    sizes = {r.metric: r.value for r in records if r.metric.startswith("probe.")}
    assert sizes == {"probe.documents": 12, "probe.windows": 60, "probe.length": 24}


def test_a_single_document_is_split_by_windows(caplog):
    """Windows of a single document are split and nothing is said of others."""
    window_set = Pieces(windows(20), np.zeros(20, int))
    records = run(features_of(window_set), window_set)
    assert "All 20 windows are of one document: they are split one by one" in caplog.text
    probed = [r for r in records if r.metric.startswith("r2.")]
    assert probed and all((r.low, r.high, r.index) == (None, None, None) for r in probed)


def test_summary_is_the_mean_with_the_corrected_interval():
    window_set = windows(30)
    records = run(features_of(window_set), window_set)
    for summary in [r for r in records if r.metric.startswith("r2.") and r.index is None]:
        own = select(records, metric=summary.metric, layer=summary.layer, part=summary.part, index=(0, 1, 2, 3, 4))
        values = [r.value for r in own]
        assert summary.value == pytest.approx(np.mean(values))
        assert (summary.low, summary.high) == pytest.approx(split_interval(values, 30, range_of(summary.metric)))
        assert all(r.low is None and r.high is None for r in own) and len(own) == 5


def test_chance_floor_is_near_zero_unlike_the_probe():
    """Chance floor is near zero where the probe is not."""
    window_set = windows(60)
    records = run(features_of(window_set), window_set)
    for layer in range(LAYERS + 1):
        chance = select(records, metric="r2.token.chance", layer=layer, index=None)[0]
        assert abs(chance.value) < 0.05 < select(records, metric="r2.token", layer=layer, index=None)[0].value
        assert chance.part == "all" and chance.low is not None


def test_records_carry_labels_and_say_how_many_documents():
    window_set = windows(12)
    records = run(features_of(window_set), window_set)
    assert {(r.study, r.model, r.seed, r.unit) for r in records if r.metric.startswith("r2.")} == {("s", "m", 3, "")}
    assert {r.metric for r in records} == {
        *METRICS,
        *(f"{m}.chance" for m in METRICS),
        "probe.documents",
        "probe.windows",
        "probe.length",
    }
    sizes = [(12.0, "documents"), (12.0, "windows"), (24.0, "tokens")]
    assert [(r.value, r.unit) for r in records[:3]] == sizes
    assert {r.layer for r in records if r.metric == "r2.token"} == {0, 1, 2}


def test_batches_and_chunks_of_layers_change_nothing(monkeypatch):
    window_set = windows(25)
    features = features_of(window_set)
    whole = run(features, window_set)
    monkeypatch.setattr(probes, "MEMORY", 1)
    seen = []
    small = run(features, window_set, batch_size=3, progress=lambda *p: seen.append(p))
    assert seen.count((25, 25)) == LAYERS + 1
    for a, b in zip(whole, small, strict=True):
        assert (a.metric, a.layer, a.index) == (b.metric, b.layer, b.index) and a.value == pytest.approx(
            b.value, abs=1e-12
        )


def test_bfloat16_models_are_probed():
    window_set = windows(12)
    features = [torch.as_tensor(f).bfloat16() for f in features_of(window_set)]
    ours = [r.value for r in select(run(features, window_set), metric="r2.token", layer=0, index=(0, 1, 2, 3, 4))]
    np.testing.assert_allclose(ours, sklearn_r2(features[0].double().numpy(), window_set, "r2.token"), atol=1e-9)


def test_constant_targets_are_left_out(caplog):
    """A target that does not vary is left out and said."""
    window_set = windows(12)
    for w in window_set:
        w.segments = np.where(w.segments >= 0, 0, -1)
        w.progress = np.full(N, np.nan, dtype=np.float32)
    records = run(features_of(window_set), window_set)
    assert {r.metric for r in records if r.metric.startswith("r2.")} == {"r2.token", "r2.token.chance"}
    assert "'segment'" in caplog.text and "'intra'" in caplog.text


def test_one_split_has_no_interval():
    window_set = windows(12)
    summary = select(run(features_of(window_set), window_set, splits=1), metric="r2.token", layer=0, index=None)[0]
    assert (summary.low, summary.high) == (None, None)


def test_diverged_model_is_an_error():
    window_set = windows(12)
    features = features_of(window_set)
    features[1][4, 5, 6] = np.nan
    with pytest.raises(ValueError, match=r"hidden\[1\] has NaN"):
        run(features, window_set)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": 0}, "splits=0"),
        ({"components": (2, 0)}, "components"),
    ],
)
def test_bad_options_are_errors(options, message):
    window_set = windows(12)
    with pytest.raises(ValueError, match=message):
        run(features_of(window_set), window_set, **options)


def test_windows_of_one_regular_token_are_an_error():
    window_set = windows(12, n=3)
    with pytest.raises(ValueError, match="longer windows"):
        run(features_of(window_set), window_set)


def test_choice_of_documents_is_the_same_for_every_model():
    window_set = windows(40)
    np.testing.assert_array_equal(choose_windows(window_set, 15).input_ids, choose_windows(window_set, 15).input_ids)
    records = run(features_of(window_set), window_set, windows=15)
    assert records[0].value == 15


def encoder(name="dstg", **fields):
    torch.manual_seed(0)
    model = EncoderForMaskedLM(preset(name, "tiny", vocab_size=60, num_hidden_layers=2, **fields)).eval()
    with torch.no_grad():  # so that norms are no identities
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def hidden_of(model, ids):
    with torch.no_grad():
        return model.encoder(input_ids=ids, output_block_states=True).block_states


def test_block_updates_are_additions_to_the_residual_path():
    """What a block writes is what it adds to the residual path."""
    ids = torch.randint(5, 60, (3, 12), generator=torch.Generator().manual_seed(0))
    model = encoder(residual="stream")
    with written(model) as found:
        hidden = hidden_of(model, ids)
    for block in (1, 2):
        torch.testing.assert_close(found[block], hidden[block] - hidden[block - 1], atol=1e-5, rtol=1e-4)
    # Where the normed stream is carried on, hidden states differ by the norm as well; what is added is unlike that.
    model = encoder(residual="normalized")
    with written(model) as found:
        hidden = hidden_of(model, ids)
    layer = model.encoder.layers[0]
    streams = hidden[0].split(model.config.stream_sizes, dim=-1)
    with torch.no_grad():
        normed = layer.attention_norm(streams)
        attended, _ = layer.attention(normed, model.encoder.attention_inputs(ids, None, None, None), "sdpa")
        between = layer.feed_forward_norm(tuple(x + y for x, y in zip(normed, attended, strict=True)))
        fed = layer.feed_forward(between)
    expected = torch.cat([a + f for a, f in zip(attended, fed, strict=True)], dim=-1)
    torch.testing.assert_close(found[1], expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(found[1], hidden[1] - hidden[0], atol=0.1)
    torch.testing.assert_close(torch.cat(between, dim=-1) + torch.cat(fed, dim=-1), hidden[1], atol=1e-5, rtol=1e-4)
    assert not any(m._forward_hooks for m in model.modules())  # nothing is left behind


def test_updates_are_probed_as_states_are(monkeypatch):
    """Updates are probed as states are and of two streams alone."""
    made = windows(20)
    model = encoder()
    for w in made:
        w.input_ids = 5 + (w.input_ids + w.position_ids) % 50
    records = probe_records(model, made, RecordContext("dstg", 0), windows=20)
    found = select(records, metric="r2.update.token", index=None)
    assert [(r.layer, r.part) for r in found] == [(l, p) for l in (1, 2) for p in ("position", "semantic")]
    assert all(r.low is not None and r.low <= r.high for r in found)
    # The same numbers as a probe of given states: those that the block writes.
    ids = torch.as_tensor(np.stack([w.input_ids for w in made]))
    with written(model) as updates:
        hidden_of(model, ids)
    states = torch.cat([torch.zeros(1, *updates[1].shape), *(u[None] for u in updates.values())]).numpy()
    for i, w in enumerate(made):
        w.input_ids = np.full(N, i)
    given = run(list(states), made, position_size=8, windows=20)
    same = [r for r in select(given, metric="r2.token", index=None) if r.layer and r.part != "all"]
    np.testing.assert_allclose([r.value for r in found], [r.value for r in same], atol=1e-4)
    # In passes of one place each it is the same, and a model of one stream, or of another package, has none.
    monkeypatch.setattr(probes, "MEMORY", 1)
    for i, w in enumerate(made):
        w.input_ids = ids[i].numpy()
    again = probe_records(model, made, RecordContext("dstg", 0), windows=20)
    np.testing.assert_allclose([r.value for r in records], [r.value for r in again], atol=1e-9)
    assert not select(
        probe_records(encoder("rope"), made, RecordContext("rope", 0), windows=20), metric="r2.update.token"
    )
