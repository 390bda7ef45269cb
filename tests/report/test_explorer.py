"""The packed explorer: what comes out of the page is what went in, within the stated error and the stated size."""

import base64
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
from attention_maps import LEVELS, as_bytes, attention
from page_parser import Parsed

from whatwhere.report.explorer import (
    MERGES,
    ExplorerModel,
    ExplorerText,
    filtered,
    load_explorer,
    merged,
    pack,
    weights_of,
)
from whatwhere.report.page import Page, render_page
from whatwhere.report.pages import write_attention_page


def model(n=12, layers=2, heads=3, texts=1, name="dstg", seed=0, **more):
    found = [
        ExplorerText(f"text {i}", [f"w{j}" for j in range(n)], attention(layers, heads, n, seed + i))
        for i in range(texts)
    ]
    return ExplorerModel(name, 0, found, LEVELS, **more)


def unpacked(explorer, number=0, text=0):
    """term -> (L, h, n, n) weights, read from the chunks as the page reads them, by loops."""
    entry = explorer.data["models"][number]
    n = len(entry["texts"][text]["tokens"])
    found = {}
    for term, layers in entry["texts"][text]["maps"].items():
        found[term] = []
        for chunk, kind in layers:
            raw = (
                np.frombuffer(zlib.decompress(base64.b64decode(explorer.chunks[chunk])), np.uint8)
                .reshape(-1, n, n)
                .copy()
            )
            for row in range(1, n):
                if kind == 1:
                    raw[:, row] += raw[:, row - 1]
                if kind == 2:
                    raw[:, row, 1:] += raw[:, row - 1, :-1]
            found[term].append(np.array(entry["weights"])[raw])
    return {term: np.stack(layers) for term, layers in found.items()}


def test_round_trip_is_exact_while_there_is_room():
    one = model(texts=2)
    explorer = pack([one])
    assert explorer.data["step"] == 1 and not explorer.notes
    for i, text in enumerate(one.texts):
        for term, maps in text.maps.items():
            np.testing.assert_allclose(unpacked(explorer, text=i)[term], LEVELS[maps], rtol=1e-3)


@pytest.mark.parametrize("g", MERGES)
def test_every_scale_keeps_the_stated_error(g):
    index, groups = merged(g)
    assert groups[0].tolist() == [0, 0] and groups[-1, 1] == 255 and len(groups) == int(index[-1]) + 1
    weights = np.concatenate([np.linspace(0, 1, 20_001), np.geomspace(1e-7, 1, 5_000)])
    shown = weights_of(LEVELS, groups)[index[as_bytes(weights)]]
    error = np.abs(shown - weights)
    assert error.max() <= 0.004
    assert (error <= g * np.sqrt(weights) / 255 + (g + 1) ** 2 * 4e-6).all()


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_filters_can_be_undone_from_top_left(kind):
    maps = np.random.default_rng(0).integers(256, size=(2, 5, 5)).astype(np.uint8)
    found = filtered(maps, kind)
    for row in range(1, 5):
        if kind == 1:
            found[:, row] += found[:, row - 1]
        if kind == 2:
            found[:, row, 1:] += found[:, row - 1, :-1]
    assert np.array_equal(found, maps)


def test_equal_maps_are_packed_once():
    maps = attention(1, 3, 12)
    twice = {term: np.concatenate([m, m]) for term, m in maps.items()}
    one, two = (pack([ExplorerModel("m", 0, [ExplorerText("t", ["w"] * 12, m)], LEVELS)]) for m in (maps, twice))
    assert len(one.chunks) == len(two.chunks) == 4


def size(explorer):
    return sum(map(len, explorer.chunks))


@pytest.mark.whole
def test_what_does_not_fit_is_left_out_in_words():
    models = [model(n=48, texts=3, name="a"), model(n=48, texts=3, name="b", seed=9)]
    two = size(pack([ExplorerModel(m.name, 0, m.texts[:1], LEVELS) for m in models]))  # at the finest scale
    half = pack(models, two)
    assert size(half) <= two and [len(m["texts"]) for m in half.data["models"]] == [1, 1]
    assert half.notes[0].startswith("The texts “text 2”, “text 1” are left out")
    one = size(pack([ExplorerModel("a", 0, models[0].texts[:1], LEVELS)]))
    fewer = pack(models, int(0.7 * one))
    assert (
        size(fewer) <= int(0.7 * one)
        and len(fewer.data["models"]) == 1
        and "The model `b` is left out" in fewer.notes[-1]
    )
    with pytest.raises(
        ValueError, match=r"The maps of 2 × 3 heads for 48 tokens take .* Shorten the text to about \d+ tokens"
    ):
        pack(models, 1000)
    with pytest.raises(ValueError, match="no text of any model"):
        pack([])


