"""Position tables: what each starts from, what it learns, every one of them in every place, and those read from other
models."""

import json
import math

import naive
import numpy as np
import pytest
import torch
from encoder_models import VOCAB, build, config, inputs
from scipy.fft import dct
from transformers import (
    AlbertModel,
    BertConfig,
    BertModel,
    ElectraModel,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    OPTModel,
    PreTrainedModel,
    RobertaModel,
    ViTModel,
)

import whatwhere as ww
from whatwhere.claims.lowdim import FIXED_TABLES
from whatwhere.encoder import registry
from whatwhere.models.model_tables import read_table
from whatwhere.report.schemes import FIXED
from whatwhere.training.optimizers import make_optimizers
from whatwhere.training.pretrain_settings import PretrainConfig

ROWS = 32
USES = {"input": "ap", "stream": "dstg", "untied": "tupe-a"}
TABLES = ["learned", "fixed", "sinusoidal", "low_rank", "fourier", "mds"]


def table_of(case: str = "ap", **fields) -> torch.Tensor:
    """The position table of a new model, with the weights it starts from."""
    torch.manual_seed(0)
    return ww.Encoder(config(case, **fields)).position_table().detach().double()


def own_table(**fields) -> torch.Tensor:
    """The table at its own width, before the map."""
    torch.manual_seed(0)
    return ww.Encoder(config("ap", **fields)).position_embeddings.table().detach().double()


@pytest.fixture
def table_file(tmp_path) -> str:
    """40 rows, 24 wide, of multiples of 1/8, which float32 holds exactly; their root mean square is 1.75 or so."""
    path = tmp_path / "table.npy"
    np.save(path, np.random.default_rng(0).integers(-24, 25, (40, 24)) / 8)
    return str(path)


# Sines


@pytest.mark.parametrize("width", [1, 2, 7, 10, 24])
def test_sinusoidal_is_the_formula_at_even_and_odd_widths(width):
    found = own_table(absolute="sinusoidal", table_scale=1.0, table_width=width)
    torch.testing.assert_close(found, naive.sinusoid(ROWS, width), rtol=0, atol=3e-6)  # float32 angles up to 31


