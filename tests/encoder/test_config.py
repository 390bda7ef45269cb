"""Configurations, presets and names: published sizes, and every wrong key, width or name refused with a way out."""

import pytest
import torch
from encoder_models import VOCAB, build, config, inputs
from torch import nn

import whatwhere as ww
from whatwhere.encoder import registry
from whatwhere.encoder.scheme_checks import DISTANCE_KEY_READERS, NO_DISTANCE_KEY_READERS

BASELINES = "ap rp rope rope-partial xpos nope conv sinusoidal shape cape alibi low-rank fourier".split()


@pytest.mark.parametrize("name", BASELINES)
def test_paper_baselines_are_720_wide(name):
    config = ww.preset(name)
    assert (config.hidden_size, config.position_size, config.num_hidden_layers, config.num_attention_heads) == (
        720,
        0,
        6,
        6,
    )
    assert (config.max_position_embeddings, config.intermediate_size, config.block, config.dropout) == (
        512,
        2880,
        "neobert",
        0.0,
    )


@pytest.mark.parametrize(
    "name", ["bert-a", "bert-r", "bert-ad", "tupe-a", "tupe-r", "tupe-a-tie-cls", "tupe-free", "tupe-product", "split"]
)
def test_tupes_family_is_bert_base(name):
    # TUPE 4.1 and Table 1.
    config = ww.preset(name)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size) == (
        768,
        12,
        12,
        3072,
    )
    assert (config.max_position_embeddings, config.block, config.dropout, config.norm_eps) == (512, "bert", 0.1, 1e-12)
    assert config.position_size == (64 if name == "split" else 0)  # SPLIT: d_pos = d_head
    assert ww.preset(name, "tiny").hidden_size == 128 and ww.preset(name, "tiny").num_attention_heads == 4


def test_a_wider_position_stream_leaves_meaning_its_width():
    """A number for `d_pos` took the columns from the semantic stream."""
    plain = ww.preset("dstg", "tiny")
    wide = ww.preset("dstg", "tiny", d_pos=32)
    assert wide.position_size == 32 and wide.stream_sizes[1] == plain.stream_sizes[1]
    with pytest.raises(ValueError, match="d_pos is the width of a position stream, and ap has none"):
        ww.preset("ap", "tiny", d_pos=32)  # it was ignored


def test_paper_dstg_is_48_and_720():
    # DSTG 3.1-3.3: d_head = 768/6, values 8 and 120 wide per head, SwiGLU 4 × 48 and 4 × 720.
    config = ww.preset("dstg")
    assert config.stream_sizes == (48, 720) and config.d_head == 128
    with torch.device("meta"):
        block = ww.EncoderForMaskedLM(config).encoder.layers[0]
    assert [tuple(m.weight.shape) for m in block.attention.qkv] == [(2 * 768 + 48, 48), (2 * 768 + 720, 720)]
    assert [tuple(m.weight.shape) for m in block.feed_forward.down] == [(48, 192), (720, 2880)]
    assert [tuple(m.weight.shape) for m in block.feed_forward.up] == [(2 * 3072, 768)]
    assert not [name for name, _ in block.named_parameters() if name.endswith("bias")]


def test_tupe_adds_two_matrices_to_bert():
    # TUPE 3.3: about 1.18M (2 × 768 × 768) new parameters.
    with torch.device("meta"):
        count = {
            name: sum(p.numel() for p in ww.Encoder(ww.preset(name)).parameters())
            for name in ("bert-a", "tupe-a-tie-cls", "tupe-a")
        }
    assert count["tupe-a-tie-cls"] - count["bert-a"] == 2 * 768 * 768 + 2 * 768  # and the LayerNorm of p
    assert count["tupe-a"] - count["tupe-a-tie-cls"] == 2 * 768  # p_θ1, p_θ2


