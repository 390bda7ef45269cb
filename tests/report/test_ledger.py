"""Claims as the page shows them: rows made of anything, what can be judged first, the rest folded with its reason."""

import re

import pytest
from page_parser import Parsed

from whatwhere.claims import VERDICTS
from whatwhere.report.ledger import counts, doubt, folds, row, rows, shown, table
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
    assert (r.result, r.printed, r.mark, r.paper) == ("0.587 [0.551, 0.623]", "0.89", "holds-here", "DSTG")
    assert r.untrained == "0.100, not seen here" and r.judged and r.anchor == "claim-dstg-x"
    assert r.seed_values == "" and row(CLAIM | {"values": [0.58, 0.6, 0.582]}).seed_values == "0.580, 0.600, 0.582"
    assert row({"value": 94.1, "unit": "%", "verdict": "holds here"}).result == "94.1\u202f%"


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
    assert r.claim and r.result == "–" and r.mark in ("not-testable-here", "holds-here")
    assert render_page(Page("t", claims=[broken]))


def test_claims_that_can_be_judged_come_first():
    """What can be judged comes first and nothing is forgotten."""
    kinds = [("our own", "holds untrained too"), ("printed number", "not testable here"), ("our own", "not seen here")]
    kinds += [("printed number", "holds here"), ("printed sentence", "odd"), ("printed number", "not settled")]
    claims = [
        {"id": str(i), "origin": origin.replace("our", "rule of our", 1), "verdict": v}
        for i, (origin, v) in enumerate(kinds)
    ]
    ordered = rows(claims)
    assert [r.id for r in ordered] == ["3", "2", "0", "5", "1", "4"]
    assert [r.id for r in ordered if r.judged] == ["3", "2", "0"]
    assert [r.id for r in ordered if r.tested] == ["3", "2", "0", "5"]


def test_untrained_models_that_do_it_deny_support():
    """An untrained model does it too reads as no support."""
    too = {**CLAIM, "verdict": "holds untrained too"}
    html = render_page(Page("t", claims=[too]))
    assert "an untrained model does it too</span>" in html and ">holds untrained too<" not in html
    assert '<option value="holds untrained too">an untrained model does it too</option>' in html


def test_a_doubt_is_a_verdict_that_does_not_stand():
    assert [doubt(v) for v in VERDICTS] == ["", "", "", "", "not settled", "not testable"]
    assert doubt("not settled", "not seen here") == "so far not seen"
    assert doubt("not settled", "holds untrained too") == "not settled"


def test_counts_are_apart_by_what_the_paper_has():
    of = [("printed number", "holds here"), ("rule of our own", "holds here"), ("rule of our own", "not settled")]
    names, lines = counts(rows([{"id": str(i), "origin": o, "verdict": v} for i, (o, v) in enumerate(of)]))
    assert names == ["all", "printed number", "rule of our own"]
    assert lines == [("holds here", [2, 1, 1]), ("not settled", [1, 0, 1])]


def test_what_cannot_be_judged_is_folded_by_its_reason():
    young = {**CLAIM, "verdict": "not settled", "so_far": "holds here"}
    young["scale"] = "so far: holds here; ap still learns: 0.20 nats in the last tenth of 9 steps; 1 seed, no interval"
    lacking = {"verdict": "not testable here", "scale": "not measured: needs a model rp in the study"}
    claims = [young, CLAIM, {**lacking, "id": "a"}, {**lacking, "id": "b"}]
    claims.append({**lacking, "id": "c", "scale": "ap has learned too little: 0.01 nats; 1 seed"})
    first, second = folds(rows(claims))
    reason = "ap still learns: 0.20 nats in the last tenth of 9 steps"
    assert (first[0], first[1]) == (
        "not settled",
        "1 not settled: a loss still falls by more than 0.05 nats in the last tenth of the steps; so far 1 holds here",
    )
    assert [(why, [r.id for r in of]) for why, of in first[2]] == [(reason, ["dstg-x"])]
    assert second[1] == "3 not testable here: a model, a record or enough learning is missing"
    assert [(why, [r.id for r in of]) for why, of in second[2]] == [
        ("needs a model rp in the study", ["a", "b"]),
        ("ap has learned too little: 0.01 nats", ["c"]),
    ]


def test_runs_without_measurements_show_no_claims():
    """A run that measured nothing of the claims shows none."""
    missing = [{"id": "x", "kind": "empirical", "verdict": "not testable here"}]
    assert shown(missing) == [] == shown([])
    assert [r.id for r in shown([*missing, CLAIM])] == ["dstg-x", "x"]
    gated = {**CLAIM, "id": "y", "verdict": "not testable here"}  # measured, of a model that has not learned
    assert [r.id for r in shown([gated])] == ["y"]


def test_the_table_folds_what_cannot_be_judged():
    """The table opens with what can be judged and folds the rest."""
    marked = {**CLAIM, "id": "chance", "origin": "rule of our own", "holm": "not after Holm's correction over 9 claims"}
    none = {**CLAIM, "id": "none", "verdict": "not testable here", "scale": "not measured: needs <b>"}
    html = render_page(Page("t", claims=[CLAIM, marked, none]))
    found = {a["id"]: a for tag, a in Parsed(html).elements if tag == "tr" and a.get("id")}
    assert list(found) == ["claim-dstg-x", "claim-chance", "claim-none"]
    opened, _, folded = html.partition('<details class="more unjudged" data-verdict="not testable here">')
    assert 'id="claim-chance"' in opened and 'id="claim-none"' not in opened and 'id="claim-none"' in folded
    assert (
        "<summary>1 not testable here: a model, a record or enough learning is missing</summary>" in folded
        and ">needs &lt;b&gt;</th>" in folded
    )
    assert found["claim-chance"]["data-origin"] == "rule of our own" and found["claim-chance"]["data-paper"] == "DSTG"
    assert "DSTG, rule of our own; not after Holm&#39;s correction over 9 claims</span>" in html
    assert "Untrained: 0.100, not seen here." in html
    assert "Records: r2.token dstg; loss dstg." in html and "Rule: at least 0.5." in html
    options = re.findall(r"<option[^>]*>([^<]+)</option>", html)
    assert options == ["all", "DSTG", "all", "rule of our own", "all", "holds here", "not testable here"]
    nothing = render_page(Page("t", claims=[none]))
    assert "This run can judge none of them yet" in nothing and "This run can judge none" not in html


def test_the_csv_has_every_claim():
    claims = table(rows([CLAIM, {}]))
    assert claims.columns[:6] == ("Id", "Claim", "Kind", "Origin", "Verdict", "Holm") and len(claims.rows) == 2
    assert table([]) is None and "claims" in Parsed(render_page(Page("t", claims=[CLAIM]))).data()["tables"]
