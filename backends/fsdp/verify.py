"""Verifier of ``fsdp/config.json``, which it reads as the emitted program does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from parc.backends.shared.torch.verify_program_start import python_path_command, start_of_program
from parc.backends.shared.verify_emitted_program import (
    builds_with_transformers,
    transformers_settings,
    users_program,
    verify_imported_file,
)
from parc.backends.shared.verify_torch import (
    NOT_IN_TORCH_FILES,
    UNUSED_IN_LLAMA,
    llama_model_settings,
    read_adapter_settings,
    read_batch_settings,
    read_mesh_settings,
    read_recompute_settings,
    settings_fixed_by_framework,
    single_stage_settings,
)
from parc.backends.verifier import DerivedSetting, FileDependencies, LaunchedProgram
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.device_mesh import DeviceMeshVerifier, MeshSizes, positive_sizes
from parc.compiler.verify.program_code import read_program_digests, verify_programs
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_settings import EmittedSettings, json_settings

CONFIG = "fsdp/config.json"
PROGRAM = "fsdp/train.py"
SAME_NAME = (
    *("sequence_length", "global_batch", "steps", "learning_rate", "min_learning_rate"),
    *("warmup_steps", "lr_decay", "lr_decay_steps", "wsd_decay_steps", "weight_decay"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "seed", "data", "checkpoint_interval", "kind"),
)
"""Settings with the name and the value of a field of the job."""
JOB = {"param_dtype": "precision", "reduce_dtype": "gradient_precision"}
JOB |= {"max_norm": "gradient_clipping"} | {name: name for name in SAME_NAME}
"""Setting -> field of the job. The program reads all settings, and stops if one is missing."""
MODEL = {
    "layers": "layers",
    "hidden": "hidden",
    "vocab": "vocab",
    "norm_epsilon": "norm_epsilon",
    "heads": "attention.heads",
    "kv_heads": "attention.kv_heads",
    "head_dim": "attention.head_dim",
    "qkv_bias": "attention.qkv_bias",
    "ffn": "ffn.size",
    "rope_base": "position.base",
    "rope_scaling": "position.scaling",
    "rope_factor": "position.scaling_factor",
    "rope_original": "position.original_max_positions",
}
"""Setting of ``model`` -> field of the model."""
AXES = {axis: f"mesh.{axis}" for axis in ("dp_replicate", "dp_shard", "tp")}


def read_sizes(text: str) -> MeshSizes:
    """Return the sizes of the device mesh that ``config.json`` contains.

    Raises:
        MalformedFileError: the text has no mesh, or a size is not a positive integer.
    """
    try:
        mesh = json.loads(text)["mesh"]
        sizes = {name: mesh[name] for name in ("dp_replicate", "dp_shard", "tp")}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MalformedFileError(
            CONFIG, 1, "the object mesh with dp_replicate, dp_shard and tp is missing"
        ) from None
    return MeshSizes(**positive_sizes(CONFIG, {"pp": 1, "cp": 1, **sizes}))


class FsdpVerifier(DeviceMeshVerifier):
    """Verifier that reads ``config.json`` as ``parallelize.py`` and ``train.py`` do."""

    not_in_files = MappingProxyType(
        NOT_IN_TORCH_FILES
        | UNUSED_IN_LLAMA
        | {
            "layout.cp_comm": "only relevant with context parallelism",
            "problem.model.position.max_positions": "model.py has no limit on positions",
        }
    )

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report emitted programs whose code differs from the code that PARC emits (A18)."""
        super().check_file_contents(artifacts, sink)
        verify_programs(artifacts, read_program_digests(__package__), sink)
        if CONFIG in artifacts:
            named = builds_with_transformers(json_settings(CONFIG, artifacts[CONFIG]))
            module = "fsdp/hf_model.py" if named else "fsdp/model.py"
            verify_imported_file(PROGRAM, module, artifacts, sink)
            if "lora" in json_settings(CONFIG, artifacts[CONFIG]):
                verify_imported_file(PROGRAM, "fsdp/adapters.py", artifacts, sink)

    def program_start(
        self, plan: Mapping[str, Any], artifacts: Mapping[str, str]
    ) -> LaunchedProgram | None:
        """Return how the launch script must start the emitted program or the user's program.

        The user's program imports emitted code, so PYTHONPATH must then contain the folder of that
        code.
        """
        start = start_of_program(plan, PROGRAM)
        own = users_program(plan)
        return replace(start, setup=(python_path_command("fsdp"),)) if own else start

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
        """Yield the plan settings in ``config.json``."""
        if CONFIG not in artifacts:
            return
        settings, sizes = json_settings(CONFIG, artifacts[CONFIG]), read_sizes(artifacts[CONFIG])
        yield from _read_sharding_settings(settings, sizes)
        yield from settings_fixed_by_framework(CONFIG)
        yield from _read_job_settings(settings, sizes)
        if builds_with_transformers(settings):
            yield from transformers_settings(settings)
        elif PROGRAM in artifacts:
            yield from llama_model_settings(PROGRAM)
            yield DerivedSetting("problem.model.tied_embeddings", False, PROGRAM)
            for name, field in MODEL.items():
                yield settings.derive_from(f"problem.model.{field}", f"model.{name}")
        yield from settings.unread_settings()


