"""Cards of claims: values, verdicts and the little scale, whatever claims.json leaves out."""

import pytest

from whatwhere.report.cards import by_reason, card, ledger, scale_ends, strip
from whatwhere.report.page import Page, render_page


def test_a_card_shows_value_interval_and_the_papers_value():
    c = card(
        {
            "id": "x",
            "claim": "c",
            "verdict": "holds",
            "value": 0.5873,
            "low": 0.5512,
            "high": 0.6234,
            "paper_value": 0.89,
            "unit": "",
        }
    )
    assert (c.value, c.bounds, c.paper, c.mark) == ("0.587", "[0.551, 0.623]", "0.89", "holds")
    assert c.strip.value == pytest.approx(58.73) and c.strip.paper == 89


def test_a_card_without_a_measurement_has_no_scale():
    c = card({"id": "x", "claim": "c", "verdict": "not testable here", "value": None, "paper_value": 0.5})
    assert c.value == "–" and c.strip is None and c.mark == "not-testable-here" and c.bounds == ""


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"claim": None, "value": "high"},
        {"value": float("nan")},
        {"verdict": "<b>", "scale": {"seeds": 1}, "rule": ["a", 2]},
    ],
)
def test_a_card_is_made_of_anything(broken):
    c = card(broken)
    assert c.claim and c.mark in ("not-testable-here", "holds", "does-not-hold", "not-separable")


def test_units_stand_behind_the_value():
    assert card({"value": 94.1, "unit": "%", "verdict": "holds"}).value == "94.1\u202f%"


def test_scale_ends_hold_every_value():
    assert scale_ends([0.2, 0.9], "") == (0, 1)
    assert scale_ends([12.0, 94.0], "%") == (0, 100)
    assert scale_ends([3.4, 0.1], "nats") == (0, 4)
    assert scale_ends([-0.034, 0.5], "") == pytest.approx((-0.04, 1))
    s = strip(-0.5, -0.7, 2.5, 0.1)
    assert all(0 <= v <= 100 for v in (s.value, s.low, s.high, s.paper))


def test_the_ledger_groups_by_verdict_and_forgets_none():
    cards = [card({"id": str(i), "verdict": v}) for i, v in enumerate(["not separable", "holds", "odd", "holds"])]
    groups = ledger(cards)
    assert [name for name, _ in groups] == ["holds", "not separable", "odd"] and sum(len(g) for _, g in groups) == 4


CLAIM = {"id": "dstg-x", "claim": "c", "verdict": "holds", "value": 0.5, "scale": "1 seed", "rule": "r"}


def test_a_card_has_the_records_and_models_of_its_claim():
    c = card(
        CLAIM | {"models": ["dstg", "ap"], "records": ["r2.token dstg position layer 1-4, 5 splits", "pca.top2 ap"]}
    )
    assert c.models == "`dstg`, `ap`" and c.records == ("r2.token dstg position layer 1-4, 5 splits", "pca.top2 ap")
    assert (card(CLAIM).models, card(CLAIM | {"records": "text"}).records) == ("", ())
    assert card({"id": 'a" b<i>'}).anchor == "claim-a-b-i" and card(CLAIM).anchor == "claim-dstg-x"


def test_a_card_leads_to_its_row_which_lists_its_records():
    claims = [CLAIM | {"id": f"x-{i}", "records": [f"metric.{i} <b>"]} for i in range(3)]
    html = render_page(Page("t", cards=[card(c) for c in claims]))
    for i in range(3):
        assert html.count(f'<a href="#claim-x-{i}">') == html.count(f'<li id="claim-x-{i}">') == 1
        row = html[html.index(f'<li id="claim-x-{i}">') :]
        assert (
            f"<summary>Records behind it</summary><ul><li>metric.{i} &lt;b&gt;</li></ul>"
            in row[: row.index("</details>") + 10]
        )


def test_what_cannot_be_tested_is_folded_and_ordered_by_what_is_missing():
    lacking = [("a", "ap"), ("b", "rope"), ("c", "rope")]
    untested = [
        {
            "id": i,
            "claim": f"claim {i}",
            "verdict": "not testable here",
            "value": None,
            "scale": f"not measured: needs a model {m}",
        }
        for i, m in lacking
    ]
    cards = [card(c) for c in [CLAIM, *untested]]
    assert [(reason, [c.id for c in found]) for reason, found in by_reason(cards[1:])] == [
        ("Needs a model rope", ["b", "c"]),
        ("Needs a model ap", ["a"]),
    ]
    html = render_page(Page("t", cards=cards))
    fold = html[html.index('<details class="untestable">') :]
    fold = fold[: fold.index("</details>")]
    assert (
        "3 claims, by what is missing" in fold
        and all(f'<li id="claim-{i}">' in fold for i in "abc")
        and "claim-dstg-x" not in fold
    )