@pytest.mark.parametrize(
    ("one", "other", "fields"),
    [
        ("bert-r", "bert-a", {"relative", "relative_shared"}),
        ("bert-ad", "bert-a", {"untied"}),
        ("tupe-a-tie-cls", "bert-a", {"untied"}),
        ("tupe-a", "tupe-a-tie-cls", {"reset"}),
        ("tupe-r", "tupe-a", {"relative", "relative_shared"}),
        ("tupe-free", "tupe-a", {"untied", "absolute"}),
        ("tupe-product", "tupe-r", {"relative"}),
        ("rp", "nope", {"relative", "relative_special"}),
        ("sinusoidal", "ap", {"absolute"}),
        ("rope-partial", "rope", {"rotation_share"}),
        ("xpos", "rope", {"rotation"}),
        ("conv", "nope", {"input_kernel"}),
        ("shape", "sinusoidal", {"position_draws", "draw_shift"}),
        ("cape", "shape", {"position_draws", "draw_shift", "draw_local_shift", "draw_scale"}),
        ("dstg-full-mlm", "dstg", {"mlm_head"}),
        ("dstg-waves", "dstg", {"table_start"}),
        ("dstg-waves-frozen", "dstg-waves", {"absolute"}),
    ],
)
def test_presets_differ_as_their_papers_do(one, other, fields):
    """The diff between two papers is the diff between two presets."""
    a, b = (ww.preset(name).to_dict() for name in (one, other))
    assert {key for key in a if a[key] != b[key]} == fields | {"preset"}


def test_tiny_sizes_keep_four_heads():
    assert ww.preset("dstg", "tiny").stream_sizes == (8, 120)
    assert ww.preset("split", "tiny").stream_sizes == (32, 96)
    assert ww.preset("ap", "tiny").hidden_size == 120
    assert ww.preset("ap", "tiny").num_attention_heads == 4


def test_any_scheme_goes_on_either_block():
    swapped = {
        name: ww.preset(name, "tiny", block="bert" if ww.preset(name).block == "neobert" else "neobert")
        for name in registry.PRESETS
    }
    assert (
        swapped["tupe-r"].hidden_size == ww.preset("ap", "tiny").hidden_size
    )  # one backbone, so that papers can be compared
    assert swapped["dstg"].hidden_size == ww.preset("bert-a", "tiny").hidden_size
    for name, other in swapped.items():
        own = ww.preset(name, "tiny")
        keys = (
            "absolute",
            "untied",
            "reset",
            "relative",
            "relative_shared",
            "relative_special",
            "rotation",
            "stream_qk",
            "stream_values",
        )
        assert [getattr(own, key) for key in keys] == [getattr(other, key) for key in keys]