def _read_sharding_settings(
    settings: EmittedSettings, sizes: MeshSizes
) -> Iterator[DerivedSetting]:
    """Yield the sizes of the device mesh, the ZeRO stage, and sequence parallelism."""
    for setting in AXES.values():
        settings.get(setting)
    wrapper, reshard = settings.get("strategy"), settings.get("reshard_after_forward")
    stage = 0 if wrapper == "ddp" else 3 if reshard else 2
    # Tensor parallelism needs fully_shard even for replicas, which are shards of one rank.
    alone = sizes.dp_shard == 1 and not reshard
    yield settings.derive(
        "layout.zero_stage", stage, "reshard_after_forward", lambda plan: alone and plan == 0
    )
    if wrapper != "ddp":
        yield from settings.require("strategy", "hsdp" if sizes.dp_replicate > 1 else "fsdp")
    yield from settings.require("reshard_after_forward", stage == 3)
    yield from read_mesh_settings(settings, sizes, AXES, 0 if alone else stage)
    yield settings.derive_from("layout.sequence_parallel", "sequence_parallel")


def _read_job_settings(settings: EmittedSettings, sizes: MeshSizes) -> Iterator[DerivedSetting]:
    for setting, field in JOB.items():
        yield settings.derive_from(f"problem.job.{field}", setting)
    for name in ("checkpoint_dir", "load_dir"):
        yield settings.derive(f"problem.job.{name}", settings.get(name, "missing") or None, name)
    yield from read_adapter_settings(settings)
    yield from read_batch_settings(
        settings, "micro_batch", "gradient_accumulation_steps", sizes.dp_replicate * sizes.dp_shard
    )
    again = settings.get("activation_checkpointing")
    yield from read_recompute_settings(settings, again, "activation_checkpointing")
    tokenizer = settings.get("tokenizer", "missing") or None
    yield settings.derive("problem.job.tokenizer_model", tokenizer, "tokenizer")
    yield settings.derive_from("problem.model.layers", "layers")
    yield from single_stage_settings(settings)


VERIFIER = FsdpVerifier(
    file=CONFIG,
    builder="fsdp",
    read_sizes=read_sizes,
    columns=("dp-replicate", "dp-shard", "tp"),
    other_families=("dp",),
    files=FileDependencies(
        references={"fsdp/train.py": "/fsdp/train.py"},
        required_by=(
            (CONFIG, "fsdp/parallelize.py"),
            (CONFIG, "fsdp/train.py"),
            ("fsdp/parallelize.py", "fsdp/train.py"),
            ("fsdp/data.py", "fsdp/train.py"),
            ("fsdp/start.py", "fsdp/train.py"),
            ("fsdp/learning_rate.py", "fsdp/train.py"),
        ),
    ),
)