def test_sinusoidal_tables_are_exact_without_parameters():
    """Sinusoidal of a double model is exact and has no parameters."""
    model = build("sinusoidal")
    assert list(model.encoder.position_embeddings.parameters()) == []
    torch.testing.assert_close(model.position_table(), 0.5 * naive.sinusoid(ROWS, 24), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("width", [7, 24])
def test_fixed_tables_spread_as_learned_ones(width, table_file):
    """A fixed table has the spread that a learned one starts with."""
    found = own_table(absolute="sinusoidal", position_initializer_range=0.3, table_width=width)
    assert float(found.square().mean().sqrt()) == pytest.approx(0.3, rel=1e-6)
    torch.testing.assert_close(found / found[0, 1], naive.sinusoid(ROWS, width), rtol=0, atol=3e-6)
    found = own_table(absolute="mds", table_file=table_file, position_initializer_range=0.3)
    assert float(found.square().mean().sqrt()) == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize("width", [7, 24])
def test_fourier_starts_sinusoidal_and_learns(width):
    """Fourier starts as the sinusoidal table and learns frequency phase and amplitude."""
    # LOWDIM section 5: sines and cosines with a learnable frequency.
    start = own_table(absolute="fourier", table_scale=1.0, table_width=width)
    torch.testing.assert_close(start, naive.sinusoid(ROWS, width), rtol=0, atol=1e-5)
    assert torch.equal(
        own_table(absolute="fourier", table_width=width), own_table(absolute="fourier", table_width=width)
    )
    torch.testing.assert_close(
        own_table(absolute="fourier", table_width=width),
        own_table(absolute="sinusoidal", table_width=width),
        rtol=0,
        atol=1e-6,
    )
    model = build("ap", absolute="fourier", table_width=width)
    table = model.encoder.position_embeddings.table
    parameters = dict(table.named_parameters())
    assert {name.removeprefix("log_"): tuple(p.shape) for name, p in parameters.items()} == {
        name: ((width + 1) // 2,) for name in ("frequency", "phase", "amplitude")
    }
    model(**inputs("plain"), labels=inputs("plain")["input_ids"]).loss.backward()
    assert all(bool((p.grad != 0).all()) for p in parameters.values())


def test_fourier_table_has_the_derivatives_of_its_formula():
    table = build("fourier").encoder.position_embeddings.table
    i = 5
    k = 3
    for column, wave, slope in ((2 * k, torch.sin, torch.cos), (2 * k + 1, torch.cos, lambda x: -torch.sin(x))):
        gradients = dict(
            zip(
                dict(table.named_parameters()),
                torch.autograd.grad(table()[i, column], list(table.parameters())),
                strict=True,
            )
        )
        w = table.frequency[k]
        phi = table.phase[k]
        a = table.amplitude[k]
        torch.testing.assert_close(gradients["amplitude"][k], wave(w * i + phi))
        torch.testing.assert_close(gradients["phase"][k], a * slope(w * i + phi))
        torch.testing.assert_close(gradients["log_frequency"][k], a * i * w * slope(w * i + phi))  # dω = ω d(log ω)
        assert all(int((g != 0).sum()) == 1 for g in gradients.values())


# Low rank and own widths


@pytest.mark.parametrize(("width", "rank"), [(24, 1), (24, 3), (10, 10)])
def test_low_rank_tables_have_rank_and_parameters(width, rank):
    """Low rank table has rank r and r times n plus d parameters."""
    # GEOM remark 8: P = A Bᵀ.
    model = ww.Encoder(config("low-rank", table_rank=rank, table_width=width))
    table = model.position_embeddings.table
    assert sum(p.numel() for p in table.parameters()) == rank * (ROWS + width)
    assert torch.linalg.matrix_rank(table.double()().detach()) == rank


def test_low_rank_tables_spread_as_learned_ones():
    """Low rank table starts with the spread of a learned one."""
    torch.manual_seed(0)
    fields = {"max_position_embeddings": 512, "hidden_size": 240, "position_initializer_range": 0.3}
    for rank in (4, 64):
        table = ww.Encoder(config("low-rank", table_rank=rank, **fields)).position_table()
        assert float(table.detach().std()) == pytest.approx(0.3, rel=0.15)


@pytest.mark.parametrize(("case", "target"), [("ap", 24), ("dstg", 8), ("tupe-a", 24)])
def test_tables_of_another_width_are_mapped(case, target):
    """A table of its own width has a learned map."""
    # LOWDIM section 5: factorised tables, of another dimensionality than the words.
    model = build(case, table_width=5)
    parts = model.encoder.position_embeddings
    assert parts.table().shape == (ROWS, 5) and parts.map.weight.shape == (target, 5) and parts.map.bias is None
    torch.testing.assert_close(model.position_table(), parts.table() @ parts.map.weight.T)
    assert build(case, table_width=target).encoder.position_embeddings.map is None
    assert build(case).encoder.position_embeddings.map is None


@pytest.mark.parametrize("table", ["learned", "sinusoidal", "low_rank", "fourier"])
def test_the_map_keeps_the_spread_of_the_table(table):
    torch.manual_seed(0)
    rank = {"table_rank": 8} if table == "low_rank" else {}
    fields = {"max_position_embeddings": 256, "hidden_size": 240, "position_initializer_range": 0.3}
    found = ww.Encoder(config("ap", absolute=table, table_width=48, **rank, **fields)).position_table().detach()
    assert float(found.square().mean().sqrt()) == pytest.approx(0.3, rel=0.2)


# Files and starts


def test_mds_table_is_the_file_scaled_and_fixed(table_file):
    expected = torch.from_numpy(np.load(table_file))[:ROWS]
    assert torch.equal(table_of(absolute="mds", table_file=table_file, table_scale=1.0), expected)
    assert torch.equal(table_of(absolute="mds", table_file=table_file, table_scale=0.5), expected / 2)
    model = build("ap", absolute="mds", table_file=table_file, table_scale=1.0)
    assert list(model.encoder.position_embeddings.parameters()) == []
    assert torch.equal(model.position_table(), expected)


def test_a_saved_model_keeps_its_table_without_the_file(table_file, tmp_path):
    model = ww.EncoderForMaskedLM(config("ap", absolute="mds", table_file=table_file)).eval()
    model.save_pretrained(tmp_path / "model")
    np.save(table_file, np.zeros((2, 2)))
    loaded = ww.EncoderForMaskedLM.from_pretrained(tmp_path / "model")
    assert torch.equal(loaded.position_table(), model.position_table())
    assert torch.equal(loaded(**inputs("plain")).logits, model(**inputs("plain")).logits)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((40, 10)), r"is 10 wide, and the model needs 24"),
        (np.zeros((31, 24)), r"has 31 rows for 32 positions"),
        (np.full((40, 24), np.nan), r"NaN or infinity, first in row 0"),
        (np.where(np.arange(40)[:, None] == 7, np.inf, np.ones((40, 24))), r"NaN or infinity, first in row 7"),
        (np.zeros(24), r"has shape \(positions, width\)"),
        (np.zeros((0, 24)), r"has shape \(positions, width\)"),
        (np.array(["a", "b"]), r"holds no table of numbers"),
        (np.zeros((2, 2), dtype=object), r"holds no table of numbers"),
    ],
)
@pytest.mark.parametrize("use", ["mds", "start"])
def test_misfit_table_files_are_refused_in_one_line(array, message, use, tmp_path):
    """A table file that does not fit is one clear line."""
    path = tmp_path / "bad.npy"
    np.save(path, array, allow_pickle=True)
    fields = {"absolute": "mds", "table_file": str(path)} if use == "mds" else {"table_start": str(path)}
    with pytest.raises(ValueError, match=message) as caught:
        ww.Encoder(config("ap", **fields))
    assert "\n" not in str(caught.value) and "bad.npy" in str(caught.value)


