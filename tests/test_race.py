"""The picture of docs/results/...race: every mark stands where the records say, on made-up records."""

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from scripts import module_of

from whatwhere.records.intervals import seed_interval
from whatwhere.records.record import Record

(SCRIPT,) = Path(__file__).parents[1].glob("docs/results/*race/figure.py")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def race():
    return module_of(SCRIPT)


def made_up(seeds=3, residuals=("normalized", "stream")):
    """Invented records: the faster T5, the less position; four layers, of which the last position layer is
    untrained."""
    rng = np.random.default_rng(0)
    records = []
    for residual in residuals:
        for t5 in (1, 3, 10):
            for table in (1, 10):
                for seed in range(seeds):
                    place = {"study": "race", "model": f"{residual}-t5x{t5}-table{table}", "seed": seed}
                    kept = max(0.0, 0.8 - 0.35 * math.log(t5) + 0.1 * (table == 10) - 0.3 * (residual == "stream"))
                    kept += 0.02 * float(rng.standard_normal())
                    for layer in range(5):
                        value = kept if layer == 3 else 99.0
                        records.append(Record(metric="r2.token", part="position", layer=layer, value=value, **place))
                        records.append(
                            Record(metric="r2.token", part="position", layer=layer, value=99.0, step=0, **place)
                        )
                        records.append(
                            Record(metric="r2.token", part="position", layer=layer, value=99.0, index=0, **place)
                        )
                    records.append(Record(metric="pca.top2", value=0.3 + 0.4 * kept, **place))
                    for step, loss in ((0, 8.3), (100, 5.0 - 0.4 * math.log(t5) + 0.05 * float(rng.standard_normal()))):
                        records.append(
                            Record(metric="loss", part="validation", value=loss, step=step, unit="nats", **place)
                        )
                    for part, near in (("absolute", 0.12 + 0.2 * kept), ("relative", 0.3 + 0.15 * math.log(t5))):
                        for step, value in ((0, 0.12), (100, near)):
                            records.append(Record(metric="local.share", part=part, value=value, step=step, **place))
                            records.append(
                                Record(metric="local.share", part=part, value=99.0, step=step, layer=1, **place)
                            )
                            records.append(
                                Record(metric="local.share", part=part, value=99.0, step=step, layer=1, head=0, **place)
                            )
                    records.append(Record(metric="local.even", value=0.12, **place))
    return records


def marks(svg):
    """Titles of all marks -> (x, y) of their middles."""
    found = {}
    for element in ET.fromstring(svg).iter():
        title = element.find(f"{SVG}title")
        if title is not None and element.tag == f"{SVG}circle":
            found.setdefault(title.text, []).append((float(element.get("cx")), float(element.get("cy"))))
    return found


def test_quantities_are_of_last_layer_and_checkpoint(race):
    """Quantities are those of the last trained layer and the last checkpoint."""
    records = made_up()
    found = race.quantities(records, "normalized-t5x10-table1")
    assert set(found) == set(race.QUANTITIES) and all(len(m.each) == 3 for m in found.values())
    own = [r for r in records if r.model == "normalized-t5x10-table1"]
    kept = [r.value for r in own if r.metric == "r2.token" and r.layer == 3 and r.step is None and r.index is None]
    assert found["position"].value == pytest.approx(np.mean(kept)) and found["position"].interval == seed_interval(
        kept, (-0.25, 1.0)
    )
    losses = [r.value for r in own if r.metric == "loss" and r.step == 100]
    assert found["loss"].value == pytest.approx(np.mean(losses))
    assert found["relative"].value == pytest.approx(0.3 + 0.15 * math.log(10))


def test_every_mark_stands_where_its_value_is(race):
    records = made_up()
    svg = race.picture(records)
    places = race.places(records)
    found = {m: race.quantities(records, m) for m in places}
    means = [m for m in places if m.endswith("table1")]
    every = marks(svg)
    for model in means:
        residual, t5, _ = places[model]
        for row, (name, mean) in enumerate(found[model].items()):
            if name != "loss":
                left = race.LEFT + (residual == "stream") * (race.WIDTH + race.GAP_X)
                top = race.TOP + row * (race.HEIGHT + race.GAP_Y)
                low = min(0.0, *(v for q in found.values() for v in q[name].each.values()))
                x = left + 45 + (race.WIDTH - 90) * math.log(t5) / math.log(10) - race.APART / 2
                y = top + race.HEIGHT * (1 - mean.value) / (1 - low)
                at = every[f"T5 rate {t5:g}: {race._shown(mean)}"]
                assert any(abs(a - x) < 0.11 and abs(b - y) < 0.11 for a, b in at), (model, name)
    seeds = sum(len(v) for k, v in every.items() if "seed" in k)
    assert seeds == 3 * 5 * len(means)


def test_text_is_large_enough_and_inside(race):
    root = ET.fromstring(race.picture(made_up()))
    _, _, width, height = map(float, root.get("viewBox").split())
    assert float(root.get("font-size")) >= 14
    for text in root.iter(f"{SVG}text"):
        x = float(text.get("x"))
        y = float(text.get("y"))
        length = 7.2 * len(text.text)
        start = x - {"middle": 0.5, "end": 1.0}.get(text.get("text-anchor"), 0.0) * length
        assert (
            float(text.get("font-size", 14)) >= 14 and 0 < y < height and start > -2 and start + length <= width + 8
        ), text.text


def test_the_title_follows_the_paired_difference(race):
    assert race.sentence(_found(race, made_up())).startswith("R² of position falls from 0.8")
    assert "(normalized residual, table rate 1)" in race.sentence(_found(race, made_up()))
    one = race.sentence(_found(race, made_up(seeds=1)))
    assert one.startswith("R² of position goes from ")
    same = [
        Record(**{**vars(r), "value": 0.5 + 0.01 * (r.seed * 7 % 3)}) if r.metric == "r2.token" else r
        for r in made_up()
    ]
    odd = [Record(**{**vars(r), "value": 0.51}) if r.metric == "r2.token" and "t5x10" in r.model else r for r in same]
    assert race.sentence(_found(race, odd)).startswith("Not separable: R² of position 0.51 to 0.51")


def _found(race, records):
    return {place: race.quantities(records, model) for model, place in race.places(records).items()}


def test_missing_values_and_other_models_are_skipped(race):
    """What is missing is left out and other models are not drawn."""
    records = [
        r for r in made_up(residuals=("normalized",)) if not r.metric.startswith("local.") and "t5x3" not in r.model
    ]
    svg = race.picture([*records, Record("race", "ap", "pca.top2", 0.2, seed=0)])
    assert svg.count("not measured") == 2 and "stream residual" not in svg
    lines = race.table(records).splitlines()
    assert len(lines) == 2 + 4 and all(line.count("|") == 10 for line in lines) and lines[-1].endswith("| – | – |")
    with pytest.raises(ValueError, match="No model is called like normalized-t5x1-table10; got ap."):
        race.picture([Record("race", "ap", "pca.top2", 0.2, seed=0)])