TWO = {"position_size": 48, "absolute": "learned"}
UNTIED = {"absolute": "learned", "untied": "position"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"positon_size": 8}, "no field 'positon_size'. Did you mean position_size"),
        ({"position_size": 50, "absolute": "learned"}, "position_size=50, num_attention_heads=6. Nearest: 48 or 54"),
        ({"hidden_size": 700}, "hidden_size=700, num_attention_heads=6. Nearest: 696 or 702"),
        ({"position_size": 48}, "needs a position table"),
        ({"position_size": 768, "absolute": "learned"}, "position_size must be in [0, hidden_size): position_size=768"),
        ({"rotation": "rope", "hidden_size": 18}, "even width per head"),
        ({"absolute": "learnt"}, "absolute must be one of none, learned"),
        ({"absolute": "learnt"}, "got 'learnt'. Did you mean learned"),
        ({"relative": "alibbi"}, "got 'alibbi'. Did you mean alibi"),
        ({"rotation": "ropes"}, "got 'ropes'. Did you mean rope"),
        ({"untied": "positions"}, "got 'positions'. Did you mean position"),
        ({"block": "berd"}, "got 'berd'. Did you mean bert"),
        ({"reset": "summ", **UNTIED}, "got 'summ'. Did you mean sum"),
        ({"relative_special": "each"}, "relative_special needs a relative bias"),
        ({"relative_special": "eech", "relative": "t5"}, "got 'eech'. Did you mean each"),
        ({"relative_shared": True}, "relative_shared needs a relative bias"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1"),
        ({**TWO, "intermediate_size": 100}, "must be a multiple of 16"),
        ({**TWO, "rotation": "rope"}, "rotation works on one stream"),
        ({"relative": "alibi", "alibi_slopes": [0.5, 0.25]}, "must be 6 positive numbers"),
        ({"relative": "alibi", "alibi_slopes": [0.5] * 5 + [-0.5]}, "must be 6 positive numbers"),
        ({"relative": "alibi", "alibi_slopes": [0.5] * 5 + [float("nan")]}, "must be 6 positive numbers"),
        ({"relative": "alibi", "alibi_slopes": [0.5] * 5 + [float("inf")]}, "must be 6 positive numbers"),
        ({"alibi_slopes": [0.5] * 6}, "alibi_slopes needs relative=alibi"),
        ({"relative": "alibi", "tisa_kernels": 3}, "tisa_kernels needs relative=tisa; got relative=alibi"),
        ({"relative": "tisa", "tisa_kernels": 0}, "tisa_kernels must be at least 1; got 0"),
        ({"untied": "position"}, "untied=position needs a position table"),
        ({"untied": "crossed"}, "untied=crossed needs a position table"),
        ({"untied": "free", "absolute": "learned"}, "set absolute=none"),
        ({**TWO, "untied": "position"}, "untied=position works on one stream"),
        ({"reset": "sum"}, "reset=sum needs a positional correlation"),
        ({"absolute": "learned", "untied": "crossed", "reset": "sum"}, "reset=sum needs a positional correlation"),
        ({"absolute": "learned", "untied": "crossed", "reset": "sum", "relative": "t5"}, "Set reset=none"),
        ({**UNTIED, "reset": "sum", "relative": "t5", "relative_special": "shared"}, "Choose one"),
        ({"stream_qk": "joint"}, "stream_qk=joint needs a position stream"),
        ({"stream_values": "consecutive"}, "stream_values=consecutive needs a position stream"),
        ({"stream_feed_forward": "separate"}, "stream_feed_forward=separate needs a position stream"),
        ({"mlm_head": "full"}, "mlm_head=full needs a position stream: set position_size, or mlm_head=semantic"),
        ({"absolute": "mds"}, "needs table_file"),
        ({"absolute": "learned", "table_file": "x.npy"}, "table_file is for absolute=mds"),
        ({"absolute": "sinusoidal", "table_start": "sinusoidal"}, "sinusoidal needs a learned or fixed table"),
        ({"table_start": "half-turn"}, "needs a learned or fixed table, and this scheme has none"),
        (
            {"absolute": "learned", "table_width": 1, "table_start": "half-turn"},
            "table_start=half-turn fills two columns, and the table has one",
        ),
        ({"absolute": "fixed", "table_start": "zeros"}, "tells no positions apart"),
        ({"absolute": "low_rank"}, "absolute=low_rank needs table_rank"),
        ({"absolute": "learned", "table_rank": 4}, "table_rank belongs to absolute=low_rank"),
        ({"absolute": "low_rank", "table_rank": 513}, "table_rank must be at most 512"),
        ({"absolute": "low_rank", "table_rank": 0}, "table_rank must be at least 1"),
        ({"table_width": 8}, "table_width=8 needs a position table"),
        ({"absolute": "sinusoidal", "table_scale": float("nan")}, "table_scale"),
        ({"absolute": "learned", "table_scale": 2.0}, "table_scale"),
        ({"block": "bert", "residual": "normalized"}, "residual"),
        ({"hidden_size": "abc"}, "hidden_size must be a whole number; got 'abc'"),
        ({"num_attention_heads": 4.0}, "num_attention_heads must be a whole number; got 4.0"),
        ({"num_attention_heads": 0}, "num_attention_heads must be at least 1"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a whole number"),
        ({"absolute_skips_special": "maybe"}, "absolute_skips_special must be true or false; got 'maybe'"),
        ({"absolute": "low_rank", "table_rank": 2.5}, "table_rank must be a whole number; got 2.5"),
        ({"relative": "alibi", "alibi_slopes": 1}, "alibi_slopes must be a list of numbers; got 1"),
        ({"relative": "alibi", "alibi_slopes": [0.5, "a"]}, "alibi_slopes must be a list of numbers"),
        ({"dropout": "none"}, "dropout must be a number; got 'none'"),
        ({"vocab_size": 4}, "mask_token_id=4 is no entry of a vocabulary of 4"),
    ],
)
def test_wrong_fields_are_one_line_errors(fields, message):
    with pytest.raises(ValueError) as caught:
        ww.EncoderConfig(**fields)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_preset_and_size_name_what_exists():
    with pytest.raises(ValueError, match="Unknown preset 'dsgt'. Did you mean dstg"):
        ww.preset("dsgt")
    with pytest.raises(
        ValueError, match="Unknown preset 'tupe-b'. Did you mean tupe-.*All names: nope, ap, rope"
    ) as caught:
        ww.preset("tupe-b")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="rotation_scaling=yarn needs rope_theta above 1; got 1.0"):
        ww.preset("rope", "tiny", rotation_scaling="yarn", rotation_factor=2.0, rope_theta=1.0)
    with pytest.raises(ValueError, match="Sizes: tiny, small, paper"):
        ww.preset("dstg", "huge")
    with pytest.raises(ValueError, match="Unknown size 'smal'.*Did you mean small"):
        ww.preset("dstg", "smal")
    with pytest.raises(ValueError, match="block must be one of neobert, bert; got 'brt'"):
        ww.preset("dstg", block="brt")
    for block in ("positions", ["bert"]):  # the first is a key of the sizes: both were a TypeError
        with pytest.raises(ValueError, match="block must be one of neobert, bert; got"):
            ww.preset("dstg", block=block)


