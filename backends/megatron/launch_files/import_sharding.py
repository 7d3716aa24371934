"""Import of the ZeRO stage and the format of gradients from the flags of Megatron-FSDP."""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics import Finding
from parc.compiler.topology.readers.reader_state import Reading

STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""Value of ``--data-parallel-sharding-strategy`` -> ZeRO stage."""
DEFAULT_STRATEGY = "optim_grads_params"
"""Strategy of Megatron-Core 0.18 and newer if the flag is absent; 0.17 then shards nothing."""
STRATEGY, STAGE = "sharding.strategy", "layout.zero_stage"


def derive_sharding(written: dict[str, Any], dynamic: set[str], reading: Reading) -> None:
    """Set ``layout.zero_stage`` and ``job.gradient_precision`` if Megatron-FSDP is used.

    Megatron-FSDP accumulates gradients in the format of the weights, unless
    ``--megatron-fsdp-main-grads-dtype`` sets another one.

    Args:
        written: flags of Megatron-FSDP that the launch sets.
        dynamic: paths of spec fields whose values are known only at run time; an unknown strategy
            adds the ZeRO stage.
        reading: the spec as read so far.
    """
    if not written.get("fsdp"):
        return
    layout, job = reading.spec["layout"], reading.spec["job"]
    layout.pop("zero_stage", None)
    at = next(one for one in (STRATEGY, "sharding.fsdp", STAGE) if one in reading.spans)
    reading.spans[STAGE] = reading.spans[at]
    if STRATEGY in dynamic:
        dynamic.add(STAGE)
        return
    strategy = written.get("strategy", DEFAULT_STRATEGY)
    if strategy not in STAGES:
        found = Finding(
            f"--data-parallel-sharding-strategy has no value {str(strategy)[:40]}",
            help=f"valid values: {', '.join(STAGES)}",
        )
        reading.report("I04", found, reading.spans[at])
        dynamic.add(STAGE)
        return
    layout["zero_stage"] = STAGES[strategy]
    if STAGES[strategy] < 2 or "sharding.gradients" in dynamic or job.get("precision") == "fp16":
        return
    if written.get("gradients", "auto") in ("auto", "bf16"):
        job["gradient_precision"] = "bf16"
