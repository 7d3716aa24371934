"""Parallelize a model as configured in fsdp/config.json: device mesh, tensor parallelism, activation
checkpointing, then DDP or FSDP2 (fully_shard). Import ``build_mesh`` and ``apply`` in your own program,
or run train.py in this folder.
"""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

CONFIG = json.loads(Path(__file__).with_name("config.json").read_text("utf-8"))
MESH = CONFIG["mesh"]
AXES = ("dp_replicate", "dp_shard", "tp")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def build_mesh(device: str) -> DeviceMesh:
    """Return the planned mesh, with tp fastest; exit if the job has another number of ranks."""
    sizes = tuple(MESH[axis] for axis in AXES)
    ranks = sizes[0] * sizes[1] * sizes[2]
    if dist.get_world_size() != ranks:
        raise SystemExit(f"the plan needs {ranks} ranks, the job has {dist.get_world_size()}")
    mesh = init_device_mesh(device, sizes, mesh_dim_names=AXES)
    rank, tp, shard = dist.get_rank(), MESH["tp"], MESH["dp_shard"]
    planned = [rank // (tp * shard), rank // tp % shard, rank % tp]
    if list(mesh.get_coordinate()) != planned:
        raise SystemExit(f"rank {rank} has coordinates {mesh.get_coordinate()}, planned: {planned}")
    return mesh


def data_parallel_place(mesh: DeviceMesh) -> tuple[int, int]:
    """Return this rank's index among the data-parallel ranks, and their number."""
    replicate, shard, _ = mesh.get_coordinate()
    return replicate * MESH["dp_shard"] + shard, MESH["dp_replicate"] * MESH["dp_shard"]


def blocks_of(model: nn.Module) -> nn.ModuleList:
    """Return the list of the model's blocks; exit if no list has as many as the plan."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for found in lists:  # outer modules come first, so lists inside a block are not found
        if len(found) == CONFIG["layers"]:
            return found
    raise SystemExit(
        f"the plan has {CONFIG['layers']} blocks; the lists in {type(model).__name__} have "
        f"{sorted({len(found) for found in lists})}: compile a spec of this model"
    )


def apply(model: nn.Module, mesh: DeviceMesh, dtype: torch.dtype | None = None) -> nn.Module:
    """Parallelize ``model`` over ``mesh``; ``dtype`` replaces the planned format.

    The model may be on the meta device. With tp > 1 and sequence parallelism, its modules must have the
    names of PARC's own decoder; otherwise adapt ``TENSOR_PLAN``. With tp > 1 and without sequence
    parallelism, it must be a model of transformers, whose own plan is used.
    """
    blocks = blocks_of(model)
    if MESH["tp"] > 1:
        split_tensors(model, mesh["tp"])
    if CONFIG["activation_checkpointing"] == "full":
        for place, block in enumerate(blocks):
            blocks[place] = checkpoint_wrapper(block)
    if CONFIG["strategy"] == "ddp":
        return model  # DDP needs real weights, so replicate() wraps the model later
    policy = MixedPrecisionPolicy(
        param_dtype=dtype or DTYPES[CONFIG["param_dtype"]],
        reduce_dtype=dtype or DTYPES[CONFIG["reduce_dtype"]],
    )
    dp = mesh["dp_replicate", "dp_shard"] if MESH["dp_replicate"] > 1 else mesh["dp_shard"]
    reshard = CONFIG["reshard_after_forward"]
    for block in blocks:
        fully_shard(block, mesh=dp, mp_policy=policy, reshard_after_forward=reshard)
    # the root unit has the embedding and the head, and keeps them gathered until backward
    return fully_shard(model, mesh=dp, mp_policy=policy, reshard_after_forward=reshard)


def place_part(weight: torch.Tensor, whole: torch.Tensor) -> None:
    """Copy this rank's part of ``whole`` into ``weight``, which may be a DTensor."""
    if isinstance(weight, DTensor):
        device = weight.to_local().device
        mesh, placements = weight.device_mesh, weight.placements
        part = distribute_tensor(whole.to(device), mesh, placements, src_data_rank=None)
        weight.to_local().copy_(part.to_local())
    else:
        weight.copy_(whole)


def replicate(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Wrap the model in DDP over all ranks, each of which keeps the whole state."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    group = mesh["dp_replicate"].get_group()
    wrapped = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    if CONFIG["reduce_dtype"] == "bf16":
        wrapped.register_comm_hook(group, bf16_compress_hook)
    return wrapped


ROOT_PLAN = {
    "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}
TENSOR_PLAN = {
    "attention_norm": SequenceParallel(),
    "attention": PrepareModuleInput(
        input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
    ),
    "attention.wq": ColwiseParallel(),
    "attention.wk": ColwiseParallel(),
    "attention.wv": ColwiseParallel(),
    "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
    "ffn_norm": SequenceParallel(),
    "feed_forward": PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
    ),
    "feed_forward.w1": ColwiseParallel(),
    "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
    "feed_forward.w3": ColwiseParallel(),
}
"""Tensor-parallel plan of a block: split by columns, then by rows; norms use sequence parallelism."""


def split_tensors(model: nn.Module, mesh: DeviceMesh) -> None:
    """Apply tensor parallelism over ``mesh``: the plan above, or the own plan of a transformers model."""
    if not CONFIG["sequence_parallel"]:
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism

        if not getattr(model, "tp_plan", None):
            raise SystemExit(f"{type(model).__name__} has no tensor-parallel plan: compile a spec with tp 1")
        apply_tensor_parallelism(model, mesh)
        model.tie_weights()  # a tied weight has been split twice
        return
    parallelize_module(model, mesh, ROOT_PLAN)
    for block in blocks_of(model):
        parallelize_module(block, mesh, TENSOR_PLAN)
