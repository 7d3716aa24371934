"""Thousands of mistakes, or mistakes in very long lines, are reported fast and briefly."""

from __future__ import annotations

from functools import cache

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.render import render
from parc.compiler.diagnostics.sink import MOST_PER_CODE
from parc.compiler.pipeline import plan_spec
from parc.compiler.spec.reading.source import SpecSource
from tests.laws.test_mutated_specs import time_limit

HEAD = "parc: 1\nname: a\nmodel: llama-3-8b\njob: {sequence_length: 8192, global_batch: 64}\n"


@cache
def report(text: str) -> Sink:
    """Return the findings on a spec, which several tests print."""
    sink = Sink()
    plan_spec(SpecSource("a.yaml", text, None), (), sink)
    return sink


def test_mistakes_beyond_the_limit_of_a_code_are_counted() -> None:
    names = ", ".join(f"x{number}" for number in range(MOST_PER_CODE + 3))
    sink = report(f"{HEAD}cluster: {{node: dgx-h100, nodes: 1}}\nemit: [{names}]\n")
    codes = [found.code for found in sink.diagnostics]
    assert (codes.count("PARC-X16"), codes.count("PARC-I12")) == (MOST_PER_CODE, 1)
    assert "PARC-X16 was found 3 more times" in render([sink])


def test_the_limit_also_applies_to_the_findings_of_two_sinks() -> None:
    first, second = Sink(), Sink()
    for number in range(MOST_PER_CODE + 1):
        first.report("D01", f"first {number}")
        second.report("D01", f"second {number}")
    first.extend(second)
    codes = [found.code for found in first.diagnostics]
    assert (codes.count("PARC-D01"), codes.count("PARC-I12")) == (MOST_PER_CODE, 1)
    assert f"{MOST_PER_CODE + 2} more times" in render([first])


LONG = "a" * 200_000


@pytest.mark.parametrize(
    ("code", "cluster"),
    [
        ("K01", f"{{node: {LONG}, nodes: 1}}"),
        ("K01", f"{{node: dgx-h100, gpu: {LONG}, nodes: 1}}"),
        ("K07", f"{{node: ./{LONG}.yaml, nodes: 1}}"),
        ("K07", f"{{node: dgx-h100, topology: {LONG}.conf}}"),
        ("Q07", f"{{node: dgx-h100, nodes: 1, calibration: {LONG}.yaml}}"),
        ("H09", f"{{node: dgx-h100, racks: [{{name: a, nodes: 'n{'[1-9]' * 15_000}'}}]}}"),
    ],
)
def test_a_value_of_200_kilobytes_gives_a_short_finding(code: str, cluster: str) -> None:
    with time_limit(4):
        text = render([report(f"{HEAD}cluster: {cluster}\n")])
    assert f"PARC-{code}" in text
    assert len(text) < 10_000


def test_a_model_name_of_200_kilobytes_gives_a_short_finding() -> None:
    with time_limit(4):
        text = render([report(HEAD.replace("llama-3-8b", LONG))])
    assert "PARC-K01" in text
    assert len(text) < 10_000


@pytest.mark.parametrize("style", ["text", "json", "sarif", "github"])
def test_many_findings_on_a_line_of_200_kilobytes_are_printed_in_seconds(style: str) -> None:
    hosts = ", ".join(f"n{number % 10}" for number in range(MOST_PER_CODE * 2))
    line = f"cluster: {{node: dgx-h100, racks: [{{name: a, nodes: [{' ' * 200_000}{hosts}]}}]}}\n"
    with time_limit(5):
        text = render([report(HEAD + line)], style)
    assert text.count("PARC-H02") >= MOST_PER_CODE
    assert len(text) < 1_000_000


def test_thousands_of_unknown_flags_are_reported_in_seconds() -> None:
    args = ", ".join(f"--flag-{number}" for number in range(6_000))
    with time_limit(3):
        found = report(f"{HEAD}cluster: {{node: dgx-h100, nodes: 1}}\nlaunch: {{args: [{args}]}}\n")
    assert {one.code for one in found.diagnostics} == {"PARC-F01", "PARC-I12"}


def test_a_service_of_a_million_ranks_is_refused_in_seconds() -> None:
    spec = "parc: 1\nname: a\nmodel: deepseek-v3\ncluster: {node: hgx-h200, nodes: 4}\n"
    job = "job: {kind: serve, precision: fp8, traffic: {input_tokens: 100, output_tokens: 100}}\n"
    with time_limit(5):
        assert report(f"{spec}{job}layout: {{dp: 1000003, replicas: 1}}\n").failed()