def test_config_survives_json(tmp_path):
    config = ww.preset("dstg", "tiny", vocab_size=77, residual="normalized", num_labels=3)
    config.save_pretrained(tmp_path)
    assert ww.EncoderConfig.from_pretrained(tmp_path).to_dict() == config.to_dict()
    for name in registry.PRESETS:
        own = ww.preset(name, "tiny")
        own.save_pretrained(tmp_path)
        assert ww.EncoderConfig.from_pretrained(tmp_path).to_dict() == own.to_dict()


def test_tables_start_as_wide_as_the_words_unless_told():
    for name, size in (("dstg", "tiny"), ("ap", "tiny"), ("dstg", "paper")):
        assert ww.preset(name, size, embedding_initializer_range=0.03).position_initializer_range == 0.03
    assert ww.preset("dstg", "tiny", position_initializer_range=0.5).position_initializer_range == 0.5


@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_initial_weights_have_the_configured_spread_and_shape(kind):
    """Normal: standard deviation r; uniform: half-width r (the code of DSTG's authors has 0.02), so r / sqrt 3."""
    fields = {"initializer_range": 0.05, "embedding_initializer_range": 0.03, "position_initializer_range": 0.24}
    torch.manual_seed(0)
    model = ww.Encoder(ww.preset("dstg", "tiny", vocab_size=999, initializer=kind, **fields))
    found = {
        0.05: model.layers[0].feed_forward.up[0].weight,
        0.03: model.word_embeddings.weight,
        0.24: model.position_table(),
    }
    for r, weight in found.items():
        assert float(weight.detach().std()) == pytest.approx(r if kind == "normal" else r / 3**0.5, rel=0.05)
        assert (float(weight.detach().abs().max()) <= r) == (kind == "uniform")


# Names of one's own


class Ramp(nn.Module):
    """Position i in every column, times a learned number that starts at 0.5."""

    def __init__(self, config, rows, width):
        super().__init__()
        self.shape = (rows, width)
        self.slope = nn.Parameter(torch.empty(()))

    def initialize(self, config):
        nn.init.constant_(self.slope, 0.5)

    def forward(self):
        return (self.slope * torch.arange(self.shape[0], dtype=self.slope.dtype)[:, None]).expand(self.shape)


class Nested(nn.Module):
    """A table whose weights all belong to a module inside it."""

    def __init__(self, config, rows, width):
        super().__init__()
        self.inside = nn.Embedding(rows, width)

    def initialize(self, config):
        with torch.no_grad():
            self.inside.weight.fill_(0.25)

    def forward(self):
        return self.inside.weight


class Near(nn.Module):
    """A learned bonus per head for the neighbours."""

    def __init__(self, config):
        super().__init__()
        self.bonus = nn.Parameter(torch.empty(config.num_attention_heads))

    def initialize(self, config):
        nn.init.ones_(self.bonus)

    def forward(self, distance):
        return (distance.abs() == 1)[..., None] * self.bonus


@pytest.mark.parametrize("base", ["ap", "dstg", "tupe-r", "bert-ad"])
def test_a_custom_table_works_wherever_tables_do(base, names):
    """A table of ones own works wherever a table does."""
    names.register_table("ramp")(Ramp)
    fresh = ww.Encoder(config(base, absolute="ramp"))
    assert torch.equal(fresh.position_table()[3], torch.full_like(fresh.position_table()[3], 1.5))
    model = build(base, absolute="ramp")
    model(**inputs("plain"), labels=inputs("plain")["input_ids"]).loss.backward()
    slope = model.encoder.position_embeddings.table.slope
    if base in ("ap", "dstg"):
        assert slope.grad != 0
    assert torch.equal(model.position_table()[:, 0], slope * torch.arange(32))
    mapped = ww.Encoder(config(base, absolute="ramp", table_width=5))
    assert mapped.position_embeddings.table().shape == (32, 5)


