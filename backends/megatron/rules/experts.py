"""Rules on experts; for dense models, rules on the expert parallel sizes."""

from __future__ import annotations

from parc.backends.megatron.rules.dispatch import DISPATCH_RULES
from parc.backends.megatron.rules.inexpressible_features import needs_linear_bias_flag
from parc.backends.megatron.rules.mesh import EXPERT_MESH_RULE
from parc.backends.megatron.rules.sequence import EXPERT_SEQUENCE_RULE
from parc.backends.shared.common_rules import EXPERT_COUNT, NO_EXPERTS, experts_of
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def _violates_bias_with_etp(problem: Problem, layout: Layout) -> bool:
    # TransformerConfig.__post_init__ rejects biases in experts unless etp is 1.
    return layout.etp > 1


def _explain_bias_with_etp(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"Megatron cannot split experts with biases over etp={layout.etp}",
        label=f"etp {layout.etp}, must be 1",
        help="valid etp: 1",
        fix="layout.etp: 1",
        causes=(Cause("model", f"{problem.model.name} has biases in linear layers"),),
    )


def _violates_router_gradient(problem: Problem, layout: Layout) -> bool:
    experts = experts_of(problem)
    return experts.top_k == 1 and experts.score_function == "softmax" and not experts.pre_softmax


def _explain_router_gradient(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="the router gets no gradient: a softmax over a single chosen expert is always 1",
        label="top_k 1, score_function softmax, pre_softmax false",
        help="with top_k 1, set pre_softmax: true or score_function: sigmoid",
        fix="model.experts.pre_softmax: true",
    )


def expert_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules about experts that this model can violate."""
    experts = problem.model.experts
    if experts is None:
        return (NO_EXPERTS, EXPERT_MESH_RULE)
    rules = [
        EXPERT_COUNT,
        EXPERT_MESH_RULE,
        EXPERT_SEQUENCE_RULE,
        *DISPATCH_RULES,
    ]
    rules.append(
        Rule(
            "M06",
            ("model.experts.pre_softmax", "model"),
            _violates_router_gradient,
            _explain_router_gradient,
            (),
        )
    )
    if needs_linear_bias_flag(problem.model):
        rules.append(
            Rule(
                "M02",
                ("layout.etp", "model"),
                _violates_bias_with_etp,
                _explain_bias_with_etp,
                ("etp",),
            )
        )
    return tuple(rules)
