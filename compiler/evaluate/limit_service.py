"""Serving layout -> limits that the engine is started with, the maximum request length included."""

from __future__ import annotations

from parc.compiler.cost.serving.stages import service_blocks, stage_caches
from parc.compiler.evaluate.service_rules import longest_that_fits
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.ir.serving_plan import EngineLimits


def limit_service(problem: ServingProblem, layout: ServingLayout) -> EngineLimits:
    """Return the limits; without a pin, max_model_len is the model's context or the most that fits.

    If requests store states in blocks, there are at most as many sequences as blocks, because each
    needs one. vLLM refuses to start otherwise (config/compilation.py,
    resolve_cudagraph_mode_and_sizes).
    """
    service, stages = problem.service, stage_caches(problem, layout)
    divided, blocks = service_blocks(problem, layout), min(stage.blocks for stage in stages)
    setup = service.setup
    pinned = service.max_model_len
    fits = max(longest_that_fits(problem, layout, stages), service.longest)
    longest = fits if pinned is None else pinned
    seqs = setup.max_running or 1
    return EngineLimits(
        max_model_len=longest,
        max_num_seqs=max(min(seqs, blocks), 1) if divided.states else seqs,
        max_num_batched_tokens=setup.max_batched_tokens or 1,
        gpu_memory_utilization=setup.memory_share or 0.0,
        block_tokens=divided.tokens,
        blocks=blocks,
        shards=layout.dcp,
        longest_blocks=divided.of_request(longest, layout.dcp) if divided.states else 0,
    )