def test_modules_with_nested_weights_are_initialized(names):
    """Initialize runs for a module whose weights are all inside another."""
    names.register_table("nested")(Nested)
    table = ww.Encoder(config("ap", absolute="nested")).position_table()
    assert bool((table == 0.25).all())


@pytest.mark.parametrize("base", ["nope", "dstg", "tupe-r", "split"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_custom_bias_works_wherever_biases_do(base, shared, names):
    """A bias of ones own works wherever a bias does."""
    names.register_bias("near")(Near)
    model = build(base, relative="near", relative_shared=shared)
    relative = model.attention_terms(**inputs("shifted"))["relative"].expand(2, 2, 2, 7, 7)
    positions = inputs("shifted")["position_ids"]
    near = (positions[:, :, None] - positions[:, None, :]).abs() == 1
    words = ~torch.isin(inputs("shifted")["input_ids"], torch.tensor([2, 3]))
    regular = words[:, :, None] & words[:, None, :]
    where = model.encoder.relative if shared else model.encoder.layers[1].attention.relative
    expected = near[:, None] * where.function.bonus[:, None, None]
    torch.testing.assert_close(relative[1] * regular[:, None], expected * regular[:, None])
    eager = []
    fused = []
    for backend, found in (("eager", eager), ("sdpa", fused)):
        model.set_attn_implementation(backend)
        model.zero_grad()
        loss = model(**inputs("shifted"), labels=inputs("shifted")["input_ids"]).loss
        loss.backward()
        found += [loss.detach(), where.function.bonus.grad.clone()]
    for a, b in zip(eager, fused, strict=True):
        torch.testing.assert_close(a, b)
    assert bool((eager[1] != 0).all())


def test_a_rotation_of_ones_own_replaces_rope(names):
    @names.register_rotation("slow")
    def slow(position_ids, width, config, dtype):
        return position_ids[:, :, None].to(dtype) * torch.linspace(0.0, 0.1, width // 2, dtype=dtype)

    model = build("nope", rotation="slow")
    rope = build("rope")
    rope.load_state_dict(model.state_dict())
    ids = inputs("plain")["input_ids"]
    here = model(ids).logits
    positions = torch.arange(7).expand(2, 7)
    torch.testing.assert_close(model(ids, position_ids=positions + 5).logits, here, rtol=1e-10, atol=1e-11)
    assert (here - rope(ids).logits).abs().max() > 1e-4


def test_a_preset_of_ones_own_derives_from_another(names):
    names.register_preset("tupe-alibi", "tupe-r", "own", relative="alibi")
    own = ww.preset("tupe-alibi", "tiny", vocab_size=VOCAB)
    assert (own.preset, own.untied, own.reset, own.relative) == ("tupe-alibi", "position", "sum", "alibi")
    terms = ww.Encoder(own).attention_terms(input_ids=inputs("plain")["input_ids"])
    assert set(terms) == {"semantic", "absolute", "relative"} and names.SOURCES["tupe-alibi"] == "own"


@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda r: r.register_table("learned"), "A table named 'learned' is registered already"),
        (lambda r: r.register_bias("alibi"), "A bias named 'alibi' is registered already"),
        (lambda r: r.register_rotation("rope"), "A rotation named 'rope' is registered already"),
        (lambda r: r.register_preset("dstg", None, "own"), "A preset named 'dstg' is registered already"),
        (lambda r: r.register_table("none"), "cannot be named 'none'"),
        (lambda r: r.register_bias(""), "cannot be named ''"),
        (lambda r: r.register_preset("circle", "circle", "own"), "'circle' is derived from itself"),
        (lambda r: r.register_preset("one", "two", "own"), "'one' is derived from 'two', which is not registered"),
        (lambda r: r.register_preset("mine", "tupe-rr", "own"), "Did you mean tupe-r"),
    ],
)
def test_a_wrong_name_is_refused_in_one_line(register, message, names):
    """A name that cannot be registered is one clear line."""
    before = [dict(one) for one in (names.TABLES, names.BIASES, names.ROTATIONS, names.PRESETS)]
    with pytest.raises(ValueError) as caught:
        register(names)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert before == [dict(one) for one in (names.TABLES, names.BIASES, names.ROTATIONS, names.PRESETS)]