@pytest.mark.parametrize("name", ["missing.npy", "table.txt", "empty-folder", "broken.npy", "cut.npy"])
def test_unreadable_tables_are_refused_in_one_line(name, tmp_path):
    """A table that cannot be read is one clear line."""
    (tmp_path / "table.txt").write_text("1 2 3")
    (tmp_path / "broken.npy").write_bytes(b"no numpy")
    np.save(tmp_path / "cut.npy", np.ones((40, 24)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:500])
    (tmp_path / "empty-folder").mkdir()
    with pytest.raises(ValueError, match=name) as caught:
        ww.Encoder(config("ap", absolute="mds", table_file=str(tmp_path / name)))
    assert "\n" not in str(caught.value)


def test_a_complex_table_is_refused(tmp_path):
    np.save(tmp_path / "waves.npy", np.ones((40, 24)) * 1j)
    with pytest.raises(ValueError, match="waves.npy"):
        ww.Encoder(config("ap", absolute="mds", table_file=str(tmp_path / "waves.npy")))


def test_a_learned_table_may_start_from_sines(tmp_path):
    found = table_of(table_start="sinusoidal", table_scale=1.0)
    torch.testing.assert_close(found, naive.sinusoid(ROWS, 24), rtol=0, atol=1e-6)
    model = ww.Encoder(config("ap", table_start="sinusoidal", position_initializer_range=0.3))
    assert model.position_embeddings.table.weight.requires_grad
    assert float(model.position_table().detach().square().mean().sqrt()) == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize("name", ["ap", "dstg"])
