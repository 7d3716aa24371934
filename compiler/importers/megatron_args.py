"""Megatron-LM: an arguments file, or a script with its flags, to model, layout and job.

Flags: NVIDIA/Megatron-LM, megatron/training/arguments.py.
"""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.importers.flags import Flag, Row, report_unknown, take_flags, written_flags
from parc.compiler.importers.shell_words import Word, shell_words
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.reading import Reading

TABLE: dict[str, Row] = {
    "--tensor-model-parallel-size": Row("layout.tp"),
    "--pipeline-model-parallel-size": Row("layout.pp"),
    "--context-parallel-size": Row("layout.cp"),
    "--expert-model-parallel-size": Row("layout.ep"),
    "--expert-tensor-parallel-size": Row("layout.etp"),
    "--sequence-parallel": Row("layout.sequence_parallel", "set", True),
    "--use-distributed-optimizer": Row("layout.zero_stage", "set", 1),
    "--use-tp-pp-dp-mapping": Row("layout.order", "set", "tp-cp-ep-pp-dp"),
    "--num-virtual-stages-per-pipeline-rank": Row("layout.vpp"),
    "--num-layers-per-virtual-pipeline-stage": Row("virtual.layers"),
    "--decoder-first-pipeline-num-layers": Row("layout.first_stage_layers"),
    "--decoder-last-pipeline-num-layers": Row("layout.last_stage_layers"),
    "--pipeline-model-parallel-layout": Row("layout.pipeline_layout", "text"),
    "--account-for-embedding-in-pipeline-split": Row("layout.count_embedding", "set", True),
    "--account-for-loss-in-pipeline-split": Row("layout.count_loss", "set", True),
    "--micro-batch-size": Row("layout.micro_batch"),
    "--recompute-activations": Row("layout.recompute.granularity", "set", "selective"),
    "--recompute-granularity": Row("layout.recompute.granularity", "text"),
    "--recompute-method": Row("layout.recompute.method", "text"),
    "--recompute-num-layers": Row("layout.recompute.layers"),
    "--recompute-modules": Row("layout.recompute.modules", "texts"),
    "--global-batch-size": Row("job.global_batch"),
    "--seq-length": Row("job.sequence_length"),
    "--train-iters": Row("job.steps"),
    "--lr": Row("job.learning_rate", "float"),
    "--bf16": Row("job.precision", "set", "bf16"),
    "--fp16": Row("job.precision", "set", "fp16"),
    "--fp8-format": Row("precision.fp8", "text"),
    "--fp8-recipe": Row("precision.recipe", "text"),
    "--fp4-format": Row("precision.fp4", "text"),
    "--grad-reduce-in-bf16": Row("job.gradient_precision", "set", "bf16"),
    "--data-path": Row("job.data", "texts"),
    "--tokenizer-type": Row("job.tokenizer", "text"),
    "--tokenizer-model": Row("job.tokenizer_model", "text"),
    "--save": Row("job.checkpoint_dir", "text"),
    "--save-interval": Row("job.checkpoint_interval"),
    "--load": Row("job.load_dir", "text"),
    "--finetune": Row("job.kind", "set", "finetune"),
    "--num-layers": Row("model.layers"),
    "--hidden-size": Row("model.hidden"),
    "--ffn-hidden-size": Row("model.ffn"),
    "--num-attention-heads": Row("model.heads"),
    "--num-query-groups": Row("model.kv_heads"),
    "--kv-channels": Row("model.head_dim"),
    "--vocab-size": Row("model.vocab"),
    "--swiglu": Row("model.gated", "set", True),
    "--squared-relu": Row("model.activation", "set", "relu2"),
    "--add-qkv-bias": Row("model.qkv_bias", "set", True),
    "--disable-bias-linear": Row("bias.none", "set", True),
    "--untie-embeddings-and-output-weights": Row("bias.untied", "set", True),
    "--normalization": Row(
        "model.norm", "text", words={"RMSNorm": "rmsnorm", "LayerNorm": "layernorm"}
    ),
    "--norm-epsilon": Row("model.norm_epsilon", "float"),
    "--qk-layernorm": Row("model.qk_norm", "set", "head"),
    "--position-embedding-type": Row(
        "model.position.kind",
        "text",
        words={"rope": "rope", "yarn": "yarn", "learned_absolute": "learned", "none": "none"},
    ),
    "--rotary-base": Row("model.position.base", "float"),
    "--rotary-percent": Row("model.position.percent", "float"),
    "--max-position-embeddings": Row("model.position.max_positions"),
    "--mtp-num-layers": Row("model.mtp_layers"),
    "--num-experts": Row("model.experts.count"),
    "--moe-router-topk": Row("model.experts.top_k"),
    "--moe-ffn-hidden-size": Row("model.experts.size"),
    "--moe-shared-expert-intermediate-size": Row("model.experts.shared_size"),
}
"""``virtual``, ``precision`` and ``bias`` are no parts of a spec: ``_derive`` drops them."""


