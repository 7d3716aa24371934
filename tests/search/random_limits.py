"""Random services with limits on latency, and the limits that their plans miss in a new sample."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.simulation.simulate import Sampling, simulate
from parc.compiler.evaluate.simulated_limits import simulated_value
from parc.compiler.ir import ServingPlan

MODELS = (
    *("llama-3.1-8b", "llama-3.1-8b", "qwen2.5-32b", "llama-3.1-70b", "gemma-2-9b"),
    *("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite"),
)
NODES = ("dgx-h100", "hgx-h200", "dgx-a100", "l40s-8", "dgx-b200")
ENGINES = ("vllm", "sglang", "tensorrt-llm")
STATISTICS = ("mean", "p50", "p90", "p99")


def random_service(seed: int) -> dict[str, Any]:
    """Return the spec of a random service with limits; some specs have no valid plan."""
    dice = Random(f"limits {seed}")
    traffic: dict[str, Any] = {
        "input_tokens": dice.choice((200, 1000, 2000, 8000)),
        "output_tokens": dice.choice((30, 150, 500, 1000)),
    }
    if dice.random() < 0.6:
        # Otherwise PARC searches for the largest rate within the limits.
        traffic["request_rate"] = dice.choice((0.5, 2, 5, 12))
    if dice.random() < 0.5:
        traffic["lengths"] = {"input_cv": dice.choice((0.3, 1)), "output_cv": dice.choice((0.5, 1))}
    if dice.random() < 0.2:
        traffic["burstiness"] = dice.choice((0.5, 2))
    if dice.random() < 0.3:
        traffic["prefix_hit"] = "40%"
    return {
        "parc": 1,
        "name": f"limits-{seed}",
        "model": dice.choice(MODELS),
        "cluster": {"node": dice.choice(NODES), "nodes": dice.choice((1, 2, 4))},
        "job": {
            "kind": "serve",
            "traffic": traffic,
            "checkpoint": "/models/own",
            "precision": "bf16",
        },
        "goals": _goals(dice),
        "emit": [ENGINES[seed % len(ENGINES)]],
    }


def _goals(dice: Random) -> dict[str, Any]:
    times = {
        "ttft": dice.choice(("500ms", "1s", "3s")),
        "tpot": dice.choice(("25ms", "50ms", "100ms")),
    }
    if dice.random() < 0.2:
        return {**times, "goodput": dice.choice(("90%", "95%", "99%"))}
    names = dice.choice((("ttft",), ("tpot",), ("ttft", "tpot"), ("ttft", "tpot")))
    return {name: {dice.choice(STATISTICS): times[name]} for name in names}


def missed_limits(plan: ServingPlan, seed: int) -> list[tuple[str, float]]:
    """Return (limit, simulated value / limit) of the limits that another sample misses.

    For a share of requests, the second value is the share of the goal divided by the simulated one.
    """
    problem, goals = plan.problem, plan.problem.goals
    service = problem.service
    rate = plan.estimate.solved_request_rate or service.traffic.request_rate
    deployment = build_deployment(problem.model, problem.cluster, service.setup, plan.layout)
    each = {one.latency: one.seconds for one in goals.latency_limits if one.statistic == "each"}
    traffic = replace(service.traffic, request_rate=rate)
    found = simulate(deployment, traffic, Sampling(seed=seed), each)
    assert found is not None
    missed = []
    for limit in goals.latency_limits:
        ratio = simulated_value(found, limit) / limit.seconds
        if limit.statistic == "each":
            ratio = (goals.goodput or 0.0) / max(found.within_limits or 0.0, 1e-9)
        if ratio > 1:
            missed.append((limit.text, ratio))
    return missed