def test_a_learned_table_may_start_smooth(name):
    """Columns are sums of the first eight waves of scipy's cosine transform, with sizes drawn from the seed."""
    found = table_of(name, table_start="smooth", position_initializer_range=0.3)
    waves = dct(found.double().numpy(), axis=0, norm="ortho")
    assert np.abs(waves[[0, *range(9, ROWS)]]).max() < 1e-6 and (np.abs(waves[1:9]) > 1e-5).all()
    assert float(found.square().mean().sqrt()) == pytest.approx(0.3, rel=1e-6)
    torch.manual_seed(0)
    first, second = (ww.Encoder(config("ap", table_start="smooth")).position_table() for _ in range(2))
    torch.manual_seed(0)
    assert torch.equal(ww.Encoder(config("ap", table_start="smooth")).position_table(), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("name", ["ap", "dstg", "tupe-a", "bert-a", "split"])
def test_a_learned_table_may_start_as_half_a_turn(name):
    found = table_of(name, table_start="half-turn")
    expected = torch.zeros_like(found)
    for i in range(ROWS):
        expected[i, 0] = math.cos(math.pi * i / ROWS) / 10
        expected[i, 1] = math.sin(math.pi * i / ROWS) / 10
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(
        table_of(name, table_start="half-turn", table_scale=0.3), 3 * expected, rtol=0, atol=1e-7
    )
    assert not table_of(name, table_start="zeros").any()


def test_a_table_with_rate_zero_stays_as_it_started(tmp_path):
    model = ww.EncoderForMaskedLM(config("dstg", table_start="half-turn"))
    settings = PretrainConfig(table_learning_rate_scale=0.0, table_weight_decay=1.0, optimizer="adamw")
    before = model.position_table().detach().clone()
    (optimizer,) = make_optimizers(model, settings, 10)
    batch = inputs("plain")
    model(**batch, labels=batch["input_ids"]).loss.backward()
    optimizer.step()
    assert torch.equal(model.position_table(), before)


@pytest.mark.parametrize("start", ["half-turn", "sinusoidal", "smooth", "random", "file"])
def test_a_fixed_table_is_the_start_alone(start, table_file, tmp_path):
    """A fixed table is the start of a learned one, without parameters, and a saved model keeps it."""
    start = table_file if start == "file" else start
    assert torch.equal(table_of(absolute="fixed", table_start=start), table_of(table_start=start))
    torch.manual_seed(1)
    model = ww.Encoder(config("ap", absolute="fixed", table_start=start))
    assert not list(model.position_embeddings.parameters())
    model.save_pretrained(tmp_path / "model")
    if start == table_file:
        np.save(table_file, np.zeros((2, 2)))
    assert torch.equal(ww.Encoder.from_pretrained(tmp_path / "model").position_table(), model.position_table())
    assert torch.equal(read_table(tmp_path / "model"), model.position_table().double())


@pytest.mark.parametrize("start", ["half-turn", "sinusoidal"])
def test_a_fixed_table_is_right_from_the_beginning(start):
    """Where a client leaves out the drawing of weights, as transformers' common tests do, the buffer was empty."""
    settings = config("ap", absolute="fixed", table_start=start)
    table = registry.TABLES["fixed"](settings, 9, 4)
    before = table().clone()
    table.initialize(settings)
    assert before.any() and torch.equal(table(), before)


def test_tables_without_parameters_count_as_fixed(table_file):
    """Pages and claims name the tables that no training changes: those without parameters."""
    fields = {"mds": {"table_file": table_file}, "low_rank": {"table_rank": 3}}
    built = {kind: ww.Encoder(config("ap", absolute=kind, **fields.get(kind, {}))) for kind in TABLES}
    fixed = {kind for kind, model in built.items() if not list(model.position_embeddings.parameters())}
    assert fixed == set(FIXED)
    presets = {name for name, fields in registry.PRESETS.items() if fields.get("absolute") in fixed}
    assert presets == set(FIXED_TABLES)


def test_a_learned_table_may_start_from_a_file(table_file):
    expected = torch.from_numpy(np.load(table_file))[:ROWS]
    assert torch.equal(table_of(table_start=table_file), expected)
    mapped = ww.Encoder(config("dstg", table_start=table_file, table_width=24)).position_embeddings
    assert torch.equal(mapped.table.weight.detach().double(), expected)


def test_a_learned_table_may_start_from_another_model(tmp_path):
    # LOWDIM section 5 (Longformer's tables started from RoBERTa's).
    bert = BertModel(
        BertConfig(
            vocab_size=VOCAB, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=40
        )
    )
    bert.save_pretrained(tmp_path / "bert")
    rows = bert.embeddings.position_embeddings.weight.detach().double()
    assert torch.equal(table_of(table_start=str(tmp_path / "bert")), rows[:ROWS])
    assert torch.equal(table_of("tupe-a", table_start=str(tmp_path / "bert")), rows[:ROWS])
    other = ww.EncoderForMaskedLM(config("ap", max_position_embeddings=ROWS))
    other.save_pretrained(tmp_path / "ours")
    assert torch.equal(table_of(table_start=str(tmp_path / "ours")), other.position_table().detach().double())


@pytest.mark.parametrize(("kind", "unused"), [(RobertaModel, 2), (OPTModel, 2)])
def test_a_table_starts_at_another_models_first_position(kind, unused, tmp_path):
    """A table starts at the first position of the other model."""
    # Once, row 0 of RoBERTa's and OPT's tables, which belongs to no position, was taken for position 0.
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": ROWS + 2,
    }
    sizes |= {"ffn_dim": 24, "word_embed_proj_dim": 24} if kind is OPTModel else {}
    other = kind(kind.config_class(**sizes))
    other.save_pretrained(tmp_path / "other")
    (table,) = (
        p
        for name, p in other.named_parameters()
        if name.endswith(("position_embeddings.weight", "embed_positions.weight"))
    )
    assert torch.equal(table_of(table_start=str(tmp_path / "other")), table.detach().double()[unused : unused + ROWS])


