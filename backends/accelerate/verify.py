"""Verifier of ``accelerate/config.yaml`` and ``job.json``, read as ``accelerate launch`` does.

Source: accelerate 1.15.0, commands/launch.py, commands/config/config_args.py, utils/dataclasses.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from parc.backends.shared.verify_emitted_program import (
    builds_with_transformers,
    transformers_settings,
    users_program,
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
from parc.backends.verifier import DerivedSetting, FileDependencies, LaunchedProgram, LauncherNumber
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.device_mesh import DeviceMeshVerifier, MeshSizes, positive_sizes
from parc.compiler.verify.program_code import read_program_digests, verify_programs
from parc.compiler.verify.read_emitted import MalformedFileError, read_json
from parc.compiler.verify.verify_settings import (
    EmittedSettings,
    json_settings,
    translate_name,
    yaml_settings,
)

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
DEEPSPEED_CONFIG = "deepspeed/ds_config.json"
MESH = "parallelism_config.parallelism_config_"
AXES = {axis: f"{MESH}{axis}_size" for axis in ("dp_replicate", "dp_shard", "cp", "tp")}
PRECISIONS = {"no": "fp32"}
"""``mixed_precision`` -> format of the job, where the names differ."""
STRATEGIES = {"alltoall": "p2p", "allgather": "all_gather"}
"""Strategy of context parallelism -> the plan's name of it."""
SCALINGS = {"default": "none"}
SAME_NAME = (
    *("sequence_length", "global_batch", "steps", "learning_rate", "min_learning_rate"),
    *("warmup_steps", "lr_decay", "lr_decay_steps", "wsd_decay_steps", "weight_decay"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "seed", "data", "checkpoint_interval", "kind"),
)
"""Settings of job.json with the name and the value of a field of the job."""
MODEL = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "vocab_size": "vocab",
    "rms_norm_eps": "norm_epsilon",
    "tie_word_embeddings": "tied_embeddings",
    "num_attention_heads": "attention.heads",
    "num_key_value_heads": "attention.kv_heads",
    "head_dim": "attention.head_dim",
    "intermediate_size": "ffn.size",
    "max_position_embeddings": "position.max_positions",
    "rope_parameters.rope_theta": "position.base",
}
"""Setting of ``model`` -> field of the model."""


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
            # Accelerate 1.15 rejects sequence parallelism in the norms.
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
            for file in ("job.json", "hf_model.py", "data.py", "learning_rate.py", "start.py")
        ),
    ),
    launcher=LAUNCHER,
)


def read_config_settings(
    settings: EmittedSettings, sizes: MeshSizes, artifacts: Mapping[str, str]
) -> Iterator[DerivedSetting]:
    """Yield the plan settings in ``config.yaml``.

    ``artifacts`` maps paths to the texts of all emitted files.
    """
    yield from settings.require("compute_environment", "LOCAL_MACHINE")
    yield from settings.require("rdzv_backend", "static")
    yield from settings.require("use_cpu", False)
    machines, ranks = (
        settings.positive_integer("num_machines"),
        settings.positive_integer("num_processes"),
    )
    yield settings.derive("placement.ranks_per_node", ranks / machines, "num_machines")
    kind = settings.get("distributed_type")
    if kind == "DEEPSPEED":
        yield from _deepspeed_plugin_settings(settings, artifacts)
    else:
        yield from _sharding_settings(settings, sizes, kind)
    yield from settings.unread_settings()


def _deepspeed_plugin_settings(
    settings: EmittedSettings, artifacts: Mapping[str, str]
) -> Iterator[DerivedSetting]:
    """Yield the settings in ``deepspeed_config``, a section of ``config.yaml``, that are wrong.

    The section must name ``ds_config.json`` and have the settings that its ZeRO stage requires.
    """
    tree = read_json(DEEPSPEED_CONFIG, artifacts.get(DEEPSPEED_CONFIG, "{}"))
    zero = tree.get("zero_optimization")
    is_stage_3 = isinstance(zero, dict) and zero.get("stage") == 3
    yield from settings.require("deepspeed_config.deepspeed_config_file", DEEPSPEED_CONFIG)
    yield from settings.require("deepspeed_config.deepspeed_multinode_launcher", "standard")
    # transformers creates the model in shards only if the flag is set.
    yield from settings.require("deepspeed_config.zero3_init_flag", True if is_stage_3 else None)


