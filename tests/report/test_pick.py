"""The pick: who is level, who costs less, who alone keeps position apart; by rule, from made-up records."""

import re

import pytest

from whatwhere.records.record import Record
from whatwhere.report.loaded_run import Run
from whatwhere.report.pick import pick
from whatwhere.report.references import Beside, ReferenceStudy


def run_of(losses, seeds=1, positions=None, operations=None, documents=None):
    """losses: model -> final loss, or one of every document; positions: model -> R² of its position stream."""
    records = [Record("s", "", "loss.unigram", 6.0)]
    for model, loss in losses.items():
        for seed in range(seeds):
            of_seed = loss[seed] if isinstance(loss, list) else loss
            records.append(Record("s", model, "loss", of_seed, seed=seed, part="validation", step=100))
        for i, value in enumerate((documents or {}).get(model, ())):
            records.append(Record("s", model, "ablation.loss", value, seed=0, index=i))
        records.append(Record("s", model, "operations", (operations or {}).get(model, 1e6), seed=0))
    for model, value in (positions or {}).items():
        for layer, r2 in ((0, 1.0), (1, value), (2, 0.0)):
            records.append(Record("s", model, "r2.token", r2, seed=0, layer=layer, part="position"))
    configs = {
        "rope": {"absolute": "none", "rotation": "rope", "max_position_embeddings": 128},
        "dstg": {"absolute": "learned", "position_size": 8, "max_position_embeddings": 128},
        "ap": {"absolute": "learned", "max_position_embeddings": 128},
    }
    models = [{"name": m, "config": {"preset": m, **configs.get(m, {})}} for m in losses]
    return Run("s", {"models": models}, records)


def test_level_losses_lead_to_costs():
    """Level losses lead to costs and to what one alone does."""
    picked = pick(
        run_of(
            {"ap": 5.0, "rope": 4.00, "dstg": 4.04},
            positions={"dstg": 0.89},
            operations={"dstg": 2.5e6, "rope": 2.2e6, "ap": 2.2e6},
        )
    )
    assert picked.sentence == (
        "`rope` and `dstg` are level in held-out loss (4.00, 4.04 nats); `rope` needs 12\u202f% fewer operations than "
        "`dstg` and has no length limit; `dstg` (R² 0.89) keeps position in a stream of its own."
    )
    rows = [[cell.text for cell in row] for row in picked.table.rows]
    assert [row[0] for row in rows] == ["rope", "dstg", "ap"]
    assert [row[2] for row in rows] == ["lowest", "+0.04", "+1.00"]
    assert [row[3] for row in rows] == ["–", "0.89", "–"] and [row[5] for row in rows] == ["any", "128", "128"]


def test_one_seed_needs_a_larger_difference():
    """One seed needs more than a twentieth of a nat."""
    assert "level" in pick(run_of({"ap": 4.04, "dstg": 4.0})).sentence
    assert pick(run_of({"ap": 4.06, "dstg": 4.0})).sentence.startswith(
        "`dstg` has the lowest held-out loss (4.00 nats, one training each)"
    )


def test_differences_are_paired_by_document_and_by_seed():
    hard = [2.0, 3.0, 4.0, 5.0]
    documents = {"ap": [v + d for v, d in zip(hard, (0.1, 0.11, 0.12, 0.09), strict=True)], "dstg": hard}
    paired = pick(run_of({"ap": 4.3, "dstg": 4.0}, documents=documents))
    assert paired.table.rows[1][2].text == "+0.10 [0.08, 0.13]" and "`ap` +0.10 [0.08, 0.13]" in paired.sentence
    seeds = pick(run_of({"ap": [4.3, 4.8, 4.5], "dstg": [4.0, 4.5, 4.21]}, seeds=3))
    assert seeds.table.rows[1][2].raw == pytest.approx(0.2966667) and "lowest" in seeds.sentence
    apart = pick(run_of({"ap": [4.3, 4.4, 4.5], "dstg": [4.0, 4.5, 4.21]}, seeds=3))
    # They were called level, which is said of losses whose interval lies within 0.05 nats.
    assert apart.sentence.startswith(
        "`dstg` and `ap` cannot be told apart in held-out loss (4.24, 4.40 nats, 3 trainings"
    )