# Reading the tables of other models

SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 24, "intermediate_size": 24}
TEXT = SMALL | {"vocab_size": VOCAB, "max_position_embeddings": ROWS}
# Model -> (sizes, where its positions are, where its words are, rows that belong to no position).
FAMILIES = {
    BertModel: (TEXT, "embeddings.position_embeddings", "embeddings.word_embeddings", 0),
    AlbertModel: (TEXT | {"embedding_size": 16}, "embeddings.position_embeddings", "embeddings.word_embeddings", 0),
    RobertaModel: (TEXT, "embeddings.position_embeddings", "embeddings.word_embeddings", 2),
    ElectraModel: (TEXT | {"embedding_size": 16}, "embeddings.position_embeddings", "embeddings.word_embeddings", 0),
    GPT2Model: ({"vocab_size": VOCAB, "n_positions": ROWS, "n_embd": 24, "n_layer": 1, "n_head": 2}, "wpe", "wte", 0),
    ViTModel: (SMALL | {"image_size": 32, "patch_size": 8}, "embeddings.position_embeddings", None, 0),
}


@pytest.mark.parametrize("kind", FAMILIES, ids=lambda k: k.__name__)
def test_tables_of_published_families_are_read_by_their_names(kind, tmp_path, monkeypatch):
    sizes, positions, words, unused = FAMILIES[kind]
    model = kind(kind.config_class(**sizes))
    model.save_pretrained(tmp_path, max_shard_size="10KB")  # several files, as large models have
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", None)  # and no model is loaded
    assert len(list(tmp_path.glob("*.safetensors"))) > 1

    def of(name):
        part = (
            model.get_parameter(name) if name.endswith("embeddings.position_embeddings") and kind is ViTModel else None
        )
        return (part[0] if part is not None else model.get_submodule(name).weight).detach().double()

    assert torch.equal(read_table(tmp_path), of(positions)[unused:])
    if words:
        assert torch.equal(read_table(tmp_path, words=True), of(words))
    else:
        with pytest.raises(ValueError, match="No word table in .*'vit' keeps none.*Leave --words out"):
            read_table(tmp_path, words=True)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("ap", {}),
        ("sinusoidal", {}),
        ("low-rank", {"table_rank": 3}),
        ("fourier", {}),
        ("dstg", {"table_width": 6}),
        ("tupe-a", {}),
    ],
)
def test_our_tables_are_read_as_the_model_uses_them(name, fields, tmp_path):
    """Tables of ours are read as the model uses them."""
    model = ww.EncoderForMaskedLM(config(name, **fields))
    model.save_pretrained(tmp_path / "all")
    model.encoder.save_pretrained(tmp_path / "encoder")
    expected = model.double().position_table().detach()
    for folder in ("all", "encoder"):
        found = read_table(tmp_path / folder)
        assert torch.allclose(found, expected, atol=1e-7) and not found.requires_grad
    assert torch.equal(read_table(tmp_path / "all", words=True), model.get_input_embeddings().weight.detach())


def without_weights(folder):
    (folder / "config.json").write_text('{"model_type": "bert"}')


def pickled(folder):
    without_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(b"0")


def truncated(folder):
    without_weights(folder)
    (folder / "model.safetensors").write_bytes(b"0" * 100)


