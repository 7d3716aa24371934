"""The real engine of DeepSpeed around a small model, on torch's fake backend."""

from __future__ import annotations

from typing import Any

from case_lines import Case
from deepspeed_groups import topology

HIDDEN, LAYERS = 16, 8


def build_engine(case: Case, config: dict[str, Any]) -> dict[str, Any]:
    """Build the engine as the training code does, and return its properties."""
    import deepspeed

    use_torch_adam(config)
    model = toy_model(case)
    parameters = list(model.parameters())
    if case.get("ep", 1) > 1:
        from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

        parameters = split_params_into_different_moe_groups_for_optimizer(
            {"params": parameters, "name": "all"}
        )
    engine, optimizer, *_ = deepspeed.initialize(
        model=model, config=config, model_parameters=parameters
    )
    dp, batch = engine.dp_world_size, engine.train_micro_batch_size_per_gpu()
    return {
        "class": type(engine).__name__,
        "optimizer": type(optimizer).__name__,
        "dp": dp,
        "sp": engine.sequence_parallel_size,
        "train_batch_size": engine.train_batch_size(),
        "real_batch_size": batch * engine.gradient_accumulation_steps() * dp,
        "zero_stage": int(engine.zero_optimization_stage()),
    }


def use_torch_adam(config: dict[str, Any]) -> None:
    """Use torch's Adam, because DeepSpeed's own is a CUDA extension."""
    optimizer = config.setdefault("optimizer", {"type": "AdamW"})
    params = optimizer.setdefault("params", {})
    if optimizer.get("type", "").lower() in ("adam", "adamw"):
        params["torch_adam"] = True
        config["zero_force_ds_cpu_optimizer"] = False


def toy_model(case: Case) -> Any:
    """Return a small model with the parts that the strategy needs: stages, experts, or projections
    that AutoTP splits.
    """
    import torch
    from torch.nn import Linear

    if case.get("pp", 1) > 1:
        from deepspeed.pipe import PipelineModule

        layers = [Linear(HIDDEN, HIDDEN) for _ in range(max(LAYERS, case["pp"]))]
        return PipelineModule(layers, topology=topology(case), loss_fn=torch.nn.MSELoss())
    model = type(
        "ToyModel", (torch.nn.Module,), {}
    )()  # AutoTP needs a class name and a list of layers
    model.layers = torch.nn.ModuleList(toy_block(case.get("ep", 1)) for _ in range(2))
    return model


def toy_block(ep: int) -> Any:
    """Return a block with the names by which AutoTP finds the layers that it may split."""
    from torch.nn import Linear, Module

    block = Module()
    block.q_proj, block.o_proj = Linear(HIDDEN, HIDDEN), Linear(HIDDEN, HIDDEN)
    if ep > 1:
        from deepspeed.moe.layer import MoE

        block.moe = MoE(HIDDEN, Linear(HIDDEN, HIDDEN), num_experts=ep, ep_size=ep)
    return block
