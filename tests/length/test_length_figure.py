"""Figure of losses on longer texts: every method, and the length of the training."""

from dataclasses import replace

from whatwhere.records.record import Record
from whatwhere.report.figures import longer
from whatwhere.report.loaded_run import Run


def test_lines_mark_each_models_training_length():
    """Each model has a line at the length of its training."""
    # Where they differed there was none.
    records = [Record("s", f"m{n}", "length.trained", float(n), seed=0) for n in (64, 128)]
    for r in list(records):
        more = [("length.beyond", None, 4.0), ("length.loss", 8, 3.0), ("length.loss", 200, 4.0)]
        records += [replace(r, metric=name, part="cyclic", index=at, value=value) for name, at, value in more]
    panels = longer.loss(Run("s", records=records)).panels
    lines = {p.title: [t["x"] for t in p.data if t["meta"] == ["length of the training"]] for p in panels}
    assert lines == {"m64": [[64.0, 64.0]], "m128": [[128.0, 128.0]]}


def test_every_method_is_drawn_and_the_title_chooses():
    """Every way is drawn and the title says which to take."""
    # Only eight had a line, equations 5 and 6 of the notes not, and the title named one way of one model.
    ways = [
        f"{m}{more}" for m in ("cyclic", "decay", "fourier", "learned") for more in ("", "-w64", "+all", "-w64+all")
    ]
    records = []
    for model, gains in (("a", (0.2, 0.1, 0.3)), ("b", (0.1, -1.0, 1.2)), ("c", (-0.3, -0.4, -0.2))):
        for i, way in enumerate(ways):
            records.append(Record("s", model, "length.beyond", 4.0 + i, seed=0, part=way))
            records += [Record("s", model, "length.loss", 4.0 + i, seed=0, part=way, index=at) for at in (8, 200)]
        value, low, high = gains
        records.append(Record("s", model, "length.gain", value, seed=0, part="learned-w64", low=low, high=high))
        records.append(Record("s", model, "length.gain", value - 1, seed=0, part="decay", low=low - 1, high=high - 1))
    figure = longer.loss(Run("s", records=records))
    for panel in figure.panels:
        drawn = {t["meta"][0]: (t["line"]["color"], t["line"]["dash"]) for t in panel.data if t["mode"] == "lines"}
        assert set(drawn) == set(ways) and len(set(drawn.values())) == len(ways)
        labels = panel.layout["annotations"]
        margin = panel.layout["margin"]
        room = panel.layout["height"] - margin["t"] - margin["b"]
        assert {note["text"] for note in labels} == set(ways) and room + 12 >= 17 * (len(labels) - 1)
    # An interval that holds 0 was called level, however wide.
    told = "better than pieces: `a` by learned-w64; not separable from pieces: `b` by learned-w64; worse than pieces: "
    assert figure.title == f"The best way of each model, {told}`c` by learned-w64"
