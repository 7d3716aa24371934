"""Sharding of data parallelism in Megatron's arguments, and the plan fields that it means."""

from __future__ import annotations

from typing import Any

from parc.backends.megatron.verify_flags import ParsedFlags, RejectedFlagValues
from parc.backends.megatron.verify_model import Implied, Shown
from parc.backends.megatron.verify_plan_fields import PlanFields

ARGS, STAGE, PRECISION = "problem.launch.args", "layout.zero_stage", "problem.job.precision"
FSDP_STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""Strategy of Megatron-FSDP -> ZeRO stage."""


def _zero_stage(settings: ParsedFlags) -> Any:
    switch, fsdp = settings["use-distributed-optimizer"], settings["use-megatron-fsdp"]
    for one in (switch, fsdp):
        if isinstance(one, RejectedFlagValues):
            return one
    if not fsdp:
        return int(switch)
    if not switch:
        return "Megatron-FSDP without the distributed optimizer"
    # The default of the flag differs between versions, so plans with Megatron-FSDP always set it.
    if "data-parallel-sharding-strategy" not in settings.arguments.flags:
        return "Megatron-FSDP without a strategy"
    strategy = settings["data-parallel-sharding-strategy"]
    return FSDP_STAGES.get(strategy, strategy)


def _is_fully_sharded(fields: PlanFields) -> bool:
    return bool(fields[STAGE] in (2, 3))


def _main_gradients(fields: PlanFields) -> str:
    # The default is the format of the weights; fp16 gradients stay in fp16.
    wide = fields["problem.job.gradient_precision"] == "fp32" and fields[PRECISION] != "fp16"
    return "fp32" if wide and _is_fully_sharded(fields) else "auto"


def _data_parallel_replicas(fields: PlanFields) -> Any:
    return fields["layout.dp_replicate"] if fields[STAGE] > 0 else 1


SHOWN: tuple[Shown, ...] = ((STAGE, "use-distributed-optimizer", _zero_stage),)
"""Rows for the sharding of every plan."""
IMPLIED: tuple[Implied, ...] = (
    ("num-distributed-optimizer-instances", "layout.dp_replicate", _data_parallel_replicas),
    ("overlap-grad-reduce", ARGS, lambda _: True),
    ("overlap-param-gather", STAGE, lambda f: f[STAGE] > 0),
    ("use-megatron-fsdp", STAGE, _is_fully_sharded),
    (
        "data-parallel-sharding-strategy",
        STAGE,
        # The default is that of version 0.18 and newer; without Megatron-FSDP it has no effect.
        lambda f: "optim_grads" if f[STAGE] == 2 else "optim_grads_params",
    ),
    ("init-model-with-meta-device", STAGE, lambda f: f[STAGE] == 3),
    ("megatron-fsdp-main-grads-dtype", "problem.job.gradient_precision", _main_gradients),
    ("no-gradient-accumulation-fusion", STAGE, _is_fully_sharded),
    ("ckpt-format", STAGE, lambda f: "fsdp_dtensor" if _is_fully_sharded(f) else "torch_dist"),
)
"""Rows for the flags of sharding of every plan."""