def test_many_models_of_several_seeds_have_places():
    """Of eight models the first three are tied by the variance of all, and so is what the sentence says."""
    means = [4.0, 4.005, 4.01, 4.5, 4.51, 4.8, 5.1, 5.4]
    seeds = [[0.01, 0.3, 0.1], [0.0, 0.31, 0.1], [0.02, 0.29, 0.11], [0.01, 0.3, 0.09]]
    losses = {f"model-{i}": [mean + s for s in seeds[i % 4]] for i, mean in enumerate(means)}
    picked = pick(run_of(losses, seeds=3))
    assert picked.table.columns[:4] == ("Model", "Loss", "Above the lowest", "Place")
    assert [cells[3].text for cells in picked.table.rows] == ["1–3", "1–3", "1–3", "4–5", "4–5", "6", "7", "8"]
    assert picked.sentence.startswith("`model-0`, `model-1` and `model-2` are level in held-out loss")
    assert "Holm" in picked.table.caption
    low, high = re.search(r"\[(\S+), (\S+)\]", picked.table.rows[3][2].text).groups()
    assert float(low) > 0 and float(high) - float(low) < 0.1  # by all trainings: Student's of three would hold 0
    for run in (run_of(losses), run_of({m: losses[m] for m in list(losses)[:6]}, seeds=3)):  # one seed, few models
        assert "Place" not in pick(run).table.columns
    # A model of other seeds had the places of its common ones beside the mean of all.
    uneven = run_of(losses, seeds=3)
    uneven.records.append(Record("s", "model-7", "loss", 0.1, seed=3, part="validation", step=100))
    assert "Place" not in pick(Run("s", uneven.facts, uneven.records)).table.columns


def test_a_stuck_model_has_no_place():
    """One training that learned nothing widened the ties of all: five models 0.2 nats apart shared the first place."""
    losses = {f"model-{i}": [3 + 0.2 * i + s for s in (0.01 * (i % 3), 0.3, 0.1)] for i in range(7)}
    picked = pick(run_of({**losses, "stuck": [4.4, 6.0, 4.5]}, seeds=3))
    places = {cells[0].text: cells[3].text for cells in picked.table.rows}
    assert places == {**{f"model-{i}": str(i + 1) for i in range(7)}, "stuck": "–"}
    assert picked.sentence.startswith("`model-0` has the lowest held-out loss") and "widens" not in picked.table.caption
    losses["model-6"] = [4.2, 4.9, 4.1]
    assert "`model-6` makes 86" in pick(run_of(losses, seeds=3)).table.caption


def test_one_measured_model_of_many_has_no_place():
    """A page of many models, of which one has a loss, was not drawn."""
    run = run_of({f"model-{i}": [3.0, 3.1] if i == 0 else [float("nan")] * 2 for i in range(8)}, seeds=2)
    assert "Place" not in pick(run).table.columns


def test_a_run_that_has_learned_nothing_picks_nothing():
    assert pick(run_of({"ap": 5.95, "dstg": 5.99})).sentence.startswith("No model has learned more")
    assert pick(Run("s", {}, [])) is None


def test_unequal_terms_and_rates_have_lines_of_their_own():
    run = run_of({"rope": 4.0, "dstg": 4.04})
    assert pick(run).terms == []  # nothing recorded
    for number, entry in enumerate(run.entries):
        entry["config"]["residual"] = ("stream", "normalized")[number]
        entry["training"] = {"learning_rate": 4e-3}
    records = [*run.records, Record("s", "dstg", "parameters", 1.5e6, seed=0), Record("s", "rope", "parameters", 1.4e6)]
    assert list(pick(Run("s", run.facts, records)).terms) == [
        "The models differ in more than their position schemes: residual (`rope` stream, `dstg` normalized); "
        "parameters (`dstg` 7% more than `rope`).",
        "Rates: one recipe for all models; at rates of its own another scheme may be ahead.",
    ]


def test_the_numbers_of_one_line_agree():
    # Losses of all tokens, 3.82 and 3.85, stood beside a difference of the documents, +0.00.
    documents = {"ap": [3.1, 3.5, 4.0], "dstg": [3.0, 3.5, 4.0]}
    rows = pick(run_of({"ap": 4.3, "dstg": 4.0}, documents=documents)).table.rows
    assert rows[1][1].raw - rows[0][1].raw == pytest.approx(rows[1][2].raw) and rows[0][1].raw == pytest.approx(3.5)
    some = pick(run_of({"ap": 4.3, "dstg": 4.0}, documents={"ap": [3.1, 3.5, 4.0]})).table.rows
    assert [row[1].raw for row in some] == [4.0, 4.3] and some[1][2].raw == pytest.approx(0.3)


def judged_run(top2=0.37, r2=0.52, worth=0.0053, **claims):
    """A run of `dstg` and `ap` with claims of these verdicts, or fields."""
    run = run_of({"ap": 4.1, "dstg": 4.0}, positions={"dstg": r2})
    place = {"study": "s", "model": "dstg", "seed": 0}
    records = [
        Record(metric="ablation.remove", part="absolute", value=worth, **place),
        Record(metric="pca.top2", value=top2, **place),
        Record(metric="tokens", value=2.56e6, **place),
    ]
    ids = {"kept": "dstg-position-kept", "flat": "dstg-2d-collapse"}
    rows = [{"id": ids[name], "claim": name, **fields} for name, fields in claims.items()]
    return Run("s", run.facts, [*run.records, *records], rows)


