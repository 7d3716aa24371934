"""Text pairs: an invalid spec and its exact findings."""

from pathlib import Path
from typing import Any

import pytest

from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.spec.load import load_spec
from parc.compiler.spec.reading.source import SpecSource

CASES: list[dict[str, Any]] = [
    case
    for file in sorted((Path(__file__).parent / "cases").glob("*.yaml"))
    for case in parse_table(file.read_text("utf-8"))
]


def formatted(found: Diagnostic) -> str:
    span, finding = found.span, found.finding
    assert span is not None, f"{found.code} has no position"
    place = f"{span.file}:{span.line}:{span.column}+{span.length}"
    lines = [f"{found.code.removeprefix('PARC-')} {place} {found.path or '-'}: {finding.message}"]
    parts = {"label": finding.label, "help": finding.help, "fix": finding.fix}
    lines += [f"   {name}: {text}" for name, text in parts.items() if text]
    for cause in finding.causes:
        assert cause.span is not None
        lines.append(f"   cause: {cause.path} {cause.span.line}:{cause.span.column} {cause.text}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_an_invalid_spec_gets_exactly_these_findings(case):
    sink = Sink()
    spec = load_spec(SpecSource("spec.yaml", case["given"], None), case.get("set", ()), sink)
    assert "".join(formatted(found) for found in sink.diagnostics) == case["expect"]
    assert spec is None


def test_titles_of_cases_are_unique():
    titles = [case["title"] for case in CASES]
    assert len(titles) == len(set(titles))
