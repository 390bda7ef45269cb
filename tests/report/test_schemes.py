"""What models are called and said to do: every preset has its words, own schemes their fields; costs are said where
they differ."""

from dataclasses import replace

import pytest

from whatwhere.encoder import PRESETS, preset
from whatwhere.records.record import Record
from whatwhere.report import schemes
from whatwhere.report.loaded_run import Run, load_run
from whatwhere.report.pages import study_page
from whatwhere.report.titles import caveats


def study(*models, **facts):
    """A study of (name, config) pairs."""
    return Run("s", {"models": [{"name": name, "seed": 0, "config": config} for name, config in models], **facts})


def test_every_preset_has_its_words():
    assert set(schemes.SCHEMES) == set(PRESETS)
    words = [sentence for _, sentence in schemes.SCHEMES.values()]
    assert len(set(words)) >= len(words) - 1  # ap and bert-a differ in their block


@pytest.mark.parametrize("name", PRESETS)
def test_the_family_follows_from_the_configuration(name):
    """The family of a preset is that of its configuration."""
    config = preset(name, "tiny").to_dict()
    assert schemes.family(study((name, config)), name) == schemes.SCHEMES[name][0]
    # Records alone, as docs/results keeps them, have no study.json.
    assert schemes.family(study((name, {"preset": name})), name) == schemes.SCHEMES[name][0]


@pytest.mark.parametrize("block", ["neobert", "bert"])
def test_a_family_does_not_depend_on_the_block(block):
    for name in ("dstg", "tupe-r", "split", "ap"):
        assert (
            schemes.family(study((name, preset(name, "tiny", block=block).to_dict())), name) == schemes.SCHEMES[name][0]
        )


@pytest.mark.parametrize(
    ("config", "words", "family"),
    [
        ({"absolute": "none", "relative": "log_decay"}, "own scheme: `log_decay` bias", "distance"),
        ({"absolute": "none", "rotation": "spiral"}, "own scheme: `spiral` rotation", "rotated"),
        (
            {"absolute": "wavelets", "position_size": 8},
            "own scheme: `wavelets` table in a stream of its own",
            "streams",
        ),
        ({"absolute": "wavelets", "untied": "position"}, "own scheme: `wavelets` table apart from the words", "untied"),
        ({"absolute": "none", "untied": "free"}, "own scheme: a free matrix of position scores", "untied"),
        (
            {"absolute": "wavelets", "relative": "t5"},
            "own scheme: `wavelets` table added to the word, `t5` bias",
            "added",
        ),
        ({"absolute": "none"}, "own scheme: no position", "rotated"),
        ({}, "a scheme that the run does not describe", "other"),
    ],
)
def test_an_own_scheme_is_described_by_its_fields(config, words, family):
    made = study(("mine", {"preset": "mine", **config}))
    assert schemes.sentence(made, "mine") == words and schemes.family(made, "mine") == family
    made.facts["models"][0]["source"] = "my notes"
    assert schemes.sentence(made, "mine") == f"{words} (my notes)"


def test_few_models_stand_in_one_line(demo, everything):
    """Few models stand in one line many in a list."""
    assert schemes.line(load_run(demo))[1] == "`ap`: a learned vector for each position, added to the word"
    assert schemes.listed(load_run(demo)) == [] and schemes.line(load_run(everything)) == []
    listed = {heading: [e.name for e in entries] for heading, entries in schemes.listed(load_run(everything))}
    assert list(listed) == [heading for kind, heading in schemes.FAMILIES.items() if kind != "other"]
    assert sorted(sum(listed.values(), [])) == sorted([*PRESETS, "log-decay"])
    both = study(("dstg", preset("dstg", "tiny").to_dict()), ("split", preset("split", "tiny").to_dict()))
    assert schemes.line(both)[1].startswith("`split` (BERT): ")


def test_lines_have_the_colour_of_their_stream_or_model(everything, demo):
    found = load_run(everything)
    assert [schemes.colour(found, "split", p) for p in ("position", "semantic")] == ["absolute", "semantic"]
    looks = {m: (schemes.colour(found, m), schemes.marks(found)[m]) for m in found.models}
    for family in schemes.FAMILIES:  # those of one plot
        alike = [looks[m][0] for m in found.models if schemes.family(found, m) == family]
        assert len(set(alike)) == len(alike) and not {"combined", "absolute", "semantic"} & set(alike)
    assert len(set(looks.values())) == len(looks)
    few = load_run(demo)
    assert len({schemes.colour(few, m) for m in few.models}) == len(few.models)


