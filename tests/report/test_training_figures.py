"""Loss curves: tokens under steps, the plateau, bands only between seeds, thinning; the table of costs."""

from dataclasses import replace

import pytest

from whatwhere.records import Record
from whatwhere.report.load import Study, load_study
from whatwhere.report.training_figures import MOST_POINTS, costs, final_losses, loss_curve, losses, stuck_models, ticks, tokens_per_step


def train(step, value, model="ap", seed=0, part="train"):
    return Record("s", model, "loss", value, unit="nats", seed=seed, part=part, step=step)


def test_ticks_are_round_and_few():
    assert ticks(1100) == [0, 250, 500, 750, 1000]
    assert ticks(70_000) == [0, 20_000, 40_000, 60_000]
    assert ticks(7) == [0, 2, 4, 6] and ticks(0) == [0]


def test_steps_carry_their_tokens(demo):
    study = load_study(demo)
    assert tokens_per_step(study) == pytest.approx(32 * 128)
    assert losses(study).panels[0].layout["xaxis"]["ticktext"][1] == "250<br>1.02M"


def test_models_of_different_batches_share_no_token_axis():
    records = [train(10, 3.0, m) for m in ("a", "b")] + [Record("s", m, "tokens", t, seed=0) for m, t in (("a", 100.0), ("b", 200.0))]
    study = Study("s", records=records)
    assert tokens_per_step(study) is None and losses(study).panels[0].layout["xaxis"]["title"]["text"] == "steps"


def test_the_final_loss_is_the_finished_models(demo):
    study = load_study(demo)
    assert final_losses(study)["rope"].value == next(
        r.value for r in study.records if (r.metric, r.model, r.part, r.step) == ("loss", "rope", "validation", None)
    )
    unfinished = replace(study, records=[r for r in study.records if not (r.metric == "loss" and r.step is None)])
    assert final_losses(unfinished)["rope"].value == loss_curve(study, "rope", "validation")[-1][1].value


def test_long_curves_are_averaged_in_equal_runs_and_say_so():
    study = Study("s", records=[train(i, float(i)) for i in range(1, 3 * MOST_POINTS + 1)])
    curve = loss_curve(study, "ap", "train")
    assert len(curve) == MOST_POINTS and curve[0] == (2.0, curve[0][1]) and curve[0][1].value == 2.0
    assert "averaged" in losses(study).subtitle


def test_only_steps_of_all_seeds_are_averaged():
    study = Study("s", records=[train(1, 3.0), train(1, 5.0, seed=1), train(2, 9.0)])
    assert [(s, p.value, p.over) for s, p in loss_curve(study, "ap", "train")] == [(1.0, 4.0, "seeds")]


def test_bands_are_drawn_between_seeds_only(build, demo):
    filled = [t for t in losses(load_study(build(seeds=(0, 1)))).panels[0].data if "fill" in t]
    assert len(filled) == 4 and not [t for t in losses(load_study(demo)).panels[0].data if "fill" in t]


def test_the_plateau_is_drawn_and_judged(demo):
    study = load_study(demo)
    assert "6.43 nats" in losses(study).subtitle and stuck_models(study) == []
    high = [replace(r, value=6.4) if (r.metric, r.model) == ("loss", "ap") else r for r in study.records]
    assert stuck_models(replace(study, records=high)) == ["ap"]
    assert losses(replace(study, records=high)).title.startswith("`ap` stays on the unigram plateau")


def test_costs_leave_out_what_was_not_recorded(demo):
    study = load_study(demo)
    table = costs(study)
    assert table.columns == ["Model", "Validation loss, nats", "Parameters", "Training tokens", "Training time", "Tokens/s", "Peak memory"]
    more = [Record("demo", "ap", "accuracy", v, seed=0, part="validation", step=s) for s, v in ((0, 0.0), (200, 0.31), (100, 0.2))]
    shown = costs(replace(study, records=[*study.records, *more]))
    assert [row[shown.columns.index("Masked tokens right")].text for row in shown.rows] == ["–", "31.0\u202f%", "–", "–"]
    few = replace(study, records=[r for r in study.records if r.metric in ("parameters", "loss.unigram")])
    assert costs(few).columns == ["Model", "Parameters"] and losses(few) is None
    assert costs(Study("s")) is None
