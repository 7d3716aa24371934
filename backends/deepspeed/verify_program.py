"""Settings that the emitted program reads from ``train.json``."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, get_args

from parc.backends.deepspeed.verify_groups import DeepSpeedTopology
from parc.backends.shared.verify_emitted_program import (
    PLAIN_DECODER,
    builds_with_transformers,
    transformers_settings,
)
from parc.backends.shared.verify_launch_script import ONLY_VALUES
from parc.backends.verifier import DerivedSetting
from parc.compiler.ir import ContextComm
from parc.compiler.verify.verify_settings import EmittedSettings

MODEL = {
    "layers": "layers",
    "hidden": "hidden",
    "vocab": "vocab",
    "norm": "norm",
    "norm_epsilon": "norm_epsilon",
    "tied_embeddings": "tied_embeddings",
    "heads": "attention.heads",
    "kv_heads": "attention.kv_heads",
    "head_dim": "attention.head_dim",
    "qkv_bias": "attention.qkv_bias",
    "output_bias": "attention.output_bias",
    "ffn": "ffn.size",
    "gated": "ffn.gated",
    "activation": "ffn.activation",
    "mlp_bias": "ffn.bias",
    "position": "position.kind",
    "rope_base": "position.base",
    "rope_percent": "position.percent",
    "max_positions": "position.max_positions",
}
"""Setting in the section ``model`` of train.json -> field of the model in the plan."""
EXPERTS = ("count", "top_k", "size", "shared_size", "aux_loss_coefficient")
"""Settings in the section ``experts`` of train.json that have the same name in the plan."""
MOST_LAYERS = 10_000
"""Maximum number of layers that is accepted; a larger number shows that the file is damaged."""
WITHOUT = {
    **PLAIN_DECODER,
    "problem.model.position.scaling": "none",
}
"""Path of the plan -> value that the emitted program always uses."""
WITHOUT_EXPERTS = {
    "shared_gate": False,
    "bias": False,
    "score_function": "softmax",
    "groups": 1,
    "router_bias": "none",
    "scaling_factor": 1,
    "latent_size": 0,
}
"""Field of the experts -> value that DeepSpeed's expert layer always uses."""
FIXED = {
    "layout.vpp": 1,
    "layout.schedule": "1f1b",
    "layout.sequence_parallel": False,
    "layout.order": "tp-cp-ep-dp-pp",
    "layout.cuda_graphs": False,
    "layout.gtp": 1,
    "layout.egtp": 1,
    "layout.offload.activations": [],
    "layout.recompute.modules": [],
    "layout.split.count_embedding": False,
    "layout.split.count_loss": False,
    "layout.split.text": "",
    "problem.job.moe_overlap": False,
    **ONLY_VALUES,
    "problem.job.lora": None,
}
"""Path of the plan -> value that DeepSpeed always uses."""
NOT_IN_FILES = MappingProxyType(
    {
        "problem.job.moe_imbalance": "property of the data, which only the estimates use",
        "layout.cp_a2a": "only relevant with a2a+p2p, which DeepSpeed does not support",
        "layout.offload.nvme_path": "only relevant with offload to NVMe",
        "layout.split.form": "train.json lists the layers of each stage",
        "problem.job.warmup_fraction": "warmup_num_steps is its result",
        "problem.job.wsd_decay_steps": "only relevant with wsd, which DeepSpeed does not support",
        "problem.job.tokenizer_type": "the tokenizer's files name its type",
        "problem.model.name": "label in reports",
        "problem.model.family": "the other fields describe the same model",
        "problem.model.source": "only the program of transformers reads it",
        "problem.model.init_std": "the emitted program draws weights with the defaults of torch",
        "problem.model.attention.full_attention_every": "only relevant with a window",
        "problem.model.experts.pre_softmax": "the gate always applies the softmax first",
        "problem.model.experts.group_top_k": "only relevant with groups",
        "problem.model.position.scaling_factor": "only relevant with scaling",
        "problem.model.position.original_max_positions": "only relevant with scaling",
        "problem.model.position.mscale": "only relevant with scaling",
        "problem.model.position.mscale_all_dim": "only relevant with scaling",
    }
)


def settings_fixed_by_framework(file: str, topology: DeepSpeedTopology) -> Iterator[DerivedSetting]:
    """Yield the plan values that are the same in every DeepSpeed job, whatever its files set."""
    for path, value in FIXED.items():
        yield DerivedSetting(path, value, file)
    # Without context parallelism nothing is exchanged, in whatever way the spec asks for it.
    valid = get_args(ContextComm) if topology.sequence == 1 else ("a2a",)
    yield DerivedSetting("layout.cp_comm", "a2a", file, accepts=lambda plan: plan in valid)
    path = "problem.job.moe_dispatcher"
    yield DerivedSetting(path, "alltoall", file, accepts=lambda plan: plan == "auto")


