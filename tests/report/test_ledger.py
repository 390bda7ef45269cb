"""Claims as the page shows them: rows made of anything, what counts first, a table that can be filtered."""

import re

import pytest
from page_parser import Parsed

from whatwhere.report.ledger import row, rows, shown, table, told
from whatwhere.report.page import Page, render_page

CLAIM = {
    "id": "dstg-x",
    "claim": "Streams keep it",
    "kind": "empirical",
    "verdict": "holds here",
    "value": 0.5873,
    "low": 0.5512,
    "high": 0.6234,
    "paper_value": 0.89,
    "unit": "",
    "source": "DSTG section 5.1",
    "scale": "1 seed",
    "rule": "at least 0.5",
    "models": ["dstg"],
    "records": ["r2.token dstg", "loss dstg"],
    "untrained": {"value": 0.1, "verdict": "not seen here"},
}


def test_a_row_has_value_interval_paper_and_control():
    r = row(CLAIM)
    assert (r.here, r.printed, r.mark, r.paper) == ("0.587 [0.551, 0.623]", "0.89", "holds-here", "DSTG")
    assert r.untrained == "0.100, not seen here" and r.shown and r.anchor == "claim-dstg-x"
    assert row({"value": 94.1, "unit": "%", "verdict": "holds here"}).here == "94.1\u202f%"


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"claim": None, "value": "high"},
        {"value": float("nan")},
        {"verdict": "<b>", "scale": {"seeds": 1}, "rule": ["a", 2], "untrained": 7, "kind": 3},
    ],
)
def test_a_row_is_made_of_anything(broken):
    r = row(broken)
    assert r.claim and r.here == "–" and r.mark in ("not-testable-here", "holds-here")
    assert render_page(Page("t", claims=[broken]))


def test_what_counts_comes_first_and_nothing_is_forgotten():
    kinds = [("analytic", "holds here"), ("empirical", "not testable here"), ("corpus", "not seen here")]
    kinds += [("empirical", "holds here"), ("empirical", "odd"), ("empirical", "not settled")]
    claims = [{"id": str(i), "kind": kind, "verdict": verdict} for i, (kind, verdict) in enumerate(kinds)]
    ordered = rows(claims)
    assert [r.id for r in ordered] == ["3", "2", "5", "1", "4", "0"]
    assert [r.id for r in ordered if r.shown] == ["3", "2", "5"]
    assert told(ordered) == (
        "1 holds here, 1 not seen here, 1 not settled, 1 not testable here, 1 odd. 1 more come out as they do by "
        "arithmetic or construction, and count for nothing."
    )
    # What an untrained model meets too tells less.
    also = {**CLAIM, "id": "also", "untrained": {"value": 0.6, "verdict": "holds here"}}
    assert [r.id for r in rows([also, CLAIM])] == ["dstg-x", "also"]


def test_a_run_that_measured_nothing_of_the_claims_shows_none():
    missing = [{"id": "x", "kind": "empirical", "verdict": "not testable here"}]
    arithmetic = {**CLAIM, "id": "mds", "kind": "analytic"}
    assert shown([*missing, arithmetic]) == [] == shown([])
    assert [r.id for r in shown([*missing, CLAIM])] == ["dstg-x", "x"]
    gated = {**CLAIM, "id": "y", "verdict": "not testable here"}  # measured, of a model that has not learned
    assert [r.id for r in shown([gated])] == ["y"]


def test_the_table_holds_every_claim_and_hides_what_does_not_count():
    analytic = {**CLAIM, "id": "sum", "kind": "analytic", "always": "one and one <b>"}
    html = render_page(Page("t", claims=[CLAIM, analytic, {**CLAIM, "id": "none", "verdict": "not testable here"}]))
    found = {a["id"]: a for tag, a in Parsed(html).elements if tag == "tr" and a.get("id")}
    assert list(found) == ["claim-dstg-x", "claim-none", "claim-sum"]
    assert ["hidden" in a for a in found.values()] == [False, True, True]
    assert found["claim-sum"]["data-kind"] == "analytic" and found["claim-sum"]["data-paper"] == "DSTG"
    assert "Analytic: one and one &lt;b&gt;." in html and "Untrained: 0.100, not seen here." in html
    assert "Records: r2.token dstg; loss dstg." in html and "Rule: at least 0.5." in html
    options = re.findall(r"<option[^>]*>([^<]+)</option>", html)
    assert options == [
        *("all", "DSTG", "models and text", "all", "empirical", "analytic"),
        *("tested", "all", "holds here", "not testable here"),
    ]


def test_the_csv_has_every_claim():
    claims = table(rows([CLAIM, {}]))
    assert claims.columns[:4] == ("Id", "Claim", "Kind", "Verdict") and len(claims.rows) == 2
    assert table([]) is None and '"claims":' in render_page(Page("t", claims=[CLAIM]))
