"""Reference studies: what ships is what docs/results says, a run meets the one with its terms, and what is of another
version or size is left out and said."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_reference import SCRIPT, change, make_reference, set_model
from made_study import make_study
from scripts import module_of

import whatwhere as ww
from whatwhere.claims import evaluate
from whatwhere.encoder import PRESETS
from whatwhere.records.record import FORMAT, Record, read_records, write_records
from whatwhere.records.table import Table
from whatwhere.report import references
from whatwhere.report.figures.hidden_states import variance
from whatwhere.report.ledger import row
from whatwhere.report.loaded_run import Run, load_run
from whatwhere.report.page import render_page
from whatwhere.report.pages import study_page
from whatwhere.report.references import DOCSTRINGS, WIKIPEDIA, beside, kind_of_text, settings_of, studies

RESULTS = Path(__file__).parents[1] / "docs/results"
SHIPPED = references.FOLDER


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of one made-up reference study; do not write into it."""
    out = tmp_path_factory.mktemp("references")
    make_reference(out, tmp_path_factory.mktemp("study"))
    return out


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of it, which stands for those of the package."""
    copy = shutil.copytree(made, tmp_path / "references")
    monkeypatch.setattr(references, "FOLDER", copy)
    return copy


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """Facts and records of a made-up run of two models."""
    study = make_study(tmp_path_factory.mktemp("run") / "run", models=("dstg", "ap"))
    return json.loads((study / "study.json").read_text()), Table(read_records(study / "records.parquet"))


def with_settings(facts, model, **fields):
    """The facts of a run with other fields in a model's configuration."""
    entries = [e | {"config": e["config"] | fields} if e["name"] == model else e for e in facts["models"]]
    return facts | {"models": entries}


# ---- what ships ----


def test_what_ships_is_small_whole_and_of_this_version():
    known, left_out = references._studies(SHIPPED)
    assert known and left_out == []
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= module_of(SCRIPT).MOST_BYTES
    for study in known:
        assert study.facts["format"] == FORMAT and "dstg" in study.models
        assert {r.study for r in study.records} == {study.name} and study.facts["tokens"] >= 1e7


KEPT = {path: RESULTS / json.loads(path.read_text())["folder"] / "records.parquet" for path in SHIPPED.glob("*.json")}


def test_models_of_today_meet_what_ships():
    """A field that came later was lacking in what ships, and no new run of any size had a reference beside it."""
    for study in studies()[0]:
        names = sorted(set(study.models) & set(PRESETS))
        assert {"dstg", "ap"} <= set(names)
        for name in names:
            config = settings_of(ww.preset(name, study.facts["size"]).to_dict())
            assert references._closest(name, config, study) == name
            assert references._closest(name, config | {"pair_terms": "another"}, study) is None


@pytest.mark.whole
@pytest.mark.parametrize("path", [path for path in sorted(KEPT) if KEPT[path].is_file()], ids=lambda path: path.stem)
def test_verdicts_of_what_ships_are_those_of_its_study(path):
    whole = read_records(KEPT[path])
    shipped = read_records(path.with_suffix(".parquet"))
    assert module_of(SCRIPT).different(evaluate(whole), evaluate(shipped)) == [] and len(shipped) < len(whole) / 2


def test_reference_claims_follow_from_its_records(folder, small_run):
    """A claim of the reference is the rule on its records."""
    found = beside(*small_run)
    renamed = evaluate(read_records(folder / "made-tiny.parquet"))
    kept = next(c for c in renamed if c["id"] == "dstg-position-kept")
    assert {k: kept[k] for k in ("value", "low", "high", "verdict")}.items() <= found.claims[kept["id"]].items()
    # The run has no rope: the reference's own is judged.
    assert found.claims["rope-no-position"]["value"] is not None and "rope" not in found.models
    assert found.study.label == "10.2M tokens of Wikipedia, 3 seeds"


# ---- making one ----


