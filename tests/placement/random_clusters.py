"""Random irregular clusters and jobs for the tests and the benchmark of placement."""

from __future__ import annotations

import random
from dataclasses import replace

from parc.compiler.ir import Cluster, Estimate, Layout, Placement, Rack, StepTime, SwitchTier
from parc.compiler.placement.order.search_orders import THOROUGH, SearchBudget
from parc.compiler.placement.place_ranks import place_ranks
from tests.placement.placement_plans import (
    NODE,
    NVL72,
    MegatronOrder,
    cluster,
    estimate,
    layout,
    model,
    problem,
)

Case = tuple[Cluster, Layout, Estimate]


def placed(case: Case, budget: SearchBudget = THOROUGH) -> Placement:
    """Return the placement of a random case."""
    on, of, costs = case
    return place_ranks(problem(on, model(of.pp, 64)), MegatronOrder(), of, costs, budget)


def in_pods(on: Cluster, racks_per_pod: int, oversubscription: float) -> Cluster:
    """Return the cluster with ``racks_per_pod`` racks below each pod."""
    racks = tuple(
        Rack(
            rack.name,
            tuple(replace(host, above=(f"pod{index // racks_per_pod}",)) for host in rack.hosts),
        )
        for index, rack in enumerate(on.racks)
    )
    return replace(on, racks=racks, upper=(SwitchTier("pod", oversubscription, 0.0),))


def tiny(seed: int) -> Case:
    """Draw at most 8 hosts in a few unequal racks, with idle hosts, pods, multi-host domains."""
    draw = random.Random(seed)
    node = draw.choice((NODE, NODE, replace(NVL72, nvlink_domain=draw.choice((8, 12)))))
    nodes = draw.choice((4, 6, 8, 8))
    idle = draw.choice((0, 0, 1)) if nodes < 8 else 0
    on = cluster(*_sizes(draw, nodes + idle, (1, 2, 3, 4, 5, 6)), node=node)
    on = replace(on, fabric=replace(on.fabric, oversubscription=draw.choice((1.0, 2.0, 4.0, 8.0))))
    if draw.random() < 0.4:
        on = in_pods(on, 2, draw.choice((1.0, 2.0, 4.0)))
    world = nodes * node.gpus
    pp = draw.choice([n for n in (1, 2, 3, 4, 8) if nodes % n == 0])
    tp = draw.choice([n for n in (1, 2, 4, node.gpus) if world % (n * pp) == 0])
    return on, *_job(draw, world, tp, pp)


def irregular(seed: int, most: int = 11) -> Case:
    """Draw 64 to 2**most hosts: racks with dead nodes, idle hosts, pods, oversubscription."""
    draw = random.Random(seed)
    nodes = 2 ** draw.randint(6, most)
    whole = draw.choice((8, 16, 18, 20, 32))
    idle = draw.choice((0, 0, 2, 8))
    on = cluster(*_sizes(draw, nodes + idle, (whole, whole, whole - 1, whole - 2, whole // 2)))
    on = replace(on, fabric=replace(on.fabric, oversubscription=draw.choice((1.0, 2.0, 3.0, 4.0))))
    if draw.random() < 0.5:
        on = in_pods(on, draw.choice((4, 8)), draw.choice((1.0, 2.0)))
    return on, *_job(draw, nodes * 8, 8, 2 ** draw.randint(0, 4))


def _sizes(draw: random.Random, total: int, choices: tuple[int, ...]) -> list[int]:
    sizes: list[int] = []
    while sum(sizes) < total:
        sizes.append(min(draw.choice(choices), total - sum(sizes)))
    return sizes


def _job(draw: random.Random, world: int, tp: int, pp: int) -> tuple[Layout, Estimate]:
    """Draw parallel sizes and traffic: dense, with context parallelism, or with experts."""
    dp = world // (tp * pp)
    degrees = {"tp": tp, "pp": pp, "dp": dp}
    traffic = {"tp": 1e10 if tp > 1 else 0.0}
    kind = draw.choice(("dense", "context", "experts"))
    if kind == "context" and dp % 4 == 0 and dp > 4:
        degrees |= {"cp": 4, "dp": dp // 4}
        traffic["cp"] = 10 ** draw.uniform(9, 11)
    if kind == "experts":
        stage = tp * dp
        ep = draw.choice([n for n in (2, 4, 8, 16, 32) if stage % n == 0])
        degrees |= {"ep": ep, "etp": 1}
        traffic |= {"ep": 10 ** draw.uniform(9, 11), "edp": 10 ** draw.uniform(8, 10)}
        traffic["edp"] *= stage > ep
    data = 10 ** draw.uniform(9, 11) if dp > 1 or degrees.get("cp", 1) > 1 else 0.0
    hops = 10 ** draw.uniform(8.5, 10.5) if pp > 1 else 0.0
    return layout(layers=pp, **degrees), _timed(estimate(data, hops, **traffic))


def _timed(costs: Estimate) -> Estimate:
    """Return the estimate with all traffic exposed and four times as much compute."""
    spent = {row.axis: row.bytes_per_rank / (row.gb_per_s * 1e9) for row in costs.traffic}
    data = spent.get("dp_cp", 0.0) + spent.get("edp", 0.0)
    time = StepTime(
        compute_seconds=4 * sum(spent.values()),
        recompute_seconds=0.0,
        tp_seconds=spent.get("tp", 0.0),
        cp_seconds=spent.get("cp", 0.0),
        ep_seconds=spent.get("ep", 0.0),
        pp_seconds=spent.get("pp", 0.0),
        bubble_seconds=0.0,
        dp_seconds=data,
        optimizer_seconds=0.0,
    )
    return replace(costs, time=time)
