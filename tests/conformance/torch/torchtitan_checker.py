"""Check a config module with the real torchtitan, on a CPU.

    python torchtitan_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "module_text", "world": 256, "function": "run", "rank": 0, "args": []}. The text
is a Python module with a function that returns Trainer.Config; "args" are further words of the
command line. A verdict adds "sizes" (ParallelDims), "batch", "stages" (modules of each virtual
stage), "groups" of the rank by torchtitan's own names of meshes, and "config" (the settings that
Trainer.Config.to_dict has for training and parallelism). Stages:

    parse      ConfigManager on --module and --config, with the checks of the config's classes
    optimizer  the learning-rate schedule, evaluated at four steps
    dims       ParallelDims and its meshes on torch's fake backend
    model      the checks of the model's config
    batch      the rules of the batch (reimplemented: the trainer needs a GPU first)
    stages     the split into stages, and the schedule that the settings name

Runs under the Python that has torchtitan; imports neither PARC nor pytest.
"""

from __future__ import annotations

import sys
import tempfile
import types
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from absent_modules import install_absent_modules
from case_lines import FAULTS, Case, Rejected, Verdict, answer_cases, import_before_forks
from emulated_gpu import install_fake_triton
from mesh_checker import join, ranks_of

UNUSED = ("PIL", "datasets", "torch.utils.tensorboard", "torchdata", "wandb")
MODULE = "checked_config"
MODELS = ("deepseek_v3", "llama3")
"""Models whose configs are read before the forks; configs of other models need a second per case.
"""


def check(case: Case, verdict: Verdict) -> None:
    """Run the stages in order, up to the first that rejects the case."""
    verdict["stage"] = "parse"
    config = parse(case)
    sections = config.to_dict()
    verdict["config"] = {name: sections[name] for name in ("training", "parallelism")}
    verdict["stage"] = "optimizer"
    verdict["optimizer"] = optimizer_of(config)
    verdict["stage"] = "dims"
    dims = dims_of(config, case)
    names = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")
    verdict["sizes"] = {name: getattr(dims, name) for name in names}
    verdict["groups"] = groups_of(dims)
    verdict["stage"] = "model"
    config.model_spec.model.update_from_config(config=config)
    verdict["stage"] = "batch"
    verdict["batch"] = batch_of(config, dims)
    if dims.pp > 1:
        verdict["stage"] = "stages"
        verdict["stages"] = stages_of(config, dims)


def parse(case: Case) -> Any:
    """Import the text as a module on the path, as `-m torchtitan.train --module` does."""
    from torchtitan.config.manager import ConfigManager

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, MODULE + ".py").write_text(case["module_text"])
        sys.path.insert(0, folder)
        words = ["--module", MODULE, "--config", case.get("function", "run")]
        try:
            return ConfigManager().parse_args([*words, *case.get("args", [])])
        except FAULTS as error:  # raised by the config module, not by this program
            raise Rejected(f"{type(error).__name__}: {error}") from error
        except SystemExit as stop:
            raise Rejected("the command line; tyro says why on stderr") from stop


def optimizer_of(config: Any) -> dict[str, Any]:
    """Return the settings of optimizer and schedule; "rates" has the learning rate by step,
    from 0.
    """
    import torch

    (group,) = config.optimizer.param_groups
    settings = dict(group.optimizer_kwargs)
    steps = config.training.steps
    made = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=settings["lr"])
    (schedule,) = config.lr_scheduler.build(optimizers=[made], training_steps=steps)
    rates = {
        step: settings["lr"] * schedule.lr_lambdas[0](step)
        for step in (0, 5, steps // 2, steps - 1)
    }
    return {
        "rates": rates,
        "name": group.optimizer_name,
        "betas": list(settings["betas"]),
        "adam_epsilon": settings["eps"],
        "weight_decay": settings["weight_decay"],
        "max_norm": config.training.max_norm,
        "seed": config.debug.seed,
    }


def dims_of(config: Any, case: Case) -> Any:
    """Return ParallelDims with its meshes, as the trainer builds it."""
    from torchtitan.distributed import parallel_dims

    parallel_dims.device_type = "cpu"
    join(case.get("rank", 0), case["world"])
    dims = parallel_dims.ParallelDims.from_config(config.parallelism, case["world"])
    dims.build_mesh()
    return dims


def groups_of(dims: Any) -> dict[str, list[int]]:
    """Return the groups of the rank that joined."""
    meshes = dims._single_axis_meshes.items()
    return {name: ranks_of(mesh.get_group()) for name, mesh in meshes if mesh.size() > 1}


def batch_of(config: Any, dims: Any) -> dict[str, int]:
    """Apply the batch rules of Trainer.__init__ in torchtitan/trainer.py."""
    training, parallelism = config.training, config.parallelism
    cut = dims.tp if parallelism.enable_sequence_parallel else 1
    cut *= 2 * dims.cp if dims.cp > 1 else 1
    if training.seq_len % cut:
        raise Rejected(f"seq_len {training.seq_len} must be divisible by {cut}")
    at_once = training.local_batch_size * dims.dp_replicate * dims.dp_shard
    in_all = at_once if training.global_batch_size < 0 else training.global_batch_size
    if in_all % at_once or in_all <= 0:
        raise Rejected(f"global batch size {in_all} must be a multiple of {at_once}")
    size = parallelism.pipeline_parallel_microbatch_size
    return {
        "global_batch_size": in_all,
        "gradient_accumulation_steps": in_all // at_once,
        "pipeline_microbatches": training.local_batch_size // size if dims.pp > 1 else 1,
    }


def stages_of(config: Any, dims: Any) -> list[list[str]]:
    """Return the modules of each virtual stage, and build the schedule for stages without a
    model.
    """
    from torchtitan.distributed import pipeline_parallel as pipeline

    parallelism = config.parallelism
    count, *weights = pipeline._get_pipeline_metadata(dims, parallelism, config.model_spec.model)
    modules = parallelism.module_fqns_per_model_part
    modules = modules or pipeline._generate_llm_fqn_per_model_part(count, *weights)
    made = [
        types.SimpleNamespace(
            stage_index=index,
            num_stages=len(modules),
            group_size=dims.pp,
            group_rank=0,
            group=None,
            is_first=index == 0,
            is_last=index == len(modules) - 1,
            has_backward=True,
            submod=None,
        )
        for index in range(0, len(modules), dims.pp)
    ]
    pipeline._build_pipeline_schedule(
        parallelism=parallelism,
        local_batch_size=config.training.local_batch_size,
        stages=made,
        loss_fn=lambda *_: (None, None),
    )
    return modules


def read_a_config() -> None:
    """Parse a config of torchtitan to fill tyro's caches, mainly of docstrings."""
    from torchtitan.config.manager import ConfigManager

    ConfigManager().parse_args(["--module", "llama3", "--config", "llama3_debugmodel"])


def main() -> int:
    install_fake_triton()
    install_absent_modules(*UNUSED)
    models = [f"torchtitan.models.{name}.config_registry" for name in MODELS]
    import_before_forks(
        "torch", "torch.testing._internal.distributed.fake_pg", "torchtitan.trainer"
    )
    import_before_forks("torchtitan.config.manager", "torchtitan.distributed.pipeline_parallel")
    import_before_forks(*models)
    read_a_config()
    return answer_cases(check)


if __name__ == "__main__":
    sys.exit(main())
