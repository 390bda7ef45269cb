"""Cards of claims: values, verdicts and the little scale, whatever claims.json leaves out."""

import pytest

from whatwhere.report.cards import card, ledger, scale_ends, strip


def test_a_card_shows_value_interval_and_the_papers_value():
    c = card({"id": "x", "claim": "c", "verdict": "holds", "value": 0.5873, "low": 0.5512, "high": 0.6234, "paper_value": 0.89, "unit": ""})
    assert (c.value, c.bounds, c.paper, c.mark) == ("0.587", "[0.551, 0.623]", "0.89", "holds")
    assert c.strip.value == pytest.approx(58.73) and c.strip.paper == 89


def test_a_card_without_a_measurement_has_no_scale():
    c = card({"id": "x", "claim": "c", "verdict": "not testable here", "value": None, "paper_value": 0.5})
    assert c.value == "–" and c.strip is None and c.mark == "not-testable-here" and c.bounds == ""


@pytest.mark.parametrize(
    "broken", [{}, {"claim": None, "value": "high"}, {"value": float("nan")}, {"verdict": "<b>", "scale": {"seeds": 1}, "rule": ["a", 2]}]
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
