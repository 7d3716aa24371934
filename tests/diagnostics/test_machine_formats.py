"""Diagnostics as JSON, SARIF and GitHub annotations."""

from __future__ import annotations

import json

from parc.compiler.diagnostics import Cause, Finding, Sink, Span, SpecPositions
from parc.compiler.diagnostics.render import render


def sink() -> Sink:
    values = {"layout.tp": Span("my spec.yaml", 3, 7), "model.heads": Span("my spec.yaml", 1, 8, 2)}
    lines = {"my spec.yaml": ("heads: 64", "layout:", "  tp: 6")}
    found = Sink(SpecPositions("my spec.yaml", values, {}, lines))
    finding = Finding(
        "64 heads, 100% wrong",
        label="a\nb",
        help="1, 2",
        fix="tp: 8",
        causes=(Cause("model.heads", "from here"), Cause("cluster", "not written")),
    )
    found.report("D01", finding, at="layout.tp")
    return found


def test_json_has_a_version_positions_and_counts() -> None:
    document = json.loads(render([sink()], "json"))
    assert document["format"] == 1
    assert document["summary"] == {"errors": 1, "warnings": 0, "advice": 0}
    (found,) = document["diagnostics"]
    assert found["code"] == "PARC-D01"
    assert found["severity"] == "error"
    assert found["file"] == "my spec.yaml"
    assert found["path"] == "layout.tp"
    assert found["span"] == {"file": "my spec.yaml", "line": 3, "column": 7, "length": 1}
    assert found["causes"][1] == {"path": "cluster", "text": "not written", "span": None}


def test_json_of_nothing_is_still_a_document() -> None:
    assert json.loads(render([], "json"))["diagnostics"] == []


def test_sarif_names_the_rule_the_region_and_the_cause() -> None:
    log = json.loads(render([sink()], "sarif"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    (rule,) = run["tool"]["driver"]["rules"]
    (result,) = run["results"]
    assert rule["id"] == result["ruleId"] == "PARC-D01"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]] is rule
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "my%20spec.yaml"
    assert physical["region"] == {"startLine": 3, "startColumn": 7, "endColumn": 8}
    assert len(result["relatedLocations"]) == 1


def test_sarif_without_a_span_names_only_the_file() -> None:
    found = Sink(SpecPositions("spec.yaml"))
    found.report("D01", "nothing fits")
    (result,) = json.loads(render([found], "sarif"))["runs"][0]["results"]
    assert result["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "spec.yaml"}}}]


def test_a_github_line_escapes_line_breaks_and_percent_signs() -> None:
    text = render([sink()], "github")
    assert text == (
        "::error title=PARC-D01,file=my spec.yaml,line=3,col=7,endColumn=8::"
        "64 heads, 100%25 wrong%0Aa%0Ab%0Ahelp: 1, 2%0Afix: tp: 8\n"
    )


def test_a_github_property_escapes_colon_and_comma() -> None:
    found = Sink(SpecPositions("a,b:c%\n.yaml"))
    found.report("D01", "wrong")
    assert render([found], "github") == (
        "::error title=PARC-D01,file=a%2Cb%3Ac%25%0A.yaml::wrong\n"
    )
