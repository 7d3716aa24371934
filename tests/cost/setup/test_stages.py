"""Contents of pipeline stages."""

from __future__ import annotations

from parc.backends.megatron.stages.split import find_split
from parc.compiler.cost.setup.stages import recomputed_layers, stage_contents
from parc.compiler.ir import NO_RECOMPUTE, Recompute
from tests.search.search_reference import cost_model_of

SPEC = {
    "parc": 1,
    "name": "stages",
    "model": "deepseek-v3",
    "cluster": {"node": "dgx-h100", "nodes": 256},
    "job": {"sequence_length": 4096, "global_batch": 4096},
}


def test_block_recompute_counts_the_first_layers_of_each_chunk_by_their_kind() -> None:
    problem = cost_model_of(SPEC).problem
    model = problem.model
    dense, routed = model.kinds
    split = find_split(problem, 4, 2)
    assert split is not None
    for stage, count in ((0, 2), (0, 5), (3, 2), (3, 100)):
        load, chunks = stage_contents(model, split, stage), split.chunks[stage]
        block = Recompute("full", (), "block", count)
        again = recomputed_layers(model, block, load, chunks)
        firsts = [min(count, chunk.layers) for chunk in chunks]
        leading = min(firsts[0], 3) if stage == 0 else 0
        assert again == {
            kind: layers
            for kind, layers in ((dense, leading), (routed, sum(firsts) - leading))
            if kind in load.layers_by_kind(model)
        }
        assert recomputed_layers(model, NO_RECOMPUTE, load, chunks) == load.layers_by_kind(model)


def test_block_recompute_leaves_out_prediction_layers() -> None:
    problem = cost_model_of(SPEC | {"model": {"base": "deepseek-v3", "mtp_layers": 1}}).problem
    split = find_split(problem, 4, 1)
    assert split is not None
    load = stage_contents(problem.model, split, 3)
    again = recomputed_layers(
        problem.model, Recompute("full", (), "block", 100), load, split.chunks[3]
    )
    assert load.mtp_layers > 0
    assert sum(again.values()) == load.layers < sum(load.layers_by_kind(problem.model).values())
