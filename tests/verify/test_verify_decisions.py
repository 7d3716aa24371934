"""Tests of the comparison of emitted settings with plan.json."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.backends.rankmap.verify_document import read_document_settings
from parc.backends.verifier import DerivedSetting
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.verify_settings import is_same_value, verify_decisions

PLAN = {"layout": {"tp": 2, "recompute": {"granularity": "none"}}, "problem": {"job": {"a": 1e-8}}}


def messages(*found: DerivedSetting) -> list[str]:
    sink = Sink()
    verify_decisions(PLAN, found, sink)
    assert {one.code for one in sink.diagnostics} <= {"PARC-A14"}
    return [one.finding.message for one in sink.diagnostics]


def test_equal_settings_are_not_reported() -> None:
    assert (
        messages(DerivedSetting("layout.tp", 2, "f"), DerivedSetting("problem.job.a", 1.0e-08, "f"))
        == []
    )


def test_a_setting_with_another_value_is_reported_at_its_line() -> None:
    sink = Sink()
    text = "\n" * 6 + "  --tp=4"
    verify_decisions(
        PLAN, [DerivedSetting("layout.tp", 4, "args.sh", 7, "--tp 4")], sink, {"args.sh": text}
    )
    (found,) = sink.diagnostics
    assert found.finding.message == "layout.tp is 2 in plan.json, but 4 on line 7: --tp=4"
    assert found.span is not None
    assert (found.span.file, found.span.line) == ("args.sh", 7)


def test_an_omitted_setting_that_the_plan_sets_is_reported() -> None:
    found = messages(DerivedSetting("layout.recompute.granularity", "full", "f"))
    assert found == ["layout.recompute.granularity is 'none' in plan.json, but 'full' in f"]


def test_a_path_that_the_plan_lacks_is_reported() -> None:
    assert messages(DerivedSetting("layout.tp.x", 1, "f")) == [
        "plan.json has no layout.tp.x, which is set in f"
    ]


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (True, 1, False),
        (1, 1.0, True),
        (1, "1", False),
        ([1, [2]], (1, (2,)), True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"b": 1}, False),
        (None, 0, False),
        (0.1, 0.1000001, False),
    ],
)
def test_values_are_compared_by_type_and_number(expected: Any, found: Any, same: bool) -> None:
    assert is_same_value(expected, found) is same


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            DerivedSetting("problem.job", "A=1", "f", 2, "A=1", needed="A=2"),
            "problem.job: line 2 has export A=1, the plan needs A=2",
        ),
        (
            DerivedSetting("problem.job", "A=1", "f", 2, "A=1", needed=""),
            "problem.job: line 2 has A=1, which the plan does not need",
        ),
        (
            DerivedSetting("problem.job", "", "f", needed="A=2"),
            "problem.job: the plan needs A=2, which is not in f",
        ),
        (
            DerivedSetting("problem.job", f"A={'x ' * 40}y", "f", 3, "A", needed=f"A={'x ' * 40}z"),
            "problem.job: line 3 has ...y, the plan needs ...z",
        ),
        (
            DerivedSetting("layout.tp", 4, "f", 3, "tp 4"),
            "layout.tp is 2 in plan.json, but 4 on line 3: tp 4",
        ),
    ],
)
def test_a_finding_names_the_setting_in_the_file_and_the_plan(
    found: DerivedSetting, message: str
) -> None:
    sink = Sink()
    # Line 3 is too long to be shown.
    verify_decisions(PLAN, [found], sink, {"f": f"a\n  export A=1\n{'tp=4 ' * 40}"})
    assert [one.finding.message for one in sink.diagnostics] == [message]


def test_hosts_of_a_large_rack_are_compared_in_linear_time() -> None:
    """Pairing each of 20,000 hosts with each NVLink domain would need gigabytes."""
    names = [f"n{index}" for index in range(20_000)]
    hosts = [{"name": name, "rack": "r1", "nvlink_domain": name} for name in names]
    empty = {"groups": {}, "ranks": {}, "sizes": {}}
    text = json.dumps({"format": 1, "hosts": hosts, **empty})
    rack = {"name": "r1", "hosts": names, "nvlink_domains": names}
    other = {"name": "r2", "hosts": ["m1"], "nvlink_domains": ["m1"]}
    settings = read_document_settings(text, serving=False)
    (racks,) = (one for one in settings if one.path == "problem.cluster.racks")
    assert racks.accepts is not None
    assert racks.accepts([rack, other])
    assert not racks.accepts([{**rack, "nvlink_domains": names[1:]}, other])
    assert not racks.accepts([{**rack, "hosts": names[1:]}, other])
    assert not racks.accepts([{**rack, "name": "r2"}, {**other, "name": "r1"}])
