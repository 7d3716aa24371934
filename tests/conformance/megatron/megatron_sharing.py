"""Weights that data-parallel ranks share, for the checking program (Megatron-Core 0.19)."""

from __future__ import annotations

from argparse import Namespace
from typing import Any


def sharing(args: Namespace) -> tuple[int, int]:
    """Return the numbers of ranks that share dense weights and experts; 1 before 0.19."""
    dense = getattr(args, "gtp_weight_remat_size", 1)
    return dense, getattr(args, "expert_gtp_weight_remat_size", 1)


def sharing_parameters(args: Namespace) -> dict[str, int]:
    """Return the parameters of initialize_model_parallel, which does not have them before 0.19."""
    sizes = zip(("gtp_remat_size", "expert_gtp_remat_size"), sharing(args), strict=True)
    return dict(sizes) if max(sharing(args)) > 1 else {}


def sharing_groups(state: Any) -> dict[str, Any]:
    """Return the groups that exist only if ranks share weights."""
    made = {}
    if state.get_gtp_weight_remat_world_size() > 1:
        apart = {"with_gtp_remat": False}
        made["gtp"] = state.get_gtp_weight_remat_group()
        made["dp-shard"] = state.get_data_parallel_group(**apart)
        made["dp-shard-cp"] = state.get_data_parallel_group(with_context_parallel=True, **apart)
    if state.get_expert_gtp_weight_remat_world_size() > 1:
        made["egtp"] = state.get_expert_gtp_weight_remat_group()
        made["edp-shard"] = state.get_expert_data_parallel_group(with_gtp_remat=False)
        whole = state.get_expert_tensor_model_pipeline_parallel_group(with_egtp_remat=True)
        made["etp-ep-egtp-pp"] = whole
    return made
