"""Check a ds_config.json with the real DeepSpeed, on a CPU.

    DS_ACCELERATOR=cpu python deepspeed_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "config": {...}, "world": 16, "pp": 1, "mp": 1, "ep": 1, "rank": 0, "engine":
false, "groups": false}. "mp" is a model-parallel size of the training code (Megatron's, or that of
a pipeline's grid); AutoTP is set in the config instead.
A verdict adds "keys_ignored" (accepted and never read, dotted), "keys_without_effect" (read, but
not used at this ZeRO stage), "resolved", and on request "groups" of the rank (see
deepspeed_groups.py). Stages:

    config     DeepSpeedConfig, on a config that records which keys are read
    params     the keywords of the optimizer and of the learning-rate schedule
    groups     PipeModelDataParallelTopology and the groups of experts
    engine     deepspeed.initialize: the (Pipeline)Engine of a small model on the fake backend

Runs under the Python that has DeepSpeed; imports neither PARC nor pytest.
"""

from __future__ import annotations

import copy
import inspect
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from case_lines import Case, Rejected, Verdict, answer_cases, import_before_forks
from deepspeed_engine import build_engine
from deepspeed_groups import groups_of_rank, join_as_rank
from deepspeed_keys import READ_BY_INITIALIZE
from read_trace import ReadTrace

AUTO_MEANS_SOMETHING = ("pipeline.stages", "data_types.keep_in_fp32_modules", "expert_parallel.")
IMPORTED_LATE = ("torch._dynamo", "deepspeed.module_inject.auto_ep_config")
"""Modules that the config and the optimizer import late, which would add a second to every case."""
IMPORTED_BY_ENGINE = (
    "torch.distributed.fsdp",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.runtime.zero.muon.muon_optimizer",
)
"""Modules that the engine imports late, which takes two seconds; imported only for cases that build
the engine.
"""
ONLY_STAGE_3 = ("offload_param", "zero_hpz_partition_size", "zero_quantized_", "stage3_")


class MegatronSizes:
    """Sizes that DeepSpeed reads from the parallel state of the training code."""

    def __init__(self, case: Case) -> None:
        self._pp, self._mp = case.get("pp", 1), case.get("mp", 1)
        self._dp = case["world"] // (self._pp * self._mp)

    def get_data_parallel_world_size(self) -> int:
        return int(self._dp)

    def get_model_parallel_world_size(self) -> int:
        return int(self._mp)

    def get_pipe_parallel_world_size(self) -> int:
        return int(self._pp)


def check(case: Case, verdict: Verdict) -> None:
    """Run the stages in order, up to the first that rejects the case."""
    join_as_rank(case.get("rank", 0), case["world"])
    verdict["stage"] = "config"
    trace = ReadTrace(case["config"])
    parsed = parse(case, trace)
    verdict["keys_ignored"] = unread_keys(trace, case["config"])
    verdict["keys_without_effect"] = keys_without_effect(
        case["config"], int(parsed.zero_config.stage)
    )
    verdict["resolved"] = resolved(parsed)
    verdict["stage"] = "params"
    check_params(parsed)
    verdict["rates"] = rates(parsed)
    if case.get("groups"):
        verdict["stage"] = "groups"
        verdict["groups"] = groups_of_rank(case)
    if case.get("engine"):
        verdict["stage"] = "engine"
        verdict["engine"] = build_engine(case, copy.deepcopy(case["config"]))


def parse(case: Case, trace: ReadTrace) -> Any:
    """Build DeepSpeedConfig as deepspeed.initialize does."""
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig

    config = case["config"]
    parallel = case.get("pp", 1) * case.get("mp", 1) > 1
    mesh = None
    if not parallel and config.keys() >= {*READ_BY_INITIALIZE}:
        sizes = tuple(config[key] for key in READ_BY_INITIALIZE)
        mesh = comm.initialize_mesh_device(sizes, ("data_parallel", "sequence_parallel"))
        trace.keys_read.update(READ_BY_INITIALIZE)
    return DeepSpeedConfig(trace, MegatronSizes(case) if parallel else None, mesh_device=mesh)


def unread_keys(trace: ReadTrace, config: dict[str, Any]) -> list[str]:
    """Return the keys that DeepSpeed never read, and keys with the value "auto", which only Hugging
    Face replaces.
    """
    from deepspeed.runtime.config import get_pipeline_config

    found = [key for key in trace.unread() if ".params." not in key]
    known = get_pipeline_config({})  # DeepSpeed copies the whole section and uses these keys
    found += [f"pipeline.{key}" for key in config.get("pipeline", {}) if key not in known]
    found += [key for key in paths_with_auto(config) if not key.startswith(AUTO_MEANS_SOMETHING)]
    return sorted(found)