def test_what_has_learned_too_little_is_grey(demo):
    found = load_run(demo)
    young = replace(
        found, records=[replace(r, value=6.2) if r.metric == "loss" and r.model == "ap" else r for r in found.records]
    )
    assert young.weak_models == ["ap"] and study_page(young).gated == ["ap"]
    assert schemes.colour(young, "ap") == schemes.colour(young, "ap", "position") == "combined"
    assert schemes.colour(young, "dstg", "position") == "absolute"
    assert "`ap` is drawn grey." in caveats(young)[0]


@pytest.mark.whole
def test_unlearned_runs_have_a_short_page(demo):
    """A run that learned nothing has a short page that says what is needed."""
    found = load_run(demo)
    records = [replace(r, value=found.plateau()) if r.metric == "loss" else r for r in found.records]
    nothing = replace(found, records=records, facts=found.facts | {"needed_tokens": 2_500_000})
    assert set(nothing.stuck) == set(nothing.models)
    assert [s.id for s in study_page(nothing).sections if s.figures and not s.folded] == ["learning"]
    assert len([s for s in study_page(found).sections if s.figures and not s.folded]) > 2
    assert "models of this size do after about 2.50M tokens" in caveats(nothing)[0]


def test_tables_say_what_they_are(everything):
    found = load_run(everything)
    notes = {m: schemes.table_note(found, m) for m in found.models}
    assert notes["sinusoidal"] == "added, fixed, not learned" and notes["fourier"] == "added, learned waves"
    assert notes["low-rank"] == "added, rank 8" and notes["tupe-a"] == "untied" and notes["split"] == "position stream"
    mapped = study(("mds", {"absolute": "mds", "table_width": 16}))
    assert schemes.table_note(mapped, "mds") == "added, fixed behind a learned map"


def test_an_own_table_that_training_left_alone_is_fixed():
    made = study(("mine", {"preset": "mine", "absolute": "wavelets"}))
    shares = [Record("s", "mine", "pca.share", 0.5, seed=0, index=0, step=step) for step in (0, None)]
    assert schemes.fixed_table(replace(made, records=shares), "mine")
    assert not schemes.fixed_table(replace(made, records=[shares[0], replace(shares[1], value=0.6)]), "mine")
    assert not schemes.fixed_table(replace(made, records=shares[1:]), "mine")


def test_the_table_shows_schemes_and_costs(everything):
    """The table shows schemes and costs and a dash where nothing is recorded."""
    found = load_run(everything)
    table = schemes.table(found)
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert list(table.columns[1:7]) == ["Block", "Absolute", "Untied", "Relative", "Rotation", "Reset"]
    assert rows["tupe-r"][:7] == ["BERT", "learned", "position", "t5, one for all layers", "none", "sum", "0.1"]
    assert rows["dstg"][3] == "t5, special tokens apart" and rows["low-rank"][1] == "low_rank, rank 8"
    assert {row[-1] for row in rows.values()} == {"–"} and "–" not in {row[-2] for row in rows.values()}
    more = replace(
        found, records=[*found.records, Record("s", "dstg", "operations", 2.35e6, unit="operations/token", seed=0)]
    )
    assert {row[0].text: row[-1].text for row in schemes.table(more).rows}["dstg"] == "2.35M"
    old = schemes.table(study(("ap", {"preset": "ap", "num_hidden_layers": 4})))
    assert {cell.text for cell in old.rows[0][1:]} == {"–"} and "not recorded" in old.caption


def test_models_of_two_blocks_are_said_to_differ():
    """Models of two backbones are said to differ in more than their scheme."""
    one = preset("ap", "tiny").to_dict()
    other = preset("tupe-a", "tiny").to_dict()
    said = schemes.unequal_terms(study(("ap", one), ("tupe-a", other)))
    assert "block (`ap` neobert, `tupe-a` bert)" in said and "dropout (`ap` 0, `tupe-a` 0.1)" in said
    assert schemes.unequal_terms(study(("ap", one), ("rp", preset("rp", "tiny").to_dict()))) == ""
