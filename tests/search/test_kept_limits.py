"""Services keep their limits in another sample, and occupy as few GPUs as any service that does.

PARC_SERVICES=200 sets the number of random services, PARC_SMALL_SERVICES=50 that of the small
ones, for which all layouts and numbers of replicas are tried.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any

from parc.backends.registry import engine
from parc.compiler.evaluate.evaluate_service import (
    allowed_replica_counts,
    estimate_at,
    first_missed_limit,
    objective_value,
)
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir import ServingEstimate, ServingPlan, ServingProblem
from parc.compiler.search.choose_step_tokens import with_step_tokens
from parc.compiler.search.enumerate_serving_layouts import enumerate_serving_layouts
from parc.compiler.search.simulate_finalists import SAMPLES, _simulate_samples
from parc.compiler.topology.arrange_hosts import compact_replica_counts
from tests import compiled
from tests.search.random_limits import missed_limits, random_service
from tests.search.serving_specs import planned, problem_of, spec

COUNT = int(os.environ.get("PARC_SERVICES", "3"))
FIRST = 8
"""First seed; the services of the next two are planned quickly."""
SMALL = int(os.environ.get("PARC_SMALL_SERVICES", "2"))


def test_random_services_keep_their_limits_in_another_sample() -> None:
    plans, missed = 0, {}
    for seed in range(FIRST, FIRST + COUNT):
        plan, sink = compiled.planned(random_service(seed))
        assert plan is not None or sink.failed()
        if isinstance(plan, ServingPlan) and plan.estimate.simulated is not None:
            plans += 1
            if found := missed_limits(plan, seed=11):
                missed[seed] = found
    print(f"{plans} plans of {COUNT} services; {len(missed)} miss a limit: {missed}")
    assert plans >= COUNT * 2 // 3
    assert len(missed) <= 0.05 * plans


def small_service(seed: int) -> dict[str, Any]:
    """Return the spec of a random service of few GPUs, on one cluster or on a list of them."""
    dice = Random(f"small {seed}")
    clusters = [
        {
            "node": {"base": node, "gpus_per_node": dice.choice((1, 2, 4))},
            "nodes": dice.choice((1, 2, 3)),
            "price_per_gpu_hour": price,
        }
        for node, price in (("dgx-h100", 2.5), ("l40s-8", 0.9), ("dgx-a100", 1.4))
    ]
    traffic = {
        "input_tokens": dice.choice((128, 1000, 4000)),
        "output_tokens": dice.choice((16, 100, 300)),
        "request_rate": dice.choice((0.5, 2, 6)),
    }
    goals = {
        "ttft": {dice.choice(("mean", "p90", "p99")): dice.choice(("400ms", "1s", "3s"))},
        "tpot": {dice.choice(("mean", "p90", "p99")): dice.choice(("20ms", "40ms", "90ms"))},
    }
    model = dice.choice(("llama-3.1-8b", "gemma-2-9b", "gpt-oss-20b", "qwen2.5-14b"))
    tree = spec(model, "dgx-h100", job={"traffic": traffic}, goals=goals)
    goal = dice.choice(("fewest-gpus", "lowest-cost"))
    chosen = clusters if goal == "lowest-cost" else dice.choice(clusters)
    return tree | {"cluster": chosen, "goals": {**goals, "maximize": goal}}


def fewest_gpus(problem: ServingProblem) -> float | None:
    """Return the fewest GPUs of any layout and number of replicas within all limits."""
    # Tensor parallelism between hosts is allowed only if nothing else is within the limits.
    inside = _fewest_gpus(problem, problem.cluster.node.nvlink_or_host_gpus)
    return _fewest_gpus(problem, None) if inside is None else inside


def _fewest_gpus(problem: ServingProblem, widest: int | None) -> float | None:
    """Return the fewest GPUs of layouts whose tensor parallel size is at most ``widest``."""
    target = engine(problem.framework)
    rules, best = service_rules(problem, target), None
    for layout in enumerate_serving_layouts(problem, target, widest):
        if any(rule.broken(problem, layout) for rule in rules):
            continue
        counts = allowed_replica_counts(problem, layout)
        for count in compact_replica_counts(layout, problem.cluster.node.gpus, list(counts)):
            found = estimate_at(problem, replace(layout, replicas=count))
            gpus = objective_value(problem, found)[0]
            if (best is None or gpus < best) and _is_within_limits(problem, found):
                best = gpus
    return best


def _is_within_limits(problem: ServingProblem, found: ServingEstimate) -> bool:
    if first_missed_limit(problem, found) is not None:
        return False
    return _simulate_samples(problem, found, list(SAMPLES), len(SAMPLES))[0] is not None


def _step_choices(problem: ServingProblem, plan: ServingPlan | None) -> list[ServingProblem]:
    """Return the problem with the default number of tokens per step, and with that of the plan."""
    chosen = plan and plan.search.step_tokens and plan.search.step_tokens.chosen
    return [problem, with_step_tokens(problem, chosen)] if chosen else [problem]


def test_small_services_occupy_as_few_gpus_as_the_best_of_all_layouts() -> None:
    compared, different = 0, {}
    for seed in range(SMALL):
        tree = small_service(seed)
        plan, _ = planned(tree)
        clusters = tree["cluster"] if isinstance(tree["cluster"], list) else [tree["cluster"]]
        values = []
        for cluster in clusters:
            problem = problem_of(tree | {"cluster": cluster})
            gpus = min(filter(None, map(fewest_gpus, _step_choices(problem, plan))), default=None)
            price = problem.cluster.price_per_gpu_hour or 0.0
            if gpus is not None and gpus <= problem.cluster.gpus:
                values.append(gpus * price)
        expected = min(values, default=None)
        found = None if plan is None else plan.cost_per_hour
        compared += expected is not None
        if found != expected:
            different[seed] = (found, expected)
    print(f"{compared} services with a valid plan of {SMALL}; different: {different}")
    assert different == {}
    assert compared >= SMALL // 2
