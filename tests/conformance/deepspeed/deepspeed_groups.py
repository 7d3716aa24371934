"""Groups that DeepSpeed builds for a rank: of its topology, of experts, of hpZ."""

from __future__ import annotations

import os
from typing import Any

from case_lines import Case
from mesh_checker import ranks_of


def join_as_rank(rank: int, world: int) -> None:
    """Initialize DeepSpeed as this rank of this world, on torch's fake backend."""
    import deepspeed
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank % 8), WORLD_SIZE=str(world))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29499")
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    deepspeed.init_distributed(verbose=False)


def topology(case: Case) -> Any:
    """Return DeepSpeed's order of ranks for pipelines."""
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    pp, mp = case.get("pp", 1), case.get("mp", 1)
    return PipeModelDataParallelTopology(num_pp=pp, num_mp=mp, num_dp=case["world"] // (pp * mp))


def groups_of_rank(case: Case) -> dict[str, list[int]]:
    """Return the groups of the rank, in the order that DeepSpeed gives them.

    "pipe", "data" and "model" of the topology; and, if the case has them, "ep" and "edp" of
    experts, "hpz" of secondary weights, "autotp" with "autotp-data", and "sp" with "sp-data".
    """
    rank, config = case.get("rank", 0), case["config"]
    grid = topology(case)
    found = {axis: containing(grid.get_axis_comm_lists(axis), rank) for axis in grid.axes}
    if case.get("ep", 1) > 1:
        found |= expert_groups(case)
    if (hpz := config.get("zero_optimization", {}).get("zero_hpz_partition_size", 1)) > 1:
        found["hpz"] = hpz_group(hpz)
    if (tp := config.get("tensor_parallel", {}).get("autotp_size", 0)) > 1:
        found |= autotp_groups(tp)
    if config.get("sequence_parallel_size", 1) > 1 and "data_parallel_size" in config:
        found |= sequence_groups(config["data_parallel_size"], config["sequence_parallel_size"])
    return found


def containing(groups: list[list[int]], rank: int) -> list[int]:
    """Return the group of a rank, or only the rank if the axis has size 1, for which DeepSpeed
    builds no groups.
    """
    return next((list(group) for group in groups if rank in group), [rank])


def expert_groups(case: Case) -> dict[str, list[int]]:
    """Return the groups of experts: created ones, or DeepSpeed's table of ranks if it would need a
    model-parallel state.
    """
    from deepspeed.utils import groups

    ep, mp, pp = case["ep"], case.get("mp", 1), case.get("pp", 1)
    swapped = bool(case["config"].get("use_data_before_expert_parallelism", False))
    if mp == 1:
        order = {"use_data_before_expert_parallel_": swapped}
        groups._create_expert_and_data_parallel(ep, pp_size=pp, **order)
        name = f"ep_size_{ep}"
        return {
            "ep": list(groups._get_expert_parallel_group_ranks(name)),
            "edp": list(groups._get_expert_data_parallel_group_ranks(name)),
        }
    experts, replicas = groups._get_expert_parallel_ranks(case["world"], mp, ep, pp, swapped)
    rank = case.get("rank", 0)
    return {"ep": containing(experts, rank), "edp": containing(replicas, rank)}


def hpz_group(size: int) -> list[int]:
    """Return the ranks that share one secondary copy of the weights."""
    from deepspeed.utils import groups

    groups._create_zero_param_parallel_group(size)
    return ranks_of(groups._get_zero_param_intra_parallel_group())


def autotp_groups(size: int) -> dict[str, list[int]]:
    from deepspeed.utils import groups

    groups._init_tp_mesh_device(size)
    return {
        "autotp": ranks_of(groups.get_tensor_model_parallel_group()),
        "autotp-data": ranks_of(groups.get_data_parallel_group()),
    }


def sequence_groups(dp: int, sp: int) -> dict[str, list[int]]:
    """Return the groups of the mesh that deepspeed.initialize builds if both sizes are in the
    config.
    """
    from deepspeed import comm

    mesh = comm.initialize_mesh_device((dp, sp), ("data_parallel", "sequence_parallel"))
    return {
        "sp": ranks_of(mesh.get_group(mesh_dim="sequence_parallel")),
        "sp-data": ranks_of(mesh.get_group(mesh_dim="data_parallel")),
    }
