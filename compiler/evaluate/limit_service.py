"""ServingLayout -> EngineLimits: what the engine is told, the longest request among it."""

from __future__ import annotations

from parc.compiler.cost.serving.stages import service_blocks, stage_caches
from parc.compiler.evaluate.service_rules import longest_that_fits
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.ir.serving_plan import EngineLimits


def limit_service(problem: ServingProblem, layout: ServingLayout) -> EngineLimits:
    """The limits; a max_model_len that is not pinned is the model's context, or what fits.

    vLLM does not start with more sequences than blocks where each keeps a state
    (config/compilation.py, resolve_cudagraph_mode_and_sizes), so they are at most as many.
    """
    service, stages = problem.service, stage_caches(problem, layout)
    cut, blocks = service_blocks(problem, layout), min(stage.blocks for stage in stages)
    setup = service.setup
    asked = service.max_model_len
    fits = max(longest_that_fits(problem, layout, stages), service.longest)
    longest = fits if asked is None else asked
    seqs = setup.max_running or 1
    return EngineLimits(
        max_model_len=longest,
        max_num_seqs=max(min(seqs, blocks), 1) if cut.states else seqs,
        max_num_batched_tokens=setup.max_batched_tokens or 1,
        gpu_memory_utilization=setup.memory_share or 0.0,
        block_tokens=cut.tokens,
        blocks=blocks,
        shards=layout.dcp,
        longest_blocks=cut.of_request(longest, layout.dcp) if cut.states else 0,
    )
