"""Bytes on rack uplinks equal PARC's count, and the order of the plan sends less than name order.

Ranks send over gloo between network namespaces; the kernel counts. Every transfer runs with two
sizes and the difference is compared, so that constant overhead cancels.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.ir import Cluster, Host, Layout, Mesh, Placement, Rack
from parc.compiler.topology.hostlist import natural_key
from parc.compiler.topology.node_groups import node_groups
from parc.compiler.topology.uplinks import Pattern, build_traffic_flow, messages_leaving_zones
from tests.conformance.network.fabric import RackFabric, reason_to_skip
from tests.conformance.tool_checkers import tool_python
from tests.placement.placement_plans import NODE, cluster, estimate, layout, plan

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(reason_to_skip() != "", reason=reason_to_skip() or "can run"),
]
PROGRAM = Path(__file__).with_name("fabric_traffic.py")
MIB = 2**20
LONGEST_SECONDS = 900
COUNTS = 8
"""Attempts to measure a send without a TCP retransmission."""
TOLERANCE = 0.05
Measured = tuple[str, dict[str, list[dict[str, float]]]]
NOISE_BYTES = 64 * 1024
"""Acknowledgements and address resolution on an uplink that no data crosses."""
SENT: dict[str, tuple[Pattern, float]] = {
    "all-reduce": ("ring", 2.0),
    "all-gather": ("ring", 1.0),
    "reduce-scatter": ("ring", 1.0),
    "all-to-all": ("all-to-all", 1.0),
}
"""Collective -> pattern of its messages, and bytes sent per rank as a multiple of (n-1)/n."""


@dataclass(frozen=True)
class Send:
    """Traffic of one kind in a step, as the tensor of one rank."""

    axis: str
    mesh: str
    axes: tuple[str, ...]
    pattern: str
    mib: float

    def rank_bytes(self, members: int) -> float:
        """Return the bytes that a rank in the middle of its group sends."""
        if self.pattern == "line":
            return 2 * self.mib * MIB
        return SENT[self.pattern][1] * (members - 1) / members * self.mib * MIB


@dataclass(frozen=True)
class Case:
    """Hosts whose names alternate between the racks, a layout, and its traffic."""

    racks: tuple[int, ...]
    gpus: int
    of: Layout
    sends: tuple[Send, ...]


DP = Send("dp_cp", "dense", ("dp", "cp"), "all-reduce", 8)
PP = Send("pp", "dense", ("pp",), "line", 0.5)
TP = tuple(Send("tp", "dense", ("tp",), p, 2) for p in ("all-gather", "reduce-scatter"))
EP = Send("ep", "expert", ("ep",), "all-to-all", 4)
EDP = Send("edp", "expert", ("dp",), "all-reduce", 2)
CASES = {
    "two racks": Case((4, 4), 1, layout(pp=2, dp=4), (DP, PP)),
    "three unequal racks": Case((4, 2, 2), 1, layout(tp=2, pp=2, dp=2), (*TP, DP, PP)),
    "experts on two racks": Case((2, 2), 2, layout(dp=8, ep=4), (EP, EDP, DP)),
    "experts over the racks": Case((4, 4), 1, layout(dp=8, ep=8), (EP, DP)),
    "four racks": Case((2, 2, 2, 2), 1, layout(pp=4, dp=2), (DP, PP)),
}


def interleaved(case: Case) -> Cluster:
    """Return a cluster whose hosts n1, n2, ... are assigned to the racks in turn."""
    node = replace(NODE, gpus=case.gpus, nvlink_domain=case.gpus)
    dealt: list[list[Host]] = [[] for _ in case.racks]
    turns = [
        rack for turn in range(max(case.racks)) for rack, n in enumerate(case.racks) if turn < n
    ]
    for number, rack in enumerate(turns, start=1):
        dealt[rack].append(Host(f"n{number}", f"rack{rack + 1}", f"n{number}", ()))
    racks = tuple(Rack(f"rack{i}", tuple(hosts)) for i, hosts in enumerate(dealt, start=1))
    on = cluster(*case.racks, node=node)
    # an uplink is a single pair of interfaces, as fast as that of a host
    fabric = replace(on.fabric, oversubscription=float(max(case.racks)))
    return replace(on, racks=racks, fabric=fabric)


def mesh_of(placement: Placement, send: Send) -> Mesh:
    return placement.dense if send.mesh == "dense" else placement.expert


def members(placement: Placement, send: Send) -> int:
    return len(mesh_of(placement, send).groups_along(*send.axes)[0])


@cache
def placements(title: str) -> dict[str, Placement]:
    """Return the placement of the plan and the placement in name order."""
    case = CASES[title]
    on = interleaved(case)
    first = plan(on, case.of).placement
    step: dict[str, float] = {}
    for send in case.sends:
        step[send.axis] = step.get(send.axis, 0.0) + send.rank_bytes(members(first, send))
    costs = estimate(step.pop("dp_cp", 0.0), step.pop("pp", 0.0), **step)
    placed = plan(on, case.of, costs).placement
    names = sorted(on.hosts, key=lambda host: natural_key(host.name))
    return {"placed": placed, "names": replace(placed, hosts=tuple(names))}


def predicted(placement: Placement, send: Send) -> dict[str, float]:
    """Return the bytes that leave each rack according to PARC's placement."""
    groups = node_groups(mesh_of(placement, send), send.axes, placement.ranks_per_node)
    pattern: Pattern = "line" if send.pattern == "line" else SENT[send.pattern][0]
    sent = build_traffic_flow(groups, pattern, send.rank_bytes(groups.size), 1.0)
    racks = sorted({host.rack for host in placement.hosts})
    leaving = messages_leaving_zones(sent, [racks.index(host.rack) for host in placement.hosts])
    return {rack: leaving[index] * sent.unit_bytes for index, rack in enumerate(racks)}