def read_megatron_args(text: str, name: str, sink: Sink) -> Fragment | None:
    """Layout pins, job and model shape; flags that PARC writes itself are not worth a word."""
    reading = Reading(text, name, sink)
    read_words(shell_words(text, name), reading)
    if not reading.spec and reading.sound:
        finding = Finding("no flag of Megatron in this file", help="--tensor-model-parallel-size 8")
        reading.refuse("I02", finding, reading.span())
    return reading.fragment()


def read_words(words: list[Word], reading: Reading) -> None:
    """Take the flags of Megatron among ``words``."""
    from parc.backends.megatron.arguments import flag_table

    own = {row.flag for row in flag_table()}
    unknown = take_flags(written_flags(words, TABLE), TABLE, reading)
    _derive(reading)
    set_by_parc = [flag for flag in unknown if flag.name in own]
    if set_by_parc:
        names = ", ".join(dict.fromkeys(flag.name for flag in set_by_parc))
        reading.notes.append(f"PARC decides these itself: {names}")
    report_unknown(_others(unknown, own), "launch.args takes it, if it still holds", reading)


def _others(flags: list[Flag], own: set[str]) -> list[Flag]:
    return [flag for flag in flags if flag.name not in own]


def _derive(reading: Reading) -> None:
    """What follows from several flags together, and what the absence of a flag says."""
    spec = reading.spec
    if not spec:
        return
    layout, job = spec.setdefault("layout", {}), spec.setdefault("job", {})
    _precision(spec.pop("precision", {}), job)
    flags = spec.pop("bias", {})
    _virtual(spec.pop("virtual", {}).get("layers"), layout, spec)
    layout.setdefault("zero_stage", 0)
    layout.setdefault("sequence_parallel", False)
    _recompute(layout)
    model = spec.get("model")
    if model:
        biased = not flags.get("none", False)
        model |= {"mlp_bias": biased, "attention_output_bias": biased}
        model["qkv_bias"] = biased or model.get("qkv_bias", False)
        model["tied_embeddings"] = not flags.get("untied", False)
        model.setdefault("gated", False)
        model.setdefault("norm", "layernorm")
        if not model["gated"]:
            model.setdefault("activation", "gelu_tanh")
        if "ffn" not in model and not model["gated"] and "hidden" in model:
            model["ffn"] = 4 * model["hidden"]
    for section in ("layout", "job"):
        if not spec[section]:
            del spec[section]


def _precision(written: dict[str, Any], job: dict[str, Any]) -> None:
    if "fp4" in written:
        job["precision"] = "nvfp4"
    elif "fp8" in written:
        job["precision"] = "mxfp8" if written.get("recipe") == "mxfp8" else "fp8"


def _virtual(layers: int | None, layout: dict[str, Any], spec: dict[str, Any]) -> None:
    """Layers of a virtual stage -> virtual stages: layers / pp / that."""
    total = spec.get("model", {}).get("layers")
    if layers and total and total % (layout.get("pp", 1) * layers) == 0:
        layout.setdefault("vpp", total // (layout.get("pp", 1) * layers))


def _recompute(layout: dict[str, Any]) -> None:
    """One word where there is nothing more to say; none without a flag."""
    recompute = layout.get("recompute", {})
    if "granularity" not in recompute:
        layout["recompute"] = "none"
    elif len(recompute) == 1:
        layout["recompute"] = recompute["granularity"]