def test_one_record_stands_for_splits_and_documents():
    """One record stands for those of every split and document."""
    place = {"study": "s", "model": "dstg", "seed": 0}
    split = [
        Record(metric="r2.token", value=v, layer=1, part="all", index=i, **place) for i, v in enumerate((0.2, 0.4))
    ]
    own = Record(metric="r2.token", value=0.3, low=0.1, high=0.5, layer=1, part="all", **place)
    documents = [Record(metric="loss.document", value=v, index=i, **place) for i, v in enumerate((3.0, 4.0, 5.0))]
    component = Record(metric="dct.low4", value=0.9, index=1, **place)  # an index that repeats nothing
    kept = module_of(SCRIPT).summarised([*split, own, *documents, component])
    assert kept[:2] == [own, component] and len(kept) == 3
    assert (kept[2].value, kept[2].index, kept[2].n) == (4.0, None, 3)
    assert kept[2].low == pytest.approx(4 - 2.484, abs=1e-3)  # Student's of three values, standard deviation 1


def test_a_study_that_would_pass_the_limit_changes_nothing(folder, tmp_path, monkeypatch):
    script = module_of(SCRIPT)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(script, "MOST_BYTES", 10_000)
    with pytest.raises(ValueError, match="With other the reference studies would have .* bytes, 10,000 at most"):
        script.make(make_study(tmp_path / "study"), "other", folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_untrained_or_silent_studies_are_refused(tmp_path):
    """A study that has not trained or says nothing of itself is refused."""
    script = module_of(SCRIPT)
    write_records(tmp_path / "records.parquet", [Record("s", "", "loss.unigram", 6.0)])
    with pytest.raises(ValueError, match="has no record of training tokens"):
        script.make(tmp_path, "x", tmp_path / "out")
    write_records(tmp_path / "records.parquet", [Record("s", "dstg", "tokens", 1e7, seed=0)])
    with pytest.raises(ValueError, match="has neither study.json nor study.yaml"):
        script.make(tmp_path, "x", tmp_path / "out")


# ---- which one stands beside a run ----


def test_models_meet_the_reference_of_their_start(folder, small_run):
    """A model meets the reference of its start and its residual."""
    facts, table = small_run
    path = folder / "made-tiny.json"
    set_model(path, "dstg", table_start="random", residual="normalized")
    set_model(path, "dstg-half-turn", like="dstg", table_start="half-turn")
    set_model(path, "dstg-stream", like="dstg", residual="stream")
    set_model(path, "dstg-frozen", like="dstg", table_learning_rate_scale=0.0)
    other = "`dstg`: residual normalized there, stream here"
    for start, residual, wanted, said in (
        ("random", "normalized", "dstg", ""),
        ("half-turn", "normalized", "dstg-half-turn", ""),
        ("half-turn", "stream", "dstg-half-turn", other),  # the start weighs more
        ("random", "stream", "dstg-stream", ""),
    ):
        found = beside(with_settings(facts, "dstg", table_start=start, residual=residual), table)
        differing = [term for term in found.terms if term.startswith("What differs")]
        assert (found.models["dstg"], differing) == (wanted, [f"What differs: {said}."] if said else []), start


def test_only_the_other_start_is_taken_and_said(folder, small_run):
    facts, table = small_run
    set_model(folder / "made-tiny.json", "dstg", table_start="random")
    found = beside(with_settings(facts, "dstg", table_start="half-turn"), table)
    words = "What differs: `dstg`: start of the table random there, half-turn here."
    assert found.models["dstg"] == "dstg" and words in found.terms and words in found.notes


def test_the_page_says_every_term_of_the_ledger(folder, small_run, tmp_path):
    # The page left out rates of T5 tables and rows, which `whatwhere claims` said.
    path = folder / "made-tiny.json"
    set_model(path, "dstg", bias_learning_rate_scale=1.0)
    corpus = json.loads(path.read_text())["corpus"]
    change(path, corpus=corpus | {"rows": "all rows of each document"})
    study = make_study(tmp_path / "run", models=("dstg", "ap"))
    facts = json.loads((study / "study.json").read_text())
    facts["corpus"] |= {"join": "none", "pieces": "first"}
    for entry in facts["models"]:
        entry["training"] = {**(entry.get("training") or {}), "bias_learning_rate_scale": 10.0}
    (study / "study.json").write_text(json.dumps(facts))
    run = load_run(study)
    page = study_page(run)
    rates = "biases × 1.0 there, 10.0 here"
    rows = "The reference study is trained on all rows of each document, this run on the first row of each document."
    assert rows in page.pick.apart and any(rates in term for term in page.pick.apart)
    assert [note for note in run.beside.notes if note in page.pick.apart] == list(run.beside.terms)
    assert rates in render_page(page).split('id="learning"')[0]


def test_another_scheme_or_depth_is_no_neighbour(folder, small_run):
    facts, table = small_run
    found = beside(with_settings(facts, "dstg", num_hidden_layers=2), table)
    assert list(found.models) == ["ap"] and "The reference study has no model for `dstg`." in found.notes
    none = beside(with_settings(with_settings(facts, "dstg", preset="split"), "ap", absolute="sinusoidal"), table)
    assert none.study is None and "has no model of the scheme and depth of one here" in none.notes[0]


def test_another_size_is_said_and_nothing_is_shown(folder, small_run):
    facts, table = small_run
    found = beside(facts | {"size": "paper"}, table)
    assert found.notes == [
        "No reference study stands beside this run: it is of size paper, reference studies are of size tiny."
    ]
    assert found.study is None and found.claims == {} and found.table.records == []


def test_the_same_kind_of_text_comes_first_then_wikipedia(folder, small_run, tmp_path):
    facts, table = small_run
    wikipedia = beside(facts, table)
    assert wikipedia.study.name == "made-tiny"
    assert any("no reference study of docstrings and this size comes with this version" in n for n in wikipedia.notes)
    make_reference(folder, tmp_path, "made-docs", corpus="python-docs", seeds=(8, 9))
    references._studies.cache_clear()
    own = beside(facts, table)
    assert own.study.name == "made-docs" and own.study.label == "10.2M tokens of docstrings, 2 seeds"
    assert not any("losses do not compare" in note for note in own.notes)
    other = beside(facts | {"corpus": {"name": "letters.txt"}}, table)
    assert other.study.name == "made-tiny" and any("this run is on letters.txt" in note for note in other.notes)
    assert [kind_of_text(name) for name in ("python-docs", "Wikitext-2", "letters")] == [DOCSTRINGS, WIKIPEDIA, ""]


def test_records_of_another_version_are_left_out_and_said(folder, small_run):
    change(folder / "made-tiny.json", format="whatwhere-records-0")
    found = beside(*small_run)
    assert found.study is None and found.notes[0] == (
        "The reference study made-tiny is left out: its records have the format 'whatwhere-records-0', this version "
        f"reads '{FORMAT}'. Install whatwhere again."
    )


@pytest.mark.parametrize("damage", ["cut", "gone", "no corpus", "no JSON"])
def test_a_damaged_reference_is_left_out_and_said(folder, small_run, damage):
    records = folder / "made-tiny.parquet"
    facts = folder / "made-tiny.json"
    if damage == "cut":
        records.write_bytes(records.read_bytes()[:-100])
    elif damage == "gone":
        records.unlink()
    elif damage == "no corpus":
        change(facts, corpus=None)
    else:
        facts.write_text("{")
    known, left_out = studies()
    assert known == [] and left_out[0].startswith("The reference study made-tiny is left out: ")
    assert beside(*small_run).study is None


def test_a_run_is_not_held_against_itself(folder, tmp_path):
    study = make_study(tmp_path / "again", seeds=(5, 6, 7), corpus="wikipedia-made", steps=2500)
    found = load_run(study).beside
    assert found.study is None and found.notes[-1].endswith("it is the reference study made-tiny itself.")


@pytest.mark.parametrize("facts", [{}, {"size": "tiny"}, {"size": "tiny", "corpus": {"name": "a"}, "models": [7]}])
def test_foreign_runs_have_no_neighbour(small_run, facts):
    """What is no study has no neighbour and no words."""
    assert beside(facts, small_run[1]) is None and Run("x", facts).beside.notes == ()


def test_words_on_other_models_carry_their_names():
    """What is said of another model goes with its name."""
    place = {"study": "s", "seed": 0}
    records = [
        Record(metric="regression.position", value=0.5, model="ap", part="dstg-random", layer=1, **place),
        Record(metric="regression.position", value=0.6, model="ap", part="dstg", layer=1, **place),
        Record(metric="r2.token", value=0.7, model="dstg-random", part="all", layer=1, **place),
        Record(metric="loss.unigram", value=6.0, model="", **{**place, "seed": None}),
    ]
    found = references._renamed(records, {"dstg": "dstg-random", "ap": "ap", "again": "ap"})
    assert found == [
        replace(records[0], part="dstg"),
        replace(records[0], part="dstg", model="again"),
        replace(records[2], model="dstg"),
        records[3],
    ]


def test_settings_leave_out_costs_and_words():
    """Settings are those of the model without costs and words."""
    config = {"preset": "rope", "absolute": "none", "table_start": "normal", "hidden_size": 120, "vocab_size": 9}
    assert settings_of(config, {"optimizer": "muon", "seed": 3}) == {
        "preset": "rope",
        "absolute": "none",
        "optimizer": "muon",
    }


# ---- on the page ----


def test_the_page_has_three_columns(folder, tmp_path):
    """The page has three columns and a second hollow mark."""
    run = load_run(make_study(tmp_path / "run", models=("dstg", "ap")))
    page = study_page(run)
    table = page.pick.beside[0].table
    assert table.columns == ("Model", "This run", "Reference, 10.2M tokens", "Paper")
    cells = {r[0].text: r[1:] for r in table.rows}
    there = Table(read_records(folder / "made-tiny.parquet"))
    for model, part, layer, printed in (("dstg", "position", 3, 0.89), ("ap", "all", 4, 0.24)):
        here, other, paper = cells[model]
        assert here.raw == run.table.point("r2.token", model, part=part, layer=layer).value
        point = there.point("r2.token", model, part=part, layer=layer)
        assert other.raw == pytest.approx(point.value) and paper.raw == printed
        assert f", {point.high:.2f}]" in other.text
    marks = [t for t in page.hero.panels[0].data if "-open-dot" in str(t.get("marker", {}).get("symbol"))]
    assert {t["meta"][0] for t in marks} == {"dstg", "ap"} and not any("error_y" in t for t in marks)
    assert ("reference", "hollow with a dot: reference study, 10.2M tokens of Wikipedia, 3 seeds") in page.hero.key
    rows = [r for r in page.hero.table.rows if r[0].text == "reference study"]
    assert len(rows) == 4 + 5 + 5 and all(r[5].raw is not None for r in rows)  # with their intervals
    small = next(f for s in page.sections for f in s.figures if f.id == "probe-token")
    assert any("error_y" in t for p in small.panels for t in p.data if "-open-dot" in str(t.get("marker")))
    assert any("Beside this run stands the reference study made-tiny" in str(words) for words in page.how.words)


def test_the_ledger_has_a_reference_column(folder, tmp_path):
    """The ledger has a column and an unsettled row the verdict there."""
    run = load_run(make_study(tmp_path / "run", models=("dstg", "ap")))
    claims = evaluate(run.records)
    kept = next(c for c in claims if c["id"] == "semantic-stream-little-position")
    kept |= {"verdict": "not settled", "so_far": "holds here"}
    html = render_page(study_page(replace(run, claims=claims)))
    assert '<th scope="col" class="n">Reference study</th>' in html
    row_ = html.partition('id="claim-semantic-stream-little-position"')[2].partition("</tr>")[0]
    assert "not settled</span>" in row_ and "so far holds here" in row_
    assert re.search(r'0\.\d+\] <span class="note">holds there</span></td>', row_)
    without = render_page(study_page(replace(run, facts=run.facts | {"size": "paper"}, claims=claims)))
    assert "Reference study" not in without and "it is of size paper" in without


def test_a_row_tells_what_the_reference_would_be():
    reference = {"value": 0.5, "low": 0.4, "high": 0.6, "verdict": "not settled", "so_far": "not seen here"}
    found = row({"id": "x", "unit": "nats", "reference": reference})
    assert found.reference_result == "0.50\u202fnats [0.40, 0.60]"
    assert found.reference_verdict == "not settled, so far not seen there"
    nothing = row({"id": "x", "reference": {"value": None, "verdict": "not testable here"}})
    assert (nothing.reference_result, nothing.reference_verdict) == ("–", "not testable there")
    assert (row({"id": "x"}).reference_result, row({"id": "x", "reference": "odd"}).reference_verdict) == ("–", "")


def test_the_part_comes_from_the_model_not_its_probes(folder, tmp_path):
    # Without probes of its own, `dstg` stood beside R² of both streams together: 0.92 for 0.89.
    run = load_run(make_study(tmp_path / "run", models=("dstg", "ap")))
    bare = replace(run, records=[r for r in run.records if not r.metric.startswith("r2.")])
    for one in (run, bare):
        cells = {r[0].text: r[1:] for r in study_page(one).pick.beside[0].table.rows}
        there = Table(read_records(folder / "made-tiny.parquet")).point("r2.token", "dstg", part="position", layer=3)
        assert (cells["dstg"][1].raw, cells["dstg"][2].raw) == (pytest.approx(there.value), 0.89)
    assert cells["dstg"][0].raw is None


def test_the_first_screen_compares_two_components(folder, tmp_path):
    run = load_run(make_study(tmp_path / "run", models=("dstg", "ap")))
    table = study_page(run).pick.beside[1].table
    assert table.columns == ("Model", "Of noise", "This run", "Reference, 10.2M tokens", "Paper")
    there = Table(read_records(folder / "made-tiny.parquet"))
    for name, chance, here, other, paper in table.rows:
        columns = run.config(name.text).get("position_size") or run.config(name.text)["hidden_size"]
        # 0.35 and 0.06, where the pick had 2 / columns: the largest two of noise are larger than any two.
        draws = np.random.default_rng(1).normal(size=(40, 128, columns))
        noise = [
            (np.linalg.svd(t - t.mean(0), compute_uv=False)[:2] ** 2).sum() / ((t - t.mean(0)) ** 2).sum()
            for t in draws
        ]
        assert chance.raw == pytest.approx(np.mean(noise), rel=0.06) and f"({columns} columns)" in chance.text
        assert here.raw == run.table.point("pca.top2", name.text).value
        assert other.raw == pytest.approx(there.point("pca.top2", name.text).value)
        assert paper.raw == {"dstg": 0.941, "ap": 0.234}[name.text]


def test_what_the_reference_cannot_test_is_marked(folder, tmp_path):
    # R² of 0.75 stood there unmarked, where `whatwhere claims` said "not testable there".
    run = load_run(make_study(tmp_path / "run", models=("dstg", "ap")))
    run.beside.claims["dstg-position-kept"] |= {"verdict": "not testable here", "so_far": ""}
    run.beside.claims["ap-loses-position"] |= {"verdict": "holds here", "so_far": ""}
    cells = {r[0].text: r[1:] for r in study_page(run).pick.beside[0].table.rows}
    assert cells["dstg"][1].text.endswith("], not testable") and cells["ap"][1].text.endswith("]")


def test_a_reference_mark_is_explained_in_place(folder, tmp_path):
    """A mark of the reference is explained where it stands."""
    run = load_run(make_study(tmp_path / "run", models=("dstg", "ap")))
    html = render_page(study_page(run))
    for name in ("position", "table-spectrum", "probe-token"):
        figure = html.split(f'id="figure-{name}"')[1].split("</figure>")[0]
        assert figure.count("hollow with a dot: reference study") == 1, name


def test_each_line_for_comparison_is_labelled_once(folder, tmp_path):
    # "R², by a line" stood twice in a panel, once for the reference study's line.
    run = load_run(make_study(tmp_path / "run", models=("dstg", "ap")))
    place = {"study": "s", "model": "dstg", "seed": 0, "metric": "variance.position", "part": "position"}
    records = [Record(value=0.5, layer=layer, **place) for layer in range(4)]
    reference = references.Beside(run.beside.study, run.beside.models)
    reference.__dict__["table"] = Table([*run.beside.table.records, *records])
    shown = replace(run, records=[*run.records, *records])
    shown.__dict__["beside"] = reference
    labels = [note["text"] for panel in variance(shown).panels for note in panel.layout["annotations"]]
    assert labels.count("R², position stream") == 1
