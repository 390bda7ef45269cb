"""The picture of docs/results/scale: every mark stands where made-up records say."""

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from scripts import module_of

from whatwhere.records.record import Record, write_records
from whatwhere.records.table import Table

SCRIPT = Path(__file__).parents[1] / "docs/results/scale/figure.py"
SVG = "{http://www.w3.org/2000/svg}"
LOSSES = {"dstg": [3.0, 3.1, 3.3], "ap": [3.9, 3.2, 4.0], "rope": [3.4, 3.6, 3.5]}


@pytest.fixture(scope="module")
def scale():
    return module_of(SCRIPT)


def made_up(tokens=1e7, seeds=3, model="dstg"):
    """Invented records of `dstg` and two baselines."""
    records = []
    for name, losses in LOSSES.items():
        for seed, loss in enumerate(losses[:seeds]):
            who = {"study": "s", "model": model if name == "dstg" else name, "seed": seed}
            records.append(Record(metric="tokens", value=tokens, **who))
            for step, value in ((0, 8.0), (100, loss)):
                records.append(Record(metric="loss", part="validation", step=step, value=value, **who))
    for seed in range(seeds):
        who = {"study": "s", "model": model, "seed": seed}
        for layer in range(5):
            for part, value in (("position", 0.9 - 0.1 * layer), ("semantic", 0.05 * layer if layer else 0.9)):
                kept = {"metric": "r2.token", "part": part, "layer": layer, **who}
                records.append(Record(value=value + 0.01 * seed, **kept))
                records.append(Record(value=9.0, step=0, **kept))  # untrained
        records.append(Record(metric="pca.top2", value=0.5 + 0.1 * seed, **who))
        records += [Record(metric="dct.low4", value=v, index=i, **who) for i, v in enumerate((0.9, 0.2 * seed, 0.0))]
        for head, share in enumerate((0.1, 0.4, 0.6, 0.2)):
            records.append(Record(metric="kl.share.absolute", value=share, layer=1, head=head, **who))
    return Table(records)


def marks(svg):
    """Title -> place of every mark that has one."""
    found = {}
    for element in ET.fromstring(svg).iter(f"{SVG}circle"):
        title = element.find(f"{SVG}title")
        if title is not None:
            found[title.text] = float(element.get("cx")), float(element.get("cy"))
    return found


def test_six_quantities_are_those_of_the_paper(scale):
    found = scale.quantities(made_up(), "dstg")
    assert list(found) == list(scale.QUANTITIES)
    assert found["gap"].seed_values == pytest.approx([-0.4, -0.1, -0.2])  # to the lower of the two, seed by seed
    assert found["two"].seed_values == pytest.approx([0.5, 0.6, 0.7])
    assert found["slow"].seed_values == pytest.approx([0.0, 0.2, 0.4])
    assert found["position"].seed_values == pytest.approx([0.6, 0.61, 0.62])  # hidden[3] of four blocks
    assert found["semantic"].seed_values == pytest.approx([0.2, 0.21, 0.22])  # not the embedding
    assert found["heads"].seed_values == pytest.approx([0.5, 0.5, 0.5])  # 0.4 and 0.6 of four
    printed = {name: value for name, (_, value) in scale.QUANTITIES.items()}
    assert printed == {
        **{"gap": None, "two": 0.941, "slow": 0.984, "position": 0.89, "semantic": 0.44, "heads": 0.75},
    }


def test_what_is_missing_is_left_out(scale):
    records = [r for r in made_up().records if r.model == "dstg" and r.metric not in ("dct.low4", "kl.share.absolute")]
    assert set(scale.quantities(Table(records), "dstg")) == {"two", "position", "semantic"}
    assert scale.picture([scale.measured("tiny", Table(records), "dstg")]).count("not measured") == 3


