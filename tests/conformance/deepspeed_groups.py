"""The groups that DeepSpeed makes for a rank: of its topology, of experts, of hpZ."""

from __future__ import annotations

import os
from typing import Any

from case_lines import Case


def rehearse(rank: int, world: int) -> None:
    """Be that rank of that world, on torch's fake backend."""
    import deepspeed
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank % 8), WORLD_SIZE=str(world))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29499")
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    deepspeed.init_distributed(verbose=False)


def topology(case: Case) -> Any:
    """The order of ranks that DeepSpeed has for pipelines."""
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    pp, mp = case.get("pp", 1), case.get("mp", 1)
    return PipeModelDataParallelTopology(num_pp=pp, num_mp=mp, num_dp=case["world"] // (pp * mp))


def groups_of_rank(case: Case) -> dict[str, list[int]]:
    """Groups of the rank: "pipe", "data", "model"; "ep", "edp" and "hpz" where there are any."""
    rank, ep = case.get("rank", 0), case.get("ep", 1)
    grid = topology(case)
    found = {axis: containing(grid.get_axis_comm_lists(axis), rank) for axis in grid.axes}
    if ep > 1:
        found |= expert_groups(case, ep)
    hpz = case["config"].get("zero_optimization", {}).get("zero_hpz_partition_size", 1)
    if hpz > 1:
        found["hpz"] = hpz_group(hpz)
    return found


def containing(groups: list[list[int]], rank: int) -> list[int]:
    """The group of a rank; alone where the axis has size 1 and DeepSpeed makes no groups."""
    return next((list(group) for group in groups if rank in group), [rank])


def expert_groups(case: Case, ep: int) -> dict[str, list[int]]:
    """Groups of experts, from the function that creates them (utils/groups.py)."""
    from deepspeed.utils import groups

    sizes = (case["world"], case.get("mp", 1), ep, case.get("pp", 1))
    swapped = bool(case["config"].get("use_data_before_expert_parallelism", False))
    experts, replicas = groups._get_expert_parallel_ranks(*sizes, swapped)
    rank = case.get("rank", 0)
    return {"ep": containing(experts, rank), "edp": containing(replicas, rank)}


def hpz_group(size: int) -> list[int]:
    """The ranks that hold one secondary copy of the weights."""
    import torch.distributed as dist
    from deepspeed.utils import groups

    groups._create_zero_param_parallel_group(size)
    return list(dist.get_process_group_ranks(groups._get_zero_param_intra_parallel_group()))