def case_line(fabric: RackFabric, placement: Placement, case: Case) -> str:
    """Return a line for the program: every send with its size and with twice its size."""
    hosts = [
        fabric.namespaces[host.name]
        for host in placement.hosts
        for _ in range(placement.ranks_per_node)
    ]
    sends = [
        {
            "pattern": send.pattern,
            "groups": [list(group) for group in mesh_of(placement, send).groups_along(*send.axes)],
            "bytes": int(times * send.mib * MIB),
        }
        for send in case.sends
        for times in (1, 2)
    ]
    uplinks = list(fabric.uplinks.values())
    return json.dumps({"switch": fabric.switch, "uplinks": uplinks, "hosts": hosts, "sends": sends})


def measure(lines: list[str]) -> list[list[dict[str, int]]]:
    """Return the bytes that the program counts, for each line and each of its sends.

    TCP retransmits some segments on a busy machine; the program reports this, and that send is
    measured again.
    """
    rows: dict[tuple[int, int], dict[str, int]] = {}
    for _ in range(COUNTS):
        counts = measure_once(lines)
        places = [
            (line, send) for line, one in enumerate(counts) for send in range(len(one["sends"]))
        ]
        for line, send in places:
            if not counts[line]["resent"][send]:
                rows.setdefault((line, send), counts[line]["sends"][send])
        if len(rows) == len(places):
            return [[rows[at] for at in places if at[0] == line] for line in range(len(counts))]
    raise AssertionError(f"in each of {COUNTS} counts of a send TCP sent something twice")


def measure_once(lines: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [tool_python("torch"), str(PROGRAM)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(name="measured", scope="module", params=sorted(CASES))
def _measured(request: pytest.FixtureRequest) -> Measured:
    """Measure the bytes that leave each rack, for each order of hosts and each of its sends."""
    title: str = request.param
    orders = placements(title)
    racks = {
        rack.name: [host.name for host in rack.hosts] for rack in interleaved(CASES[title]).racks
    }
    with RackFabric(racks) as fabric:
        lines = [case_line(fabric, order, CASES[title]) for order in orders.values()]
        rows = measure(lines)
        found = marginal_bytes(fabric, dict(zip(orders, rows, strict=True)))
    return title, found


Sends = dict[str, list[dict[str, float]]]
"""Order of hosts -> send -> rack -> bytes."""


def marginal_bytes(fabric: RackFabric, rows: dict[str, list[dict[str, int]]]) -> Sends:
    """Return the additional bytes of the second of two sends, so that handshakes and headers
    cancel.
    """
    return {
        order: [
            {rack: float(twice[name] - once[name]) for rack, name in fabric.uplinks.items()}
            for once, twice in zip(sends[::2], sends[1::2], strict=True)
        ]
        for order, sends in rows.items()
    }


def busiest(sends: list[dict[str, float]]) -> float:
    """Return the bytes per step over the busiest uplink."""
    return max(sum(send[rack] for send in sends) for rack in sends[0])


def test_every_uplink_carries_the_predicted_bytes(measured: Measured) -> None:
    title, orders = measured
    for order, rows in orders.items():
        for send, row in zip(CASES[title].sends, rows, strict=True):
            wanted = predicted(placements(title)[order], send)
            print(title, order, send.axis, send.pattern, *table(wanted, row), sep=" | ")
            assert row == pytest.approx(wanted, rel=TOLERANCE, abs=NOISE_BYTES)


def table(wanted: dict[str, float], row: dict[str, float]) -> list[str]:
    """Return the predicted and the counted MiB of each rack."""
    return [f"{rack} {wanted[rack] / MIB:.2f} {row[rack] / MIB:.2f}" for rack in wanted]


def test_the_order_of_the_plan_sends_no_more_over_the_busiest_uplink_than_name_order(
    measured: Measured,
) -> None:
    title, orders = measured
    placed, names = busiest(orders["placed"]), busiest(orders["names"])
    print(f"{title}: busiest uplink {names / MIB:.1f} MiB by name, {placed / MIB:.1f} placed")
    assert placed <= names + NOISE_BYTES * len(CASES[title].sends)
    if title == "two racks":
        assert names >= 10 * placed
