"""Waits of a pipeline whose stages are in several NVLink domains, against an event simulation."""

from __future__ import annotations

import pytest

from parc.compiler.evaluate.estimate_layout import traffic_by_axis
from tests.compiled import plan_of
from tests.search.search_reference import cost_model_of

MICRO_BATCHES, STAGES = 128, 34
SPEC = {
    "parc": 1,
    "name": "uneven-racks",
    "model": "llama-3.1-405b",
    "cluster": {
        "node": "gb200-nvl72",
        "racks": [
            {"name": f"r{number}", "nodes": f"r{number}-[01-{hosts}]"}
            for number, hosts in enumerate((18, 18, 17, 15), start=1)
        ],
    },
    "job": {"sequence_length": 8192, "global_batch": 2 * MICRO_BATCHES},
    "layout": {"tp": 4, "cp": 1, "pp": STAGES, "vpp": 1, "micro_batch": 1, "recompute": "none"},
}


def order_of_1f1b(rank: int) -> list[tuple[str, int]]:
    """Return the forward (F) and backward (B) passes of a rank with their micro-batches."""
    early = STAGES - rank - 1
    order = [("F", number) for number in range(early)]
    for number in range(MICRO_BATCHES):
        order += [("F", early + number)] * (early + number < MICRO_BATCHES)
        order.append(("B", number))
    return order


def seconds_of_1f1b(forward: float, backward: float, hops: list[float]) -> float:
    """Return the seconds of a 1F1B step; ``hops[i]`` is the time between stages i and i + 1."""
    ends: dict[tuple[str, int, int], float] = {}
    waiting = [order_of_1f1b(rank)[::-1] for rank in range(STAGES)]
    clock = [0.0] * STAGES

    def ready_at(kind: str, rank: int, number: int) -> float | None:
        """Return when the input of a pass is on ``rank``; None if it is not sent yet."""
        other = rank - 1 if kind == "F" else rank + 1
        if not 0 <= other < STAGES:
            return 0.0
        sent = ends.get((kind, other, number))
        return None if sent is None else sent + hops[min(rank, other)]

    while any(waiting):
        for rank in (rank for rank in range(STAGES) if waiting[rank]):
            kind, number = waiting[rank][-1]
            ready = ready_at(kind, rank, number)
            if ready is not None:
                waiting[rank].pop()
                took = forward if kind == "F" else backward
                clock[rank] = ends[kind, rank, number] = max(clock[rank], ready) + took
    return max(clock)


def test_stages_in_other_nvlink_domains_wait_for_the_network() -> None:
    plan = plan_of(SPEC)
    time, mesh = plan.estimate.time, plan.placement.dense
    cost_model = cost_model_of(SPEC)
    (traffic,) = (one for one in traffic_by_axis(cost_model, plan.layout) if one.axis == "pp")
    # The layout alone does not show that some messages leave the domain.
    assert traffic.level == "nvlink"
    message = traffic.bytes_per_rank / 2 / MICRO_BATCHES
    slow = message / (plan.problem.cluster.node.network_gb_per_s_per_gpu * 1e9)
    domain = [host.nvlink_domain for host in plan.placement.hosts]
    stride = mesh.axis_by_name("pp").stride // plan.placement.ranks_per_node
    crosses = [domain[stride * i] != domain[stride * (i + 1)] for i in range(STAGES - 1)]
    assert sum(crosses) >= 3
    each = (time.compute_seconds + time.tp_seconds) / MICRO_BATCHES
    hops = [slow * one for one in crosses]
    steps = [seconds_of_1f1b(each / 3, 2 * each / 3, one) for one in (hops, [0.0] * len(hops))]
    # About 15 ms of the placement are gradients of replicas in two domains.
    assert time.placement_seconds == pytest.approx(steps[0] - steps[1], rel=0.15)