def test_a_name_cannot_be_registered_twice(names):
    """The same name twice in one program is refused the second time."""
    names.register_table("ramp")(Ramp)
    with pytest.raises(ValueError, match="A table named 'ramp' is registered already"):
        names.register_table("ramp")(Ramp)


def test_presets_cannot_form_a_circle_over_two(names):
    with pytest.raises(ValueError, match="presets cannot form a circle"):
        names.register_preset("hen", "egg", "own")
    names.register_preset("egg", "nope", "own")
    names.register_preset("hen", "egg", "own")
    with pytest.raises(ValueError, match="registered already"):
        names.register_preset("egg", "hen", "own")


def test_only_buckets_need_a_wide_reach():
    """A bias without buckets was refused where relative_max_distance was at most a quarter of T5's buckets."""
    assert ww.preset("shaw", "tiny", relative_max_distance=4).relative_max_distance == 4
    assert ww.preset("alibi", "tiny", relative="clipped", relative_max_distance=4).relative_max_distance == 4
    with pytest.raises(ValueError, match="must exceed relative_buckets/4 = 8; got 4"):
        ww.preset("rp", "tiny", relative_max_distance=4)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("rope", {"relative_max_distance": 16}, "relative_max_distance=16 is read by clipped, product, shaw, t5 alone"),
        ("alibi", {"relative_max_distance": 16}, "got relative=alibi, pair_terms=none"),
        ("deberta", {"relative_max_distance": 16}, "or set relative_max_distance=128"),
        ("rp", {"relative": "clipped", "relative_buckets": 16}, "relative_buckets=16 is read by t5 alone"),
        ("shaw", {"relative_buckets": 16}, "relative_buckets=16 is read by t5 alone"),
    ],
)
def test_keys_that_no_part_reads_are_refused(name, fields, message):
    """`relative_max_distance` with `rope` and `relative_buckets` beside a clipped bias were taken and changed nothing.

    Their defaults, which saved configurations carry, are taken everywhere.
    """
    with pytest.raises(ValueError, match=message):
        ww.preset(name, "tiny", **fields)
    assert ww.preset(name, "tiny", **{key: getattr(ww.EncoderConfig, key) for key in DISTANCE_KEY_READERS})


def test_every_part_reads_distances_or_none():
    """A new bias says whether it reads the keys of distances."""
    parts = {"none", *registry.BIASES, *registry.PAIR_TERMS}
    assert parts >= NO_DISTANCE_KEY_READERS.union(*DISTANCE_KEY_READERS.values())
    modules = {name: part.__module__ for name, part in {**registry.BIASES, **registry.PAIR_TERMS}.items()}
    packaged = {
        name for name, module in modules.items() if module.startswith("whatwhere.encoder.") and "own_" not in module
    }
    assert packaged <= NO_DISTANCE_KEY_READERS.union(*DISTANCE_KEY_READERS.values())


def test_an_own_bias_may_read_any_key(names):
    """An own bias may read `relative_max_distance`, which the package's biases by a formula do not."""
    names.register_bias("mine")(registry.BIASES["clipped"])
    assert ww.EncoderConfig(relative="mine", relative_max_distance=16).relative_max_distance == 16


def test_an_unknown_scheme_is_refused_in_one_line(names, tmp_path):
    """A checkpoint of an unknown scheme is one clear line."""
    names.register_table("ramp")(Ramp)
    ww.Encoder(config("ap", absolute="ramp")).save_pretrained(tmp_path)
    del names.TABLES["ramp"]
    with pytest.raises(
        ValueError, match="absolute must be one of none, learned.*got 'ramp'.*One of your own needs its file"
    ) as caught:
        ww.Encoder.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "fields", [{"num_attention_heads": 0}, {"hidden_size": "x"}, {"embedding_initializer_range": "x"}]
)
@pytest.mark.parametrize("name", ["dstg", "split"])
def test_a_preset_with_impossible_values_is_a_clear_error(name, fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        ww.preset(name, "tiny", **fields)
