"""What `explain` says of an encoder is what its configuration and its attention do."""

import pytest
import torch

from whatwhere.encoder import PRESETS, SIZES, EncoderConfig, EncoderForMaskedLM, preset
from whatwhere.encoder.attention import BACKENDS
from whatwhere.models.explain import (
    as_text,
    backend_notes,
    costs,
    differing,
    explain,
    formula,
    preset_rows,
    side_by_side,
    trains_with,
)
from whatwhere.models.preset_table import VOCABULARY, kept_rows, rows_as_text
from whatwhere.records.families import FAMILIES

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("nope", {}, "(q_i·k_j) / √30"),
        ("ap", {}, "(q_i·k_j) / √30   (q, k from words with positions added)"),
        ("rope", {}, "((R_i q_i)·(R_j k_j)) / √30"),
        (
            "dstg",
            {},
            "(q_sem_i·k_sem_j + q_pos_i·k_pos_j·[i, j not special]) / √32 + t5(j - i) or a value of its own if i or j "
            "is special",
        ),
        ("tupe-r", {}, "(q_i·k_j + reset[(p_i U_Q)·(p_j U_K)]) / √64 + reset[t5(j - i)]"),
        ("tupe-r", {"reset": "each"}, "θ2 if only j is, for each apart; one bias for all layers"),
        ("tupe-free", {}, "(q_i·k_j) / √64 + reset[free(i, j)]"),
        ("bert-ad", {}, "(q_i·k_j + q_i·(p_j U_K) + (p_i U_Q)·k_j + (p_i U_Q)·(p_j U_K)) / √128"),
        ("split", {}, "(q_sem_i·k_sem_j + q_sem_i·k_pos_j + q_pos_i·k_sem_j + q_pos_i·k_pos_j) / √32"),
    ],
)
def test_the_formula_holds_the_terms_of_scores(name, fields, said):
    config = preset(name, "tiny", **fields)
    assert said in formula(config, costs(config, 8).terms)


@pytest.mark.parametrize("name", PRESETS)
def test_what_differs_builds_the_same_encoder(name):
    config = preset(name, "small")
    again = EncoderConfig(**differing(config))
    assert again.to_diff_dict() | {"preset": name} == config.to_diff_dict()


@pytest.mark.whole
@pytest.mark.parametrize("name", ["nope", "rp", "bert-a", "tupe-r"])
def test_backends_that_are_said_to_train_do(name):
    config = preset(name, "tiny", vocab_size=32, num_hidden_layers=1)
    notes = backend_notes(config, CPU)
    trains = trains_with(config, CPU)
    assert list(notes) == list(BACKENDS) and trains == ["eager", "sdpa"]
    assert "flex_attention" in trains_with(config, CUDA) or config.dropout
    ids = torch.tensor([[2, 7, 8, 3]])
    for backend in BACKENDS:
        model = EncoderForMaskedLM(config)
        model.set_attn_implementation(backend)
        with torch.no_grad():
            model.eval()(input_ids=ids)  # each works without training
        if backend in trains:
            model.train()(input_ids=ids, labels=ids).loss.backward()
        else:
            with pytest.raises(ValueError, match="backward"):
                model.train()(input_ids=ids, labels=ids)
            assert "not in training" in notes[backend]
    assert notes["sdpa"].startswith("our own function") == (name in ("rp", "tupe-r"))
    assert ("dropout of 0.1 our own function" in notes["sdpa"]) == (name == "bert-a")


def test_texts_hold_the_numbers():
    facts = explain(preset("tupe-r", "tiny"), 64, 0.15, "sdpa")
    page = as_text(facts)
    assert (
        f"{facts['parameters']['total']:,}" in page
        and f"{facts['operations']['feed_forward']:,.0f}" in page
        and "√64" in page
    )
    rows = kept_rows("tiny")
    assert [r["name"] for r in rows] == list(PRESETS) and rows[0]["length"] == 128
    lines = rows_as_text(rows, "tiny").splitlines()
    for row in rows:
        line = next(line for line in lines if line.split()[:1] == [row["name"]])
        assert f"{row['parameters']:,}" in line and row["source"] in line


def test_presets_stand_below_their_family():
    """Every preset stands below the heading of its family, each heading once."""
    rows = kept_rows("tiny")
    heading = ""
    found = {}
    for line in rows_as_text(rows, "tiny").splitlines()[1:-2]:
        if line.startswith("  "):
            found[line.split()[0]] = heading
        else:
            heading = line
    assert found == {row["name"]: FAMILIES[row["family"]] for row in rows}
    assert set(found.values()) == set(FAMILIES.values())
    assert found["nope"] == found["rope"] != found["rp"]


def test_two_encoders_are_shown_side_by_side():
    """What two encoders share is left out, what differs stands beside each other, with the ratio of the operations."""
    first, second = (explain(preset(name, "tiny"), 64, 0.15, "sdpa") for name in ("nope", "deberta"))
    page = side_by_side(first, second)
    lines = [line.split() for line in page.splitlines()]
    assert ["pair_terms", "none", "deberta"] in lines
    assert not any(line[:1] == ["num_hidden_layers"] for line in lines)
    total = next(line for line in lines if line[:1] == ["total"])
    assert total[1:3] == [f"{facts['parameters']['total']:,}" for facts in (first, second)]
    assert total[5] == f"{second['operations']['total'] / first['operations']['total']:.2f}"
    assert first["formula"] in page and second["formula"] in page
    assert "Nothing differs" in side_by_side(first, first)


@pytest.mark.whole
@pytest.mark.parametrize("size", [pytest.param(size, marks=[pytest.mark.slow] * (size != "tiny")) for size in SIZES])
def test_recorded_preset_rows_equal_a_new_count(size):
    """Kept rows of the presets are those that counting gives."""
    assert kept_rows(size) == preset_rows(size), "run python -m whatwhere.models.explain"
    assert VOCABULARY == EncoderConfig.vocab_size and not kept_rows("huge")
