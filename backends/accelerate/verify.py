"""Verifier of ``accelerate/config.yaml``, which it reads as ``accelerate launch`` does."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from parc.backends.accelerate.verify_settings import (
    AXES,
    MESH,
    read_config_settings,
    read_job_settings,
)
from parc.backends.shared.verify_emitted_program import builds_with_transformers, users_program
from parc.backends.shared.verify_torch import (
    NOT_IN_TORCH_FILES,
    UNUSED_IN_LLAMA,
    llama_model_settings,
    settings_fixed_by_framework,
)
from parc.backends.verifier import DerivedSetting, FileDependencies, LaunchedProgram, LauncherNumber
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.device_mesh import DeviceMeshVerifier, MeshSizes, positive_sizes
from parc.compiler.verify.emitted_settings import EmittedSettings, json_settings, yaml_settings
from parc.compiler.verify.program_code import read_program_digests, verify_programs
from parc.compiler.verify.read_emitted import MalformedFileError

CONFIG = "accelerate/config.yaml"
JOB = "accelerate/job.json"
PROGRAM, TRAINER = "accelerate/train.py", "accelerate/hf_trainer.py"
HF_MODEL = "accelerate/hf_model.py"
LAUNCHER = (
    LauncherNumber("--num_machines", r"--num_machines=(\d+)", "nodes"),
    LauncherNumber("--num_processes", r"--num_processes=(\d+)", "world"),
)
UNUSED = {
    "problem.model.position.scaling_factor": "only relevant with scaling",
    "problem.model.position.original_max_positions": "only relevant with the scaling llama3",
    "layout.cp_comm": "only relevant with context parallelism",
}


def read_sizes(text: str) -> MeshSizes:
    """Return the sizes of the device mesh that ``config.yaml`` configures.

    If the file has no ``parallelism_config``, the sizes follow from the framework: under DDP each
    process is a replica, and under FSDP all processes share one sharded replica.

    Raises:
        MalformedFileError: the text is not YAML with a number of processes, or a size is not a
            positive integer.
    """
    return _mesh_sizes(yaml_settings(CONFIG, text))


def _mesh_sizes(settings: EmittedSettings) -> MeshSizes:
    ranks = settings.values.get("num_processes")
    if ranks is None:
        raise MalformedFileError(CONFIG, 1, "the key num_processes is missing")
    values = {axis: settings.values.get(path, 1) for axis, path in AXES.items()}
    sequence = settings.values.get(f"{MESH}sp_size", 1)
    if not any(path.startswith(MESH) for path in settings.values):
        sharded = settings.values.get("distributed_type") == "FSDP"
        values["dp_shard" if sharded else "dp_replicate"] = ranks
    found = positive_sizes(CONFIG, {"pp": 1, **values, "sp": sequence})
    # Both axes split the sequence; PARC emits no sp, but the config of a user may have it.
    found["cp"] *= found.pop("sp")
    return MeshSizes(**found)


def read_accelerate_settings(artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
    """Yield the plan settings that config.yaml, job.json and train.py contain."""
    if CONFIG not in artifacts:
        return
    settings = yaml_settings(CONFIG, artifacts[CONFIG])
    sizes, kind = _mesh_sizes(settings), settings.get("distributed_type")
    yield from read_config_settings(settings, sizes, artifacts)
    if JOB in artifacts:
        job = json_settings(JOB, artifacts[JOB])
        yield from read_job_settings(job, sizes, kind, HF_MODEL in artifacts)
        if HF_MODEL in artifacts and not builds_with_transformers(job):
            yield from llama_model_settings(HF_MODEL)
            yield DerivedSetting("problem.model.attention.qkv_bias", False, HF_MODEL)


def verify_accelerate_programs(artifacts: Mapping[str, str], sink: Sink) -> None:
    """Report emitted programs whose code differs from the code that PARC emits (A18)."""
    verify_programs(artifacts, read_program_digests(__package__), sink)


def accelerate_program_start(plan: Mapping[str, Any], config: str = "") -> LaunchedProgram:
    """Return how the launch script must start the emitted program or the user's program.

    ``config`` is the path of DeepSpeed's config; empty if DeepSpeed is not used.
    """
    launch, layout, placement = plan["problem"]["launch"], plan["layout"], plan["placement"]
    own = users_program(plan)
    emitted = TRAINER if launch["program"] == "trainer" else PROGRAM
    return LaunchedProgram(
        program=shlex.quote(own) if own else f'"$here/../{emitted}"',
        arguments=shlex.join(launch["args"]),
        launcher=(
            "accelerate launch",
            f'--config_file="$here/../{CONFIG}"',
            *((f'--deepspeed_config_file="$here/../{config}"',) if config else ()),
            f"--num_machines={len(placement['hosts'])}",
            f"--num_processes={layout['world']}",
            '--machine_rank="$NODE_RANK"',
            '--main_process_ip="$MASTER_ADDR"',
            '--main_process_port="$MASTER_PORT"',
        ),
        # Accelerate's config has no key for it.
        environment={"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": str(layout["micro_batches"])},
    )


class AccelerateVerifier(DeviceMeshVerifier):
    """Verifier that reads ``config.yaml`` as Accelerate does, and ``job.json`` as train.py does."""

    not_in_files = MappingProxyType(NOT_IN_TORCH_FILES | UNUSED_IN_LLAMA | UNUSED)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report emitted programs whose code differs from the code that PARC emits (A18)."""
        super().check_file_contents(artifacts, sink)
        verify_accelerate_programs(artifacts, sink)

    def program_start(
        self, plan: Mapping[str, Any], artifacts: Mapping[str, str]
    ) -> LaunchedProgram | None:
        """Return the ``accelerate launch`` command that the launch script must contain."""
        return accelerate_program_start(plan)

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
        """Yield the plan settings that config.yaml, job.json and train.py contain."""
        yield from read_accelerate_settings(artifacts)
        if CONFIG in artifacts:
            yield from settings_fixed_by_framework(CONFIG)
            # Accelerate 1.15 refuses sequence parallelism in the norms.
            yield DerivedSetting("layout.sequence_parallel", False, CONFIG)
            kind = yaml_settings(CONFIG, artifacts[CONFIG]).get("distributed_type")
            # The emitted program sets the format of FSDP2; without it, that of the weights applies.
            if kind != "FSDP" or PROGRAM not in artifacts:
                gradients = "bf16" if kind == "FSDP" else "fp32"
                yield DerivedSetting("problem.job.gradient_precision", gradients, CONFIG)


VERIFIER = AccelerateVerifier(
    file=CONFIG,
    builder="accelerate",
    read_sizes=read_sizes,
    columns=("dp-replicate", "dp-shard", "cp", "tp"),
    other_families=("dp", "dp-shard-cp", "dp-cp"),
    files=FileDependencies(
        references={
            CONFIG: "/accelerate/config.yaml",
            PROGRAM: f"/{PROGRAM}",
            TRAINER: f"/{TRAINER}",
        },
        required_by=tuple(
            (f"accelerate/{file}", program)
            for program in (PROGRAM, TRAINER)
            for file in ("job.json", "hf_model.py", "data.py", "learning_rate.py")
        ),
    ),
    launcher=LAUNCHER,
)
