"""Findings about a finished placement, and rules that reject layouts before placement."""

from __future__ import annotations

import pytest

from parc.compiler.checks.check_placement import check_placement
from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.evaluate.layout_rules import DOMAIN_RULE, HOST_RULE
from parc.compiler.ir import Plan
from tests.placement.placement_plans import (
    NVL72,
    cluster,
    layout,
    plan,
    problem,
    with_hosts,
)


def found(made: Plan) -> tuple[Diagnostic, ...]:
    sink = Sink()
    check_placement(made, sink)
    return sink.diagnostics


def broken(code: str, *, hosts: int, nvl72: bool = False, **degrees: int) -> bool:
    on = cluster(hosts, node=NVL72) if nvl72 else cluster(hosts)
    rule = next(rule for rule in (DOMAIN_RULE, HOST_RULE) if rule.code == code)
    return rule.broken(problem(on), layout(layers=degrees.get("pp", 1), **degrees))


def test_a_plan_that_uses_all_gpus_and_splits_no_group_has_no_findings() -> None:
    assert found(plan(cluster(4, 4), layout(tp=8, pp=2, dp=4))) == ()


def test_tensor_groups_over_two_hosts_give_a_warning_that_names_the_hosts() -> None:
    (diagnostic,) = found(plan(cluster(4), layout(tp=16, dp=2)))
    assert (diagnostic.code, diagnostic.severity) == ("PARC-T01", "warning")
    assert diagnostic.finding.message == (
        "2 of 2 tensor-parallel groups of 16 ranks span NVLink domains"
    )
    assert "r01n01 and r01n02" in diagnostic.finding.label
    assert diagnostic.finding.fix == "layout.tp: 8"


def test_tensor_groups_over_two_hosts_of_one_nvlink_domain_give_no_finding() -> None:
    assert found(plan(cluster(4, node=NVL72), layout(tp=8, dp=2))) == ()


def test_tensor_groups_smaller_than_a_domain_that_span_hosts_are_an_error() -> None:
    (diagnostic,) = found(plan(cluster(3), layout(tp=6, dp=4)))
    assert (diagnostic.code, diagnostic.severity) == ("PARC-T02", "error")


def test_idle_hosts_are_named() -> None:
    (diagnostic,) = found(plan(cluster(4), layout(tp=8, dp=3)))
    assert diagnostic.code == "PARC-T15"
    assert diagnostic.finding.message == "8 of 32 GPUs get no rank"
    assert "idle hosts: r01n04" in diagnostic.finding.label


def test_expert_groups_that_span_domains_are_a_warning() -> None:
    made = plan(cluster(18, 18, node=NVL72), layout(dp=144, ep=16, etp=1), experts=16)
    order = sorted(made.problem.cluster.hosts, key=lambda host: host.name[4:])
    (diagnostic,) = found(with_hosts(made, tuple(order)))
    assert (diagnostic.code, diagnostic.path) == ("PARC-M04", "layout.ep")
    assert (
        diagnostic.finding.message
        == "9 of 9 expert-parallel groups of 16 ranks span NVLink domains"
    )


@pytest.mark.parametrize(
    ("tp", "nvl72", "straddles"),
    [
        (1, False, False),
        (3, False, True),
        (8, False, False),
        (16, False, False),
        (12, False, True),
        (8, True, False),
        (6, True, False),
        (16, True, True),
    ],
)
def test_tp_divides_the_domain_or_is_a_multiple_of_it(
    tp: int, nvl72: bool, straddles: bool
) -> None:
    assert broken("T02", hosts=18, nvl72=nvl72, tp=tp) is straddles


@pytest.mark.parametrize(
    ("pp", "uneven"), [(16, False), (8, False), (14, False), (13, True), (15, True), (24, True)]
)
def test_a_layout_must_spread_evenly_over_the_available_hosts(pp: int, uneven: bool) -> None:
    assert broken("T11", hosts=2, pp=pp) is uneven


@pytest.mark.parametrize("rule", [DOMAIN_RULE, HOST_RULE], ids=lambda rule: rule.code)
def test_every_rule_suggests_an_edit_of_the_layout(rule) -> None:  # type: ignore[no-untyped-def]
    finding = rule.explain(problem(cluster(2)), layout(layers=3, tp=3, pp=3, dp=3))
    assert finding.fix.startswith("layout.")
    assert finding.label
