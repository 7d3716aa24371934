"""Families D, S and M where the model has experts, or expert degrees without them."""

from __future__ import annotations

from parc.backends.megatron.legal_values import divisors, legal, listed, nearest, pin
from parc.backends.megatron.rules_dispatch import DISPATCH_RULES
from parc.backends.megatron.rules_express import linear_bias
from parc.backends.megatron.rules_mesh import EXPERT_MESH_RULE
from parc.backends.megatron.rules_sequence import EXPERT_SEQUENCE_RULE
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Experts, Layout, Problem
from parc.compiler.ir.rule import Rule


def _experts_of(problem: Problem) -> Experts:
    """The experts; these rules are only asked where there are some."""
    if problem.model.experts is None:
        raise ValueError("a rule about experts was asked about a dense model")
    return problem.model.experts


def _divide_broken(problem: Problem, layout: Layout) -> bool:
    return _experts_of(problem).count % layout.ep != 0


def _divide(problem: Problem, layout: Layout) -> Finding:
    count, ep = _experts_of(problem).count, layout.ep
    good = legal(divisors(count), lambda value: problem.cluster.gpus % value == 0)
    return Finding(
        message=f"{count} experts cannot be split over ep={ep}",
        label=f"{count} % {ep} = {count % ep}, must be 0",
        help=f"legal ep: {listed(good)}",
        fix=pin("layout.ep", nearest(good, ep)),
        causes=(Cause("model.experts.count", f"{count} experts"),),
    )


def _bias_broken(problem: Problem, layout: Layout) -> bool:
    return layout.etp > 1


def _bias(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"experts with biases cannot be split over etp={layout.etp}",
        label=f"etp {layout.etp}, must be 1",
        help="legal etp: 1",
        fix="layout.etp: 1",
        causes=(Cause("model", "linear layers carry biases"),),
    )


def _gradient_broken(problem: Problem, layout: Layout) -> bool:
    experts = _experts_of(problem)
    return experts.top_k == 1 and experts.score_function == "softmax" and not experts.pre_softmax


def _gradient(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="the softmax over one chosen expert has no gradient",
        label="top_k 1, score_function softmax, pre_softmax false",
        help="legal with top_k 1: pre_softmax true, or score_function sigmoid",
        fix="model.experts.pre_softmax: true",
    )


def _dense_ep_broken(problem: Problem, layout: Layout) -> bool:
    return layout.ep > 1


def _dense_ep(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"ep={layout.ep} splits experts, but the model has none",
        label=f"ep {layout.ep} with 0 experts, must be 1",
        help="legal ep: 1",
        fix="layout.ep: 1",
        causes=(Cause("model", f"{problem.model.name} is dense"),),
    )


def expert_rules(problem: Problem) -> tuple[Rule, ...]:
    """The rules that matter for this model."""
    experts = problem.model.experts
    if experts is None:
        dense = Rule("M01", ("layout.ep", "model"), _dense_ep_broken, _dense_ep, ("ep",))
        return (dense, EXPERT_MESH_RULE)
    rules = [
        Rule("D08", ("layout.ep", "model.experts.count"), _divide_broken, _divide, ("ep",)),
        EXPERT_MESH_RULE,
        EXPERT_SEQUENCE_RULE,
        *DISPATCH_RULES,
    ]
    rules.append(
        Rule("M06", ("model.experts.pre_softmax", "model"), _gradient_broken, _gradient, ())
    )
    if linear_bias(problem.model):
        rules.append(Rule("M02", ("layout.etp", "model"), _bias_broken, _bias, ("etp",)))
    return tuple(rules)
