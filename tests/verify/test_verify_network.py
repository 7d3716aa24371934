"""The verifier re-derives the same network variables as the emitter writes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from parc.backends.shared.network import network_environment
from parc.backends.shared.verify_environment import (
    ExportedVariable,
    network_variables,
    verify_required_variables,
)
from parc.compiler.diagnostics import Sink
from parc.compiler.ir.serialize import as_json
from tests.backends.plans import named_plan, nvl72_plan, with_fabric, with_launch

KINDS = ("infiniband", "roce", "efa", "slingshot", "ethernet")


@pytest.mark.parametrize("interface", [None, "eth0"])
@pytest.mark.parametrize("rails", [1, 2, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_the_variables_of_every_network_are_derived_twice(
    kind: str, rails: int, interface: str | None
) -> None:
    for start in (named_plan(), nvl72_plan(4, 4)):
        plan = with_launch(with_fabric(start, kind), network_interface=interface)
        for names in ((), ("mlx5_0", "mlx5_1")):
            cluster = plan.problem.cluster
            cluster = replace(
                cluster,
                fabric=replace(cluster.fabric, rails=rails),
                node=replace(cluster.node, nic_names=names),
            )
            problem = replace(plan.problem, cluster=cluster)
            emitted = network_environment(cluster, problem.launch)
            written = {name: value for name, value, _ in emitted}
            assert network_variables(json.loads(json.dumps(as_json(problem)))) == written


@pytest.mark.parametrize(
    ("exports", "user", "found"),
    [
        ([], {}, 1),
        ([ExportedVariable("A", "1", 3)], {}, 0),
        ([ExportedVariable("A", "2", 3)], {}, 1),
        ([ExportedVariable("A", "2", 3)], {"A": "2"}, 0),
        ([], {"A": "2"}, 0),
        ([ExportedVariable("B", "1", 3)], {"B": "1"}, 1),
    ],
)
def test_a_required_variable_has_its_value_unless_the_user_sets_it(
    exports: list[ExportedVariable], user: dict[str, str], found: int
) -> None:
    sink = Sink()
    verify_required_variables("launch.sh", exports, {"A": "1"}, user, sink)
    assert len(sink.diagnostics) == found