def test_every_mark_stands_where_its_value_is(scale):
    tokens = (6e5, 2.5e6, 1e7)
    places = [scale.measured("tiny, random start", made_up(t), "dstg") for t in tokens]
    svg = scale.picture(places)
    found = marks(svg)
    left = scale.LEFT + scale.WIDTH + scale.GAP_X  # of the second panel
    top = scale.TOP
    for t in tokens:
        share = (math.log(t) - math.log(tokens[0])) / (math.log(tokens[-1]) - math.log(tokens[0]))
        x = left + 36 + (scale.WIDTH - 72) * share
        y = top + scale.HEIGHT * 0.4
        low, high = made_up(t).point("pca.top2", "dstg").interval
        title = f"tiny, random start, {t / 1e6:.3g}M tokens: 0.60 [{low:.2f}, {high:.2f}]"
        assert found[title] == pytest.approx((x, y), abs=0.11)
        assert found[f"tiny, random start, {t / 1e6:.3g}M tokens, training 2: 0.600"][1] == pytest.approx(y, abs=0.11)
    assert svg.count("<title>paper: ") == 5


def test_lines_join_points_by_tokens(scale):
    """Points of a line are joined in the order of tokens and lines have marks of their own."""
    order = (1e7, 6e5, 2.5e6)
    places = [scale.measured(line, made_up(t), "dstg") for line in ("tiny", "small") for t in order]
    root = ET.fromstring(scale.picture(places))
    ways = [p.get("points").split() for p in root.iter(f"{SVG}polyline")]
    assert len(ways) == 2 * 6 and all(len(way) == 3 for way in ways)
    for way in ways:
        xs = [float(point.split(",")[0]) for point in way]
        assert xs == sorted(xs)
    colours = {e.get("fill") for kind in ("circle", "polygon") for e in root.iter(f"{SVG}{kind}")}
    assert colours == set(scale.COLOURS[:2])


def test_text_is_large_enough_and_inside(scale):
    lines = ("tiny, random start", "tiny, half-turn start", "small, random start", "small, half-turn start")
    root = ET.fromstring(scale.picture([scale.measured(line, made_up(1e7), "dstg") for line in lines]))
    _, _, width, height = map(float, root.get("viewBox").split())
    for text in root.iter(f"{SVG}text"):
        x = float(text.get("x"))
        y = float(text.get("y"))
        length = 7.2 * len(text.text)
        start = x - {"middle": 0.5, "end": 1.0}.get(text.get("text-anchor"), 0.0) * length
        assert float(text.get("font-size", 14)) >= 14 and 0 < y < height, text.text
        assert start > -2 and start + length <= width + 8, text.text


def test_the_table_has_a_row_a_study(scale):
    """The table has a row a study and the papers."""
    places = [scale.measured("b", made_up(1e7), "dstg"), scale.measured("a", made_up(6e5, seeds=1), "dstg")]
    rows = [line.strip("| ").split(" | ") for line in scale.markdown(places).splitlines()]
    assert len({len(r) for r in rows if not r[0].startswith("---")}) == 1 and len(rows) == 5
    assert rows[2][:5] == ["a", "ap, rope", "0.6M", "1", "-0.40"] and rows[3][0] == "b"
    assert rows[4][0] == "paper" and rows[4][-5:] == ["0.941", "0.984", "0.89", "0.44", "0.75"]


def test_arguments_name_a_line_records_and_a_model(scale, tmp_path):
    path = tmp_path / "records.parquet"
    write_records(path, made_up(model="dstg-half-turn").records)
    found = scale.place(f"tiny, half-turn={path}:dstg-half-turn")
    assert (found.line, found.tokens) == ("tiny, half-turn", 1e7) and len(found.points) == 6
    with pytest.raises(ValueError, match="has no trained model dstg; it has dstg-half-turn, ap, rope"):
        scale.place(f"tiny={path}")
    with pytest.raises(ValueError, match="is not LINE=RECORDS"):
        scale.place(str(path))
    with pytest.raises(ValueError, match="nothing to draw"):
        scale.picture([])


def test_one_seed_has_no_interval_between_seeds(scale):
    place = scale.measured("tiny", made_up(seeds=1), "dstg")
    assert np.isclose(place.points["gap"].value, -0.4) and place.points["gap"].interval is None
    assert "one seed; dashed: the paper" in scale.picture([place])
