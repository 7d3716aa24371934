"""Reader of the plan settings in the flags of ``serve.sh`` and the keys of config.yaml.

Flags, keys and their defaults are those of TensorRT-LLM 1.0 to 1.2: commands/serve.py and
llmapi/llm_args.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parc.backends.shared.serving.verify_serve_script import ScriptWord
from parc.backends.shared.serving.verify_shared_flags import SharedFlags, read_shared_flags
from parc.backends.verifier import DerivedSetting
from parc.compiler.verify.emitted_settings import EmittedSettings, translate_name, yaml_settings

SCRIPT, START = "tensorrt-llm/serve.sh", "tensorrt-llm/start.sh"
CONFIG = "tensorrt-llm/config.yaml"
EXTRA = "problem.launch.args"
VALUES = (
    *("tp_size", "pp_size", "ep_size", "max_batch_size", "max_num_tokens", "max_seq_len"),
    *("backend", "host"),
)
ACTIVATIONS = {"bfloat16": "bf16", "float16": "fp16"}
ATTENTION_DP = "enable_attention_dp"
BLACKWELL = 10
"""Major compute capability from which experts with fp8 weights in blocks need DEEPGEMM."""


def read_config(artifacts: Mapping[str, str]) -> EmittedSettings:
    """Return the settings of config.yaml; without the file, there are none."""
    return yaml_settings(CONFIG, artifacts.get(CONFIG, "{}"))


def uses_attention_dp(artifacts: Mapping[str, str]) -> bool:
    """Return True if every rank of a stage is a data-parallel rank."""
    return read_config(artifacts).values.get(ATTENTION_DP) is True


def read_shared(words: tuple[ScriptWord, ...]) -> SharedFlags:
    """Return the arguments, separated into flags of the plan and other words."""
    return read_shared_flags(SCRIPT, words, VALUES, ())


def read_flag_settings(
    checkpoint: ScriptWord, shared: SharedFlags, attention_dp: bool
) -> Iterator[DerivedSetting]:
    """Yield the plan settings in the shared arguments.

    Args:
        checkpoint: the first word after the program.
        shared: arguments that all processes share.
        attention_dp: True if config.yaml sets enable_attention_dp.
    """
    tp, ep, one = shared["tp_size"], shared["ep_size"], shared["cp_size"]
    ranks = 1 if tp.text is None else tp.number
    yield tp.derive("layout.tp", 1 if attention_dp else ranks)
    yield tp.derive("layout.dp", ranks if attention_dp else 1)
    yield shared["pp_size"].derive("layout.pp", shared["pp_size"].number or 1)
    yield ep.derive("layout.ep", 1 if ep.text is None else ep.number)
    yield from (one.derive(f"layout.{name}", 1) for name in ("dcp", "pcp"))
    yield one.derive("layout.redundant_experts", None)
    yield one.derive("problem.pins.redundant_experts", None)
    yield one.derive("layout.all2all", "auto")
    yield one.derive("problem.service.setup.speculative", None)
    yield one.derive("problem.pins.all2all", None)
    for name, path in (
        ("max_batch_size", "limits.max_num_seqs"),
        ("max_num_tokens", "limits.max_num_batched_tokens"),
        ("max_seq_len", "limits.max_model_len"),
    ):
        yield shared[name].derive(path, shared[name].number)
    path = "problem.service.checkpoint"
    yield DerivedSetting(path, checkpoint.text, SCRIPT, checkpoint.line, checkpoint.text)
    extra = [word.text for word in shared.extra]
    line = shared.extra[0].line if shared.extra else 1
    # These flags have one valid value, which is not a setting of the plan.
    wrong = [
        word
        for name, value in (("host", "0.0.0.0"), ("backend", "pytorch"))
        if shared[name].text != value
        for word in (f"--{name}", shared[name].text or "")
    ]
    yield DerivedSetting(EXTRA, [*wrong, *extra], SCRIPT, line, " ".join(extra))


def read_config_settings(
    config: EmittedSettings, shared: SharedFlags, problem: Mapping[str, Any]
) -> Iterator[DerivedSetting]:
    """Yield the plan settings in config.yaml.

    Args:
        config: settings of config.yaml.
        shared: arguments that all processes share.
        problem: section ``problem`` of plan.json; empty if plan.json was not emitted.
    """
    config.get(ATTENTION_DP)  # the flags were read with it
    activations = translate_name(ACTIVATIONS, config.get("dtype", "auto"))
    weights: Any = activations
    if activations == "bf16":
        weights = frozenset({"bf16", "fp8", "int4", "nvfp4", "mxfp4"})
    yield config.decide("problem.service.setup.weights", weights, "dtype")
    cache = config.get("kv_cache_config.dtype", "auto")
    kv = activations if cache == "auto" else cache
    yield config.decide("problem.service.setup.kv", kv, "kv_cache_config.dtype")
    yield config.decide("problem.service.quantize", False)
    yield config.read(
        "limits.gpu_memory_utilization", "kv_cache_config.free_gpu_memory_fraction", 0.9
    )
    reuse = "kv_cache_config.enable_block_reuse"
    yield config.read("problem.service.prefix_caching", reuse, True)
    yield config.read("problem.service.block_tokens", "kv_cache_config.tokens_per_block", 32)
    yield from config.expect("enable_chunked_prefill", True, False)
    yield from config.expect("cuda_graph_config.enable_padding", True, False)
    graphs = shared["max_batch_size"].number
    yield from config.expect("cuda_graph_config.max_batch_size", graphs)
    layers = problem.get("model", {}).get("layers")
    yield from _read_stages(config, shared.size("pp_size"), layers)
    if problem:
        yield from config.expect("moe_config.backend", _needed_moe_backend(problem))
    yield from config.unread_settings()


def _read_stages(
    config: EmittedSettings, stages: int, layers: int | None
) -> Iterator[DerivedSetting]:
    """Yield the number of layers of each pipeline stage.

    Without pp_partition, the first stages get the layers that remain after an even split
    (mapping.py, pp_layers).
    """
    path, partition = "layout.stages", config.get("pp_partition")
    if partition is not None:
        yield config.decide(path, partition, "pp_partition")
    elif stages == 1:
        yield DerivedSetting(path, [], CONFIG, accepts=lambda planned: len(planned) < 2)
    elif layers is not None and stages <= layers:
        split = [layers // stages + (stage < layers % stages) for stage in range(stages)]
        yield config.decide(path, split)


def _needed_moe_backend(problem: Mapping[str, Any]) -> str | None:
    """Return the kernels that the experts of the planned model need; None for the default.

    CUTLASS has no kernels for fp8 weights in blocks on Blackwell (documentation of DeepSeek-R1).
    """
    setup = problem["service"]["setup"]
    # Blocks of 128 weights are the usual ones of fp8.
    in_blocks = setup["weights"] == "fp8" and setup["block"] != 1
    blackwell = problem["cluster"]["gpu"]["compute_capability"][0] >= BLACKWELL
    has_experts = problem["model"]["experts"] is not None
    return "DEEPGEMM" if in_blocks and blackwell and has_experts else None