def half_config(folder):
    (folder / "config.json").write_text('{"model_type": ')


def rotary(folder):
    LlamaModel(LlamaConfig(**TEXT)).save_pretrained(folder)


def without_table(folder):
    ww.EncoderForMaskedLM(config("rope")).save_pretrained(folder)


def diverged(folder):
    model = BertModel(BertConfig(**TEXT))
    model.embeddings.position_embeddings.weight.data[5, 2] = float("nan")
    model.save_pretrained(folder)


def other_width(folder):
    ww.EncoderForMaskedLM(config("ap")).save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": ROWS + 1}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (without_weights, "No weights in .*finished model"),
        (pickled, r"pickle alone \(pytorch_model.bin\), which runs code"),
        (truncated, "does not open"),
        (half_config, "not complete JSON"),
        (rotary, "No position table in .*'llama' keeps none"),
        (without_table, "No position table in .*its scheme, rope, keeps no position"),
        (diverged, "NaN or infinity, first in row 5"),
        (other_width, "does not fit its config.json .*size mismatch"),
    ],
)
def test_folders_without_a_table_are_refused_in_one_line(make, message, tmp_path):
    make(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        read_table(tmp_path)
    assert "\n" not in str(error.value)


def test_a_single_table_has_no_words(table_file):
    with pytest.raises(ValueError, match="one table and has no words beside it"):
        read_table(table_file, words=True)


def test_loading_a_model_does_not_start_its_table_again(table_file, tmp_path):
    model = ww.EncoderForMaskedLM(config("ap", table_start=table_file)).eval()
    with torch.no_grad():
        model.encoder.position_embeddings.table.weight.add_(1.0)
    model.save_pretrained(tmp_path / "model")
    np.save(table_file, np.zeros((2, 2)))
    assert torch.equal(
        ww.EncoderForMaskedLM.from_pretrained(tmp_path / "model").position_table(), model.position_table()
    )


# Every table in every place


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("own_width", [False, True])
def test_every_table_works_in_every_place(table, use, own_width, tmp_path):
    fields: dict = {"absolute": table}
    if table == "low_rank":
        fields["table_rank"] = 3
    width = 6 if own_width else 8 if use == "stream" else 24
    if own_width:
        fields["table_width"] = 6
    if table == "mds":
        np.save(tmp_path / "table.npy", np.random.default_rng(1).normal(size=(ROWS, width)))
        fields |= {"table_file": str(tmp_path / "table.npy"), "table_scale": 1.0}
    model = build(USES[use], **fields)
    parts = model.encoder.position_embeddings
    assert parts.table().shape == (ROWS, width) and model.position_table().shape == (ROWS, 8 if use == "stream" else 24)
    given = inputs("shifted")
    model(**given, labels=given["input_ids"]).loss.backward()
    for name, parameter in parts.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.isfinite().all()) and bool(parameter.grad.any()), name
    moved = model(**(given | {"position_ids": given["position_ids"].flip(1)})).logits
    assert (moved - model(**given).logits).abs().max() > 1e-4
    expected = {"input": {"mixed"}, "stream": {"semantic", "absolute", "relative"}, "untied": {"semantic", "absolute"}}[
        use
    ]
    assert set(model.attention_terms(**given)) == expected


def test_positions_that_do_not_occur_get_no_gradient():
    model = build("ap")
    given = inputs("shifted")
    model(**given, labels=given["input_ids"]).loss.backward()
    reached = model.encoder.position_embeddings.table.weight.grad.abs().sum(1) > 0
    assert reached.nonzero().flatten().tolist() == sorted(set(given["position_ids"].flatten().tolist()))


def test_without_a_reader_of_folders_a_start_is_refused(tmp_path, monkeypatch):
    """A model that was saved carries no reader: its weights hold the table."""
    ww.EncoderForMaskedLM(config("ap")).save_pretrained(tmp_path)
    monkeypatch.setattr(registry, "_folder_readers", [])
    with pytest.raises(ValueError, match="is a model's folder. Import whatwhere.models.model_tables to read it"):
        build("ap", table_start=str(tmp_path))
    assert ww.EncoderForMaskedLM.from_pretrained(tmp_path).position_table().shape == (ROWS, 24)
