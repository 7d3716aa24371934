"""Readers of settings that fsdp, torchtitan and accelerate share.

The settings are parallel sizes, values that these frameworks always use, and features of a model
that a program for Llama models cannot build.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parc.backends.shared.verify_emitted_program import PLAIN_DECODER
from parc.backends.shared.verify_launch_script import ONLY_VALUES
from parc.backends.verifier import DerivedSetting
from parc.compiler.verify.device_mesh import ORDER, MeshSizes
from parc.compiler.verify.verify_settings import EmittedSettings

NOT_IN_TORCH_FILES = {
    "problem.job.moe_imbalance": "property of the data, which only the estimates use",
    "layout.cp_a2a": "only relevant with a2a+p2p, which no torch framework supports",
    "layout.edp": "follows from the other sizes",
    "layout.etp": "always 1 with experts; without experts it has no effect",
    "layout.split.form": "the split lists the layers of each stage",
    "problem.job.tokenizer_type": "the data are token ids, or the tokenizer is a folder",
    "problem.job.warmup_fraction": "warmup_steps is its result",
}
"""Path of the plan -> the reason why no file of these frameworks contains it."""
_FIXED = {
    "layout.order": ORDER,
    "layout.split.count_embedding": False,
    "layout.split.count_loss": False,
    "layout.split.text": "",
    "layout.offload.activations": [],
    "layout.offload.nvme_path": "",
    "layout.offload.optimizer": "none",
    "layout.offload.parameters": "none",
    "layout.cuda_graphs": False,
    "layout.gtp": 1,
    "layout.egtp": 1,
    "layout.zero_plus.hpz": 1,
    "layout.zero_plus.quantized_gradients": False,
    "layout.zero_plus.quantized_weights": False,
    "problem.job.moe_overlap": False,
    **ONLY_VALUES,
}
"""Path of the plan -> value that these frameworks always use."""


def settings_fixed_by_framework(file: str) -> Iterator[DerivedSetting]:
    """Yield the settings that have the same value in every job of a torch framework.

    The content of ``file`` does not change these values.
    """
    for path, value in _FIXED.items():
        yield DerivedSetting(path, value, file)
    yield DerivedSetting(
        "problem.job.moe_dispatcher", "alltoall", file, accepts=lambda plan: plan == "auto"
    )


def read_mesh_settings(
    settings: EmittedSettings, sizes: MeshSizes, names: Mapping[str, str], stage: int
) -> Iterator[DerivedSetting]:
    """Yield the parallel sizes of a device mesh.

    Args:
        settings: settings of the emitted file that contains the sizes.
        sizes: parallel sizes that were read from the settings.
        names: axis of the mesh -> name of the setting that contains the size of the axis.
        stage: ZeRO stage. At stage 0 every data-parallel rank is a replica, so dp_replicate and
            dp_shard are not yielded.
    """
    for axis in ("pp", "cp", "tp", "ep"):
        yield settings.derive(f"layout.{axis}", getattr(sizes, axis), names.get(axis, ""))
    if stage:
        for axis in ("dp_replicate", "dp_shard"):
            yield settings.derive(f"layout.{axis}", getattr(sizes, axis), names[axis])
    replicas = sizes.dp_replicate * sizes.dp_shard
    yield settings.derive("layout.dp", replicas, names["dp_replicate"])
    yield settings.derive("layout.world", sizes.world, names["dp_shard"])


def read_batch_settings(
    settings: EmittedSettings, micro_batch: str, steps: str, replicas: int
) -> Iterator[DerivedSetting]:
    """Yield the micro-batch size, the number of micro-batches per step, and the global batch.

    Args:
        settings: settings of the emitted file.
        micro_batch: name of the setting with the micro-batch size.
        steps: name of the setting with the number of micro-batches per step.
        replicas: number of data-parallel ranks.
    """
    size, count = settings.positive_integer(micro_batch), settings.positive_integer(steps)
    yield settings.derive("layout.micro_batch", size, micro_batch)
    yield settings.derive("layout.micro_batches", count, steps)
    yield settings.derive("problem.job.global_batch", size * count * replicas, steps)


def single_stage_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the pipeline settings of a job without a pipeline: one stage with all layers."""
    yield settings.derive("layout.vpp", 1)
    # Without stages no schedule applies; the plan then has the default.
    yield settings.derive("layout.schedule", "1f1b")
    if "layers" in settings:
        chunk = {
            "embedding": True,
            "first_layer": 0,
            "layers": settings.get("layers"),
            "loss": True,
            "mtp_layers": 0,
        }
        yield settings.derive("layout.split.chunks", [[chunk]], "layers")


def read_recompute_settings(
    settings: EmittedSettings, granularity: str, setting: str
) -> Iterator[DerivedSetting]:
    """Yield the fields of ``layout.recompute`` that follow from ``granularity``.

    ``granularity`` is "none", "selective" or "full". ``setting`` is the name of the setting that
    contains it.
    """
    whole = granularity == "full"
    parts = {
        "granularity": granularity,
        "method": "uniform" if whole else None,
        "layers": 1 if whole else None,
        "modules": ["op"] if granularity == "selective" else [],
    }
    for name, value in parts.items():
        yield settings.derive(f"layout.recompute.{name}", value, setting)


def read_adapter_settings(settings: EmittedSettings) -> Iterator[DerivedSetting]:
    """Yield the LoRA adapters in section ``lora``; a file without it trains all weights."""
    if "lora" not in settings:
        yield settings.derive("problem.job.lora", None)
        return
    for name in ("rank", "alpha", "dropout", "targets"):
        yield settings.derive_from(f"problem.job.lora.{name}", f"lora.{name}")


LLAMA = {
    **PLAIN_DECODER,
    "problem.model.norm": "rmsnorm",
    "problem.model.experts": None,
    "problem.model.attention.output_bias": False,
    "problem.model.ffn.gated": True,
    "problem.model.ffn.activation": "silu",
    "problem.model.ffn.bias": False,
    "problem.model.position.kind": "rope",
    "problem.model.position.percent": 1,
}
"""Path of the plan -> its value for a decoder with RMSNorm, gated MLP and rotary positions."""
UNUSED_IN_LLAMA = {
    "problem.model.name": "label in reports",
    "problem.model.family": "the other fields describe the same model",
    "problem.model.source": "records the origin of the numbers",
    "problem.model.init_std": "the program draws weights as its framework does",
    "problem.model.attention.full_attention_every": "only relevant with a window",
    "problem.model.position.mscale": "only relevant with yarn",
    "problem.model.position.mscale_all_dim": "only relevant with yarn",
}
"""Path of the plan -> the reason why no file of such a program contains it."""


def llama_model_settings(file: str) -> Iterator[DerivedSetting]:
    """Yield the features of the model that the code of the program ``file`` fixes."""
    return (DerivedSetting(path, value, file) for path, value in LLAMA.items())