def _sharding_settings(
    settings: EmittedSettings, sizes: MeshSizes, kind: Any
) -> Iterator[DerivedSetting]:
    precision = translate_name(PRECISIONS, settings.get("mixed_precision", "no"))
    yield settings.derive("problem.job.precision", precision, "mixed_precision")
    if kind != "FSDP":
        if kind != "MULTI_GPU":
            yield settings.unexpected_setting("distributed_type")
        yield settings.derive("layout.zero_stage", 0, "distributed_type")
        yield from read_recompute_settings(settings, "none", "distributed_type")
        names = dict.fromkeys(AXES, "num_processes")
        yield from read_mesh_settings(settings, sizes, names, 0)
        return
    resharding = "fsdp_config.fsdp_reshard_after_forward"
    reshards = settings.get(resharding, True)
    stage = 3 if reshards is True else 2
    yield settings.derive("layout.zero_stage", stage, resharding)
    if not isinstance(reshards, bool):
        yield settings.unexpected_setting(resharding)
    yield from settings.require("fsdp_config.fsdp_version", 2)
    yield from settings.require("fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
    yield from settings.require("fsdp_config.fsdp_state_dict_type", "SHARDED_STATE_DICT")
    checkpointing = "fsdp_config.fsdp_activation_checkpointing"
    granularity = _recompute_granularity(settings.get(checkpointing, False))
    yield from read_recompute_settings(settings, granularity, checkpointing)
    # ``sizes`` contains these settings. To get one marks it as read.
    for setting in AXES.values():
        settings.get(setting)
    yield from read_mesh_settings(settings, sizes, AXES, stage)
    exchange = f"{MESH}cp_comm_strategy"
    strategy = settings.get(exchange, "allgather")
    if sizes.cp > 1:
        yield settings.derive("layout.cp_comm", translate_name(STRATEGIES, strategy), exchange)
    elif exchange in settings:
        yield settings.unexpected_setting(exchange)


def _recompute_granularity(recomputes: Any) -> Any:
    """Return "full" for True and "none" for False; return any other value unchanged."""
    return ("full" if recomputes else "none") if isinstance(recomputes, bool) else recomputes


def read_job_settings(
    settings: EmittedSettings, sizes: MeshSizes, kind: Any, emitted: bool
) -> Iterator[DerivedSetting]:
    """Yield the plan settings in ``job.json``.

    Args:
        settings: settings of the file.
        sizes: parallel sizes, read from ``config.yaml``.
        kind: Accelerate's ``distributed_type``, such as "FSDP".
        emitted: True if the job runs the program that PARC emits. This program builds the model
            from sizes in ``job.json``.
    """
    for name in SAME_NAME:
        yield settings.derive_from(f"problem.job.{name}", name)
    yield settings.derive_from("problem.job.gradient_clipping", "max_norm")
    yield settings.derive_from("problem.job.gradient_precision", "reduce_dtype")
    for name in ("checkpoint_dir", "load_dir"):
        yield settings.derive(f"problem.job.{name}", settings.get(name, "missing") or None, name)
    yield from read_adapter_settings(settings)
    replicas = sizes.dp_replicate * sizes.dp_shard
    yield from read_batch_settings(settings, "micro_batch", "gradient_accumulation_steps", replicas)
    recomputes = settings.get("gradient_checkpointing")
    if kind == "DEEPSPEED":
        yield from read_recompute_settings(
            settings, _recompute_granularity(recomputes), "gradient_checkpointing"
        )
    else:
        yield from settings.require("gradient_checkpointing", False)
    tokenizer = settings.get("tokenizer", "missing") or None
    yield settings.derive("problem.job.tokenizer_model", tokenizer, "tokenizer")
    yield settings.derive_from("problem.model.layers", "layers")
    yield from single_stage_settings(settings)
    if builds_with_transformers(settings):
        yield from transformers_settings(settings)
    elif emitted:
        yield from _model_settings(settings)
    yield from settings.unread_settings()


def _model_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    for setting, field in MODEL.items():
        yield settings.derive_from(f"problem.model.{field}", f"model.{setting}")
    path = "model.rope_parameters."
    kind = settings.get(f"{path}rope_type", "default")
    scaling = translate_name(SCALINGS, kind)
    yield settings.derive("problem.model.position.scaling", scaling, f"{path}rope_type")
    if scaling != "none":
        yield settings.derive_from("problem.model.position.scaling_factor", f"{path}factor")
    if scaling == "llama3":
        yield from settings.require(f"{path}low_freq_factor", 1.0)
        yield from settings.require(f"{path}high_freq_factor", 4.0)
        positions = f"{path}original_max_position_embeddings"
        yield settings.derive_from("problem.model.position.original_max_positions", positions)
