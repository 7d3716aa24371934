"""ServingLayout -> EngineLimits: what the engine is told, the longest request among it."""

from __future__ import annotations

from parc.compiler.cost.serving_stages import stage_caches
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.ir.serving_plan import EngineLimits
from parc.compiler.passes.service_rules import longest_that_fits


def limit_service(problem: ServingProblem, layout: ServingLayout) -> EngineLimits:
    """The limits; a max_model_len that is not pinned is the model's context, or what fits."""
    service, stages = problem.service, stage_caches(problem, layout)
    setup = service.setup
    asked = service.max_model_len
    fits = max(longest_that_fits(problem, layout, stages), service.longest)
    return EngineLimits(
        max_model_len=fits if asked is None else asked,
        max_num_seqs=setup.max_running or 1,
        max_num_batched_tokens=setup.max_batched_tokens or 1,
        gpu_memory_utilization=setup.memory_share or 0.0,
        block_tokens=service.block_tokens,
        blocks=min(stage.blocks for stage in stages),
        shards=layout.dcp,
    )
