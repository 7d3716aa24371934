"""Rules for a valid Megatron layout, in the order in which they are evaluated."""

from __future__ import annotations

from parc.backends.megatron.rules.context import CONTEXT_RULES
from parc.backends.megatron.rules.data import data_rules
from parc.backends.megatron.rules.experts import expert_rules
from parc.backends.megatron.rules.graphs import GRAPH_RULES
from parc.backends.megatron.rules.inexpressible_features import inexpressible_feature_rules
from parc.backends.megatron.rules.mesh import MESH_RULES
from parc.backends.megatron.rules.mixer import mixer_rules
from parc.backends.megatron.rules.pipeline import PIPELINE_RULES
from parc.backends.megatron.rules.precision import precision_rules
from parc.backends.megatron.rules.recompute import RECOMPUTE_RULES
from parc.backends.megatron.rules.sequence import SEQUENCE_RULES
from parc.backends.megatron.rules.sharding import SHARDING_RULES
from parc.backends.megatron.rules.split import split_rules
from parc.backends.megatron.rules.tokenizer import tokenizer_rules
from parc.backends.megatron.rules.weight_shards import WEIGHT_SHARD_RULES
from parc.compiler.ir import Problem
from parc.compiler.ir.rule import Rule


def megatron_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules that a layout must satisfy.

    Rules that no layout of the model in ``problem`` can violate are left out.
    """
    return (
        # Features without a flag come first: no change of the layout can help.
        *inexpressible_feature_rules(problem),
        *tokenizer_rules(problem),
        *data_rules(problem),
        *MESH_RULES,
        *WEIGHT_SHARD_RULES,
        *mixer_rules(problem),
        *expert_rules(problem),
        *SEQUENCE_RULES,
        *CONTEXT_RULES,
        *split_rules(problem),
        *PIPELINE_RULES,
        *RECOMPUTE_RULES,
        *GRAPH_RULES,
        *SHARDING_RULES,
        *precision_rules(problem),
    )