def paths_with_auto(config: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the paths with the value "auto"."""
    found = []
    for key, value in config.items():
        if isinstance(value, dict):
            found += paths_with_auto(value, f"{prefix}{key}.")
        elif value == "auto":
            found.append(prefix + key)
    return found


def keys_without_effect(config: dict[str, Any], stage: int) -> list[str]:
    """Return keys of ZeRO-3 at a lower stage (reimplemented: DeepSpeed reads them without a
    message).
    """
    if stage == 3:
        return []
    keys = config.get("zero_optimization", {})
    return sorted(f"zero_optimization.{key}" for key in keys if key.startswith(ONLY_STAGE_3))


def resolved(parsed: Any) -> dict[str, Any]:
    """Return the settings that DeepSpeed derived."""
    zero = parsed.zero_config
    return {
        "batch_world": parsed.world_size,
        "train_batch_size": parsed.train_batch_size,
        "train_micro_batch_size_per_gpu": parsed.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": parsed.gradient_accumulation_steps,
        "zero_stage": int(zero.stage),
        "overlap_comm": zero.overlap_comm,
        "offload_param": device_of(zero.offload_param),
        "offload_optimizer": device_of(zero.offload_optimizer),
        "zero_hpz_partition_size": zero.zero_hpz_partition_size,
        "zero_quantized_weights": zero.zero_quantized_weights,
        "zero_quantized_gradients": zero.zero_quantized_gradients,
        "bf16": parsed.bfloat16_config.enabled,
        "fp16": parsed.float16_config.enabled,
        "gradient_clipping": parsed.gradient_clipping,
        "optimizer": {"type": parsed.optimizer_name, **(parsed.optimizer_params or {})},
        "autotp_size": parsed.tensor_parallel_config.autotp_size,
        "autoep_size": parsed.expert_parallel_config.autoep_size,
        "pipeline": dict(parsed.pipeline),
        "activation_checkpointing": vars(parsed.activation_checkpointing_config),
    }


def device_of(offload: Any) -> str:
    return "none" if offload is None else str(getattr(offload.device, "value", offload.device))


def check_params(parsed: Any) -> None:
    """Check the keywords against the classes named in "optimizer" and "scheduler"."""
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.runtime import lr_schedules

    if parsed.optimizer_name in ("adam", "adamw"):  # runtime/engine.py, _configure_basic_optimizer
        known = {"torch_adam", "adam_w_mode", *keywords(FusedAdam)} | keywords(DeepSpeedCPUAdam)
        reject_unknown("optimizer.params", parsed.optimizer_params, known)
    elif parsed.optimizer_name is not None and hasattr(torch.optim, parsed.optimizer_name):
        known = keywords(getattr(torch.optim, parsed.optimizer_name))
        reject_unknown("optimizer.params", parsed.optimizer_params, known)
    if parsed.scheduler_name is not None:
        known = keywords(getattr(lr_schedules, parsed.scheduler_name))
        reject_unknown("scheduler.params", parsed.scheduler_params, known)


def rates(parsed: Any) -> dict[str, float]:
    """Return the learning rate of the schedule after a number of steps."""
    import torch
    from deepspeed.runtime import lr_schedules

    if parsed.scheduler_name is None:
        return {}
    lr = (parsed.optimizer_params or {}).get("lr", 0.001)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    schedule = getattr(lr_schedules, parsed.scheduler_name)(optimizer, **parsed.scheduler_params)
    warmup = parsed.scheduler_params.get("warmup_num_steps", 0)
    found = {}
    for step in (1, warmup - 1, parsed.scheduler_params.get("total_num_steps", 10**6)):
        schedule.step(step)
        found[str(step)] = float(schedule.get_last_lr()[0])
    return found


def keywords(made: Any) -> set[str]:
    return set(inspect.signature(made).parameters) - {"params", "model_params", "optimizer"}


def reject_unknown(section: str, given: dict[str, Any] | None, known: set[str]) -> None:
    if unknown := sorted(set(given or {}) - known):
        raise Rejected(f"{section}: unexpected keywords {unknown}")


def main() -> int:
    os.environ["DS_ACCELERATOR"] = "cpu"
    import_before_forks(
        "torch", "deepspeed.comm.torch", "torch.testing._internal.distributed.fake_pg"
    )
    # A C++ extension for shared memory needs a compiler and a minute, and is never called. The
    # attribute deepspeed.comm.torch is torch itself by now, so the module comes from sys.modules.
    vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None
    import_before_forks("deepspeed.pipe", "deepspeed.moe.layer", *IMPORTED_LATE)
    return answer_cases(check, needs=lambda case: IMPORTED_BY_ENGINE if case.get("engine") else ())


if __name__ == "__main__":
    sys.exit(main())
