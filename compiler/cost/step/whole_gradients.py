"""Costs of programs whose ranks keep and reduce whole gradients at ZeRO stage 1, as nanotron does.

Only the state of the optimizer is sharded. Every rank adds the gradients of each micro-batch to
sums in fp32, all-reduces the sums, scales all of them to clip their norm, and clears them. After
the optimizer step, the ranks gather the weights tensor by tensor (nanotron, trainer.py and
optim/clip_grads.py, gradient_accumulator.py, zero.py).
"""

from __future__ import annotations

from parc.compiler.cost.counts.launches import ATTENTION_MODULES, MLP_MODULES
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.links import GroupSpan
from parc.compiler.ir import Layout

CLIP_BYTES = 16.0
"""Bytes moved per gradient after the reduction: the sum is read for its norm, read and written to
be scaled, and written to be cleared."""
GATHER_BYTES = 12.0
"""Bytes moved per gathered weight beside the transfer. All weights are copied three times in
16 bit: to a buffer with the parts of each rank in one piece, from the buffer of the collective to
this buffer, and back to the weights (nanotron, distributed.py, all_gather_coalesced)."""
SIXTEEN_BIT = 2.0
"""Bytes per gradient of a micro-batch."""
BUCKET_BYTES = 25 * 2**20
"""16-bit gradients that are reduced together (nanotron's ddp_bucket_cap_mb, and the default of
torch's DistributedDataParallel)."""
TENSOR_OPERATORS = 3
"""Operators that the host calls per weight tensor and step: norm and scaling of the gradient, and
the copy of the updated weight to 16 bit."""
NORMS = 2
"""Norms of a layer."""
PART_OPERATORS = 1
"""Operators that the host calls per weight tensor and rank of the data-parallel group, to copy the
gathered part of the tensor."""


def keeps_whole_gradients(cost_model: CostModel, layout: Layout) -> bool:
    """Return True if ranks reduce whole gradients, although only the optimizer state is sharded."""
    return layout.zero_stage <= 1 and cost_model.efficiency.whole_gradients


def whole_reduction_seconds(cost_model: CostModel, parameters: float, group: GroupSpan) -> float:
    """Return the seconds to all-reduce the sums of ``parameters`` gradients in ``group``.

    The time is not reduced by overlap with computation.
    """
    buckets = max(1.0, parameters * SIXTEEN_BIT / BUCKET_BYTES)
    nbytes = cost_model.problem.job.gradient_bytes * parameters / buckets
    return buckets * cost_model.links.collective_seconds("all_reduce", nbytes, group)


def whole_update_seconds(cost_model: CostModel, layout: Layout, parameters: float) -> float:
    """Return the seconds per step in which a rank clips gradients and copies gathered weights.

    ``parameters`` is the number of parameters of the largest pipeline stage on one rank. The time
    does not include the transfer of the weights and the optimizer.
    """
    row = cost_model.efficiency
    ranks = layout.optimizer_shards[0] if layout.zero_stage else 1
    moved = CLIP_BYTES + (GATHER_BYTES if ranks > 1 else 0.0)
    rate = cost_model.problem.cluster.gpu.memory_gb_per_s * 1e9 / row.stream
    parts = PART_OPERATORS * ranks if ranks > 1 else 0
    operators = weight_tensors(cost_model, layout) * (TENSOR_OPERATORS + parts)
    return moved * parameters / rate + row.launch_seconds * operators


def weight_tensors(cost_model: CostModel, layout: Layout) -> float:
    """Return the number of weight tensors of a pipeline rank: linear layers and norms."""
    layers = cost_model.problem.model.layers / layout.pp
    return layers * (ATTENTION_MODULES + MLP_MODULES + NORMS)