def program_settings(
    settings: EmittedSettings, topology: DeepSpeedTopology, emitted: bool
) -> Iterator[DerivedSetting]:
    """Yield the settings in ``train.json``.

    ``emitted`` is True if the job runs PARC's own program instead of the user's.
    """
    yield from read_parallel_sizes(settings, topology)
    for name in ("sequence_length", "steps", "seed", "kind"):
        yield settings.derive_from(f"problem.job.{name}", name)
    for setting, name in (("save", "dir"), ("interval", "interval")):
        yield settings.derive_from(f"problem.job.checkpoint_{name}", f"checkpoint.{setting}")
    yield settings.derive_from("problem.job.load_dir", "checkpoint.load")
    yield from _recompute_settings(settings, topology)
    yield from _stage_settings(settings)
    for name in ("global_batch", "data"):
        yield settings.derive_from(f"problem.job.{name}", name)
    tokenizer = settings.get("tokenizer", "missing") or None
    yield settings.derive("problem.job.tokenizer_model", tokenizer, "tokenizer")
    if builds_with_transformers(settings):
        yield from transformers_settings(settings)
        emitted = False
    else:
        for setting, field in MODEL.items():
            yield settings.derive_from(f"problem.model.{field}", f"model.{setting}")
    yield from _expert_settings(settings, emitted)
    if emitted:
        for path, value in WITHOUT.items():
            yield DerivedSetting(path, value, settings.file)
    yield from settings.unread_settings()


def read_parallel_sizes(
    settings: EmittedSettings, topology: DeepSpeedTopology
) -> Iterator[DerivedSetting]:
    """Yield the parallel sizes in ``topology`` as settings of the plan.

    The keys in the section ``topology`` of ``settings``, if there are any, are marked as read.
    """
    sizes = topology.sizes()
    for axis, size in (
        *(("pp", "pipe"), ("dp", "data"), ("cp", "sequence"), ("tp", "model")),
        *(("ep", "expert"), ("etp", "expert_model"), ("edp", "expert"), ("dp_shard", "data")),
    ):
        settings.get(f"topology.{size}")
        # ZeRO shards over all data-parallel ranks.
        value = topology.data if axis == "dp_shard" else sizes[axis]
        yield settings.derive(f"layout.{axis}", value, f"topology.{size}")
    yield settings.derive("layout.world", topology.world, "topology.data")
    yield settings.derive("layout.dp_replicate", 1)


def _recompute_settings(
    settings: EmittedSettings, topology: DeepSpeedTopology
) -> Iterator[DerivedSetting]:
    again = settings.get("recompute")
    granularity = {True: "full", False: "none"}.get(again) if isinstance(again, bool) else None
    yield settings.derive("layout.recompute.granularity", granularity, "recompute")
    if topology.pipe == 1:
        yield settings.derive("layout.recompute.method", "uniform" if again else None, "recompute")
        yield settings.derive("layout.recompute.layers", 1 if again else None, "recompute")


def _stage_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    counts, chunks, first = settings.get("stages"), [], 0
    if not isinstance(counts, list) or not all(type(one) is int for one in counts):
        yield settings.unexpected_setting("stages")
        return
    for stage, layers in enumerate(counts):
        chunk = {"first_layer": first, "layers": layers, "mtp_layers": 0}
        chunk |= {"embedding": stage == 0, "loss": stage == len(counts) - 1}
        chunks.append([chunk])
        first += layers
    yield settings.derive("layout.split.chunks", chunks, "stages")


def _expert_settings(settings: EmittedSettings, emitted: bool) -> Iterator[DerivedSetting]:
    if "experts" not in settings:
        yield settings.derive("problem.model.experts", None)
        return
    for name in EXPERTS:
        yield settings.derive_from(f"problem.model.experts.{name}", f"experts.{name}")
    pattern = _expert_layer_pattern(settings.get("experts.layers"), settings.get("model.layers"))
    yield settings.derive("problem.model.experts.pattern", pattern, "experts.layers")
    if emitted:
        for name, value in WITHOUT_EXPERTS.items():
            yield DerivedSetting(f"problem.model.experts.{name}", value, settings.file)


def _expert_layer_pattern(routed: Any, layers: Any) -> list[bool] | None:
    """Return one flag per layer, True if the layer has experts; None for unusable settings."""
    if not isinstance(routed, list) or type(layers) is not int or not 0 < layers <= MOST_LAYERS:
        return None
    pattern = [number in routed for number in range(layers)]
    return pattern if [n for n, one in enumerate(pattern) if one] == routed else None