def test_mean_maps_get_coarser_before_texts_go():
    """Eleven of 39 models were left out because their mean maps took the page's room."""
    means = np.random.default_rng(0).random((2, 3, 63, 63))
    means[0, 1, :, 40:] = np.nan  # bins that no document reaches
    models = [replace(model(n=12, texts=2), means={"total": means})]
    whole = pack(models)
    budget = size(whole) // 2
    fitted = pack(models, budget)
    (entry,) = fitted.data["models"]
    assert size(fitted) <= budget and not fitted.notes and len(entry["texts"]) == 2
    packed = entry["means"]["total"]
    assert packed["bins"] == 32 and whole.data["models"][0]["means"]["total"]["bins"] == 63
    levels = np.frombuffer(zlib.decompress(base64.b64decode(fitted.chunks[packed["chunk"]])), np.uint8)
    shown = (levels.reshape(2, 3, 32, 32) / 255) ** 2 * np.array(packed["scales"])[..., None, None]
    corners = [(0, 0), (31, 31), (0, 31)]
    for i, j in corners:
        block = means[1, 2, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        assert shown[1, 2, i, j] == pytest.approx(block.mean(), abs=0.004)
    assert (shown[0, 1, :, 20:] == 0).all()


@pytest.fixture(scope="module")
def largest():
    return attention(6, 6, 512)


@pytest.mark.whole
def test_512_tokens_at_paper_size_stay_below_10_megabytes(largest, tmp_path):
    one = ExplorerModel("dstg", 0, [ExplorerText("t", [f"word{i}" for i in range(512)], largest)], LEVELS)
    path = write_attention_page(tmp_path / "a.html", one)
    assert 1_000_000 < path.stat().st_size <= 10_000_000
    assert 'id="plotly"' not in path.read_text(encoding="utf-8")


def save(folder, names, n=10, **entry):
    """A study's folder with the files that `study.explorer_files.save_attention` writes."""
    (folder / "arrays").mkdir(parents=True)
    index = []
    for name in names:
        maps = attention(2, 3, n)
        np.savez(folder / f"arrays/explorer-{name}-seed-0.npz", levels=LEVELS, **{f"0.{t}": m for t, m in maps.items()})
        texts = [{"title": "one", "tokens": [f"w{i}" for i in range(n)]}]
        base = {
            "name": name,
            "seed": 0,
            "file": f"arrays/explorer-{name}-seed-0.npz",
            "terms": list(maps),
            "missing": "",
            "texts": texts,
        }
        index.append(base | entry)
    (folder / "explorer.json").write_text(json.dumps(index))
    return folder


def test_a_folder_is_read_with_its_means_and_profiles(tmp_path):
    folder = save(tmp_path / "s", ["dstg", "rope"])
    rng = np.random.default_rng(0)
    mean = rng.random((2, 3, 8, 8))
    profile = rng.random((2, 3, 5))
    np.savez(
        folder / "arrays/attention-dstg-seed-0.npz",
        **{"mean.total": mean, "profile.total": profile, "lags": np.arange(-2, 3)},
    )
    explorer = load_explorer(folder)
    first, second = explorer.data["models"]
    assert first["name"] == "dstg, seed 0" and "means" not in second and first["lags"] == [-2, -1, 0, 1, 2]
    raw = np.frombuffer(zlib.decompress(base64.b64decode(explorer.chunks[first["profiles"]["total"]])), "<f4")
    np.testing.assert_allclose(raw.reshape(2, 3, 5), profile, rtol=1e-6)
    packed = first["means"]["total"]
    levels = np.frombuffer(zlib.decompress(base64.b64decode(explorer.chunks[packed["chunk"]])), np.uint8).reshape(
        2, 3, 8, 8
    )
    shown = (levels / 255) ** 2 * np.array(packed["scales"])[..., None, None]
    np.testing.assert_allclose(shown, mean, atol=0.004)
    assert load_explorer(tmp_path) is None


def test_a_study_without_room_says_so(tmp_path):
    explorer = load_explorer(save(tmp_path / "s", ["dstg"]), budget=100)
    assert explorer.data["models"] == [] and "Shorten the text" in explorer.notes[0]
    page = Parsed(render_page(Page("t", explorer=explorer)))
    assert "Shorten the text" in " ".join(page.words) and not any(a.get("id") == "ex" for _, a in page.elements)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"file": "arrays/none.npz"}, "is not a complete array file"),
        ({"texts": [{"title": "one", "tokens": ["too", "few"]}]}, r"says bytes of shape \(layers, heads, 2, 2\)"),
        ({"terms": None}, "lacks"),
        ({"file": "../../../etc/passwd"}, "arrays/passwd is not a complete"),
    ],
)
def test_damaged_files_are_refused(tmp_path, entry, message):
    with pytest.raises(ValueError, match=message):
        load_explorer(save(tmp_path / "s", ["dstg"], **entry))


def test_strings_from_outside_become_neither_markup_nor_script(hostile_texts):
    maps = attention(1, 1, len(hostile_texts))
    hostile = hostile_texts[-1]
    one = ExplorerModel(hostile, 0, [ExplorerText(hostile, hostile_texts, maps)], LEVELS, missing=hostile)
    html = render_page(Page("t", explorer=pack([one])))
    page = Parsed(html)
    plain = Parsed(render_page(Page("t", explorer=pack([model(n=4, layers=1, heads=1)]))))
    assert [tag for tag, _ in page.elements].count("script") == [tag for tag, _ in plain.elements].count("script")
    assert not any(tag in ("img", "b") or "onload" in attributes for tag, attributes in page.elements)
    assert "\u202e" not in html
    tokens = json.loads(next(s for s in page.scripts if s.startswith('{"models"')))["models"][0]["texts"][0]["tokens"]
    assert tokens[0] == hostile_texts[0]
    assert (
        max(
            map(
                len,
                pack(
                    [
                        ExplorerModel(
                            "m", 0, [ExplorerText("t", ["x" * 10_000], {"total": maps["total"][..., :1, :1]})], LEVELS
                        )
                    ]
                ).data["models"][0]["texts"][0]["tokens"],
            )
        )
        == 200
    )
