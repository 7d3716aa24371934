"""Layouts that Minserve cannot run, each with the finding that a user reads."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import ServingLayout
from parc.compiler.ir.serving_plan import ServingProblem, ServingRule

TARGETS = ("minserve",)


def _key_value_heads(problem: ServingProblem) -> int:
    """Return the heads that tp divides; latent attention has keys and values in each head."""
    attention = problem.model.attention
    return attention.heads if attention.latent is not None else attention.kv_heads


def _splits_heads(problem: ServingProblem, layout: ServingLayout) -> bool:
    return _key_value_heads(problem) % layout.tp != 0


def _explain_heads(problem: ServingProblem, layout: ServingLayout) -> Finding:
    heads, tp = _key_value_heads(problem), layout.tp
    valid = [degree for degree in range(1, heads + 1) if heads % degree == 0]
    below = max(degree for degree in valid if degree <= tp)
    return Finding(
        f"{heads} heads of keys and values are not divisible by tensor parallel size {tp}",
        label=f"{heads} % {tp} = {heads % tp}, must be 0, because Minserve does not copy heads",
        help=f"valid values for tp: {', '.join(map(str, valid))}",
        fix=f"layout.tp: {below}",
        causes=(Cause("model.kv_heads", f"{heads} heads of keys and values"),),
        targets=TARGETS,
    )


def _leaves_host(problem: ServingProblem, layout: ServingLayout) -> bool:
    return layout.tp > problem.cluster.node.gpus


def _explain_host(problem: ServingProblem, layout: ServingLayout) -> Finding:
    gpus = problem.cluster.node.gpus
    return Finding(
        f"a tensor-parallel group of {layout.tp} GPUs does not fit on a host of {gpus} GPUs",
        label=f"tp {layout.tp} > {gpus}: Minserve exchanges tensors in the memory of one host",
        help=f"valid values for tp: 1 to {gpus}; increase dp to use more hosts",
        fix=f"layout.tp: {gpus}",
        causes=(Cause("cluster.node", f"{gpus} GPUs per host"),),
        targets=TARGETS,
    )


RULES: tuple[ServingRule, ...] = (
    ServingRule("V05", ("layout.tp", "cluster.node"), _leaves_host, _explain_host),
    ServingRule("D02", ("layout.tp", "model"), _splits_heads, _explain_heads),
)
"""Rules in the order in which the search counts violations."""