def test_position_that_is_kept_and_not_used_is_said():
    kept = {"verdict": "not settled", "so_far": "not seen here", "bars": [["at least", 0.44]]}
    told = [each.sentence for each in pick(judged_run(kept=kept)).beside]
    rise = "without the absolute term the loss rises by 0.005 nats, and 0.1 are needed."
    assert told == [f"`dstg` keeps position but does not use it: {rise}"]
    assert not pick(judged_run(kept=kept, r2=0.4)).beside and not pick(judged_run(kept=kept, worth=0.3)).beside


def test_the_pick_judges_the_collapse_or_says_why_not():
    """The first screen has the verdict on the collapse, or the reason why it cannot be tested."""
    why = "not measured: needs a table of dstg that stands above its noise"
    (told,) = [each.sentence for each in pick(judged_run(flat={"verdict": "not testable here", "scale": why})).beside]
    assert told == (
        "Whether the position table of `dstg` collapses to two dimensions cannot be tested here: needs a table of dstg "
        "that stands above its noise. From a random start it was not seen at this scale."
    )
    (held,) = [each.sentence for each in pick(judged_run(flat={"verdict": "holds here"})).beside]
    assert held == "The position table of `dstg` collapses to two dimensions: holds here."


def test_a_value_that_is_not_testable_is_marked():
    run = judged_run(kept={"verdict": "not testable here"})
    picked = pick(run)
    assert [row[3].text for row in picked.table.rows] == ["0.52†", "–"] and "† not testable" in picked.table.caption


def test_a_half_turn_of_the_reference_is_said():
    """The page promised a collapse from that start, which the reference study of 10.2M tokens does not keep."""
    where = {"metric": "pca.top2", "model": "half", "study": "s", "unit": ""}
    records = [Record(**where, value=1.0, step=0, seed=seed) for seed in range(3)]
    records += [Record(**where, value=share, seed=seed) for seed, share in enumerate((0.56, 0.6, 0.67))]
    facts = {"models": {"half": {"table_start": "half-turn"}}, "tokens": 1e7, "seeds": [0, 1, 2]}
    study = ReferenceStudy("r", facts | {"corpus": {"kind": "Wikipedia", "name": "w"}}, records)
    run = judged_run(flat={"verdict": "not seen here"})
    vars(run)["beside"] = Beside(study)
    (told,) = [each.sentence for each in pick(run).beside]
    assert "hold 100\u202f% before training and 61\u202f% [" in told and told.endswith(
        "after 10M tokens of Wikipedia, 3 seeds."
    )
    # A reference of the run's text without such a model had taken the sentence away.
    vars(run)["beside"] = Beside(ReferenceStudy("d", study.facts | {"models": {}, "size": "tiny"}, []))
    (told,) = [each.sentence for each in pick(run).beside]
    assert "two components hold 100\u202f% before" in told and "10.2M tokens of docstrings" in told


@pytest.mark.parametrize(("written", "kept"), [(0.9, True), (0.1, False)])
def test_position_that_is_carried_along_is_not_kept(written, kept):
    """The headline asked what the stream holds, and not what the blocks write: a table reaches the end by itself."""
    run = run_of({"dstg": 3.0, "ap": 4.0}, positions={"dstg": 0.9})
    update = Record("s", "dstg", "r2.update.token", written, seed=0, layer=1, part="position")
    told = pick(Run("s", run.facts, [*run.records, update])).sentence
    assert ("keeps position in a stream of its own" in told) == kept


def test_the_rise_is_the_mean_over_seeds():
    """The rise of the weakest seed was printed as the rise: 0.048 nats, where the mean of three seeds is 0.086."""
    run = judged_run(kept={"verdict": "holds here"})
    worths = [
        Record("s", "dstg", "ablation.remove", v, seed=i, part="absolute") for i, v in enumerate((0.048, 0.062, 0.149))
    ]
    records = [r for r in run.records if r.metric != "ablation.remove"]
    (told,) = [each.sentence for each in pick(Run("s", run.facts, [*records, *worths], run.claims)).beside]
    assert told.endswith("rises by 0.086 nats (0.048 in the weakest seed), and 0.1 are needed in every seed."), told


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({"verdict": "holds here"}, "`dstg` (R² 0.90) keeps position"),
        ({"verdict": "not settled", "so_far": "holds here"}, "`dstg` (R² 0.90, so far holds) keeps position"),
        ({"verdict": "not settled", "so_far": "not seen here"}, ""),
        ({"verdict": "not testable here"}, ""),
        ({"verdict": "not seen here"}, ""),
    ],
)
def test_the_pick_keeps_to_the_ledger(kept, words):
    """The sentence said that a model keeps position beside its value marked as not testable."""
    told = pick(judged_run(r2=0.9, worth=0.3, kept=kept)).sentence
    assert words in told and ("keeps position" in told) == bool(words)
    assert "only" not in told
