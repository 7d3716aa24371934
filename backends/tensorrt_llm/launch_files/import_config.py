"""Import of a configuration file of trtllm-serve, which contains keys of class TorchLlmArgs.

Source of the keys: TensorRT-LLM 1.0 to 1.2, tensorrt_llm/llmapi/llm_args.py.
"""

from __future__ import annotations

from typing import Any

from parc.backends.tensorrt_llm.arguments import NAME
from parc.compiler.diagnostics import Sink
from parc.compiler.topology.readers.document import DocumentNode, leaves_by_path, read_document
from parc.compiler.topology.readers.reader_state import Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat

NUMBERS = {
    "tensor_parallel_size": "layout.tp",
    "pipeline_parallel_size": "layout.pp",
    "moe_expert_parallel_size": "layout.ep",
    "max_batch_size": "job.max_num_seqs",
    "max_num_tokens": "job.max_num_batched_tokens",
    "max_seq_len": "job.max_model_len",
    "kv_cache_config.tokens_per_block": "job.block_tokens",
}
"""Key with a whole number -> field of the spec."""
NAMES: dict[str, dict[str, tuple[str, str] | None]] = {
    "dtype": {"float16": ("job.precision", "fp16"), "bfloat16": None, "auto": None},
    "kv_cache_config.dtype": {"fp8": ("job.kv_precision", "fp8"), "auto": None},
}
"""Key -> value -> (field, value of the field); None if the spec needs no field."""
FRACTION, ATTENTION_DP = "kv_cache_config.free_gpu_memory_fraction", "enable_attention_dp"
PARTITION = "pp_partition"
WRITTEN = {
    "enable_chunked_prefill": (True,),
    "cuda_graph_config.enable_padding": (True,),
    "backend": ("pytorch",),
    "kv_cache_config.enable_block_reuse": (True,),
    ATTENTION_DP: (False,),
}
"""Key without a field in the spec -> values that are equal to what PARC writes."""
LARGEST = 10**9


def read_trtllm_yaml(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the spec fields that a configuration file sets; None if the text is unusable.

    Keys without a field in the spec are reported (I04).
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    found = leaves_by_path(root)
    for key, node in found.items():
        if not _read_key(key, node, reading) and node.value not in WRITTEN.get(key, ()):
            # PARC derives the sizes of CUDA graphs from job.max_num_seqs.
            hint = "" if key == "cuda_graph_config.max_batch_size" else "PARC does not plan it"
            reading.leave_out(f"{key}: {node.value}", node.span, hint)
    if ATTENTION_DP in found and found[ATTENTION_DP].value is True:
        _turn_tp_into_dp(found[ATTENTION_DP], reading)
    if not reading.spec and reading.is_valid:
        reading.report_error("I02", "this file sets no field of a spec", root.span)
    reading.spec["job"] = {"kind": "serve", **reading.spec.get("job", {})}
    reading.spec["emit"] = [NAME, "rankmap"]
    return reading.fragment()


def _read_key(key: str, node: DocumentNode, reading: Reading) -> bool:
    """Set the field of a key; return False if no field expresses the key and its value."""
    value = node.value
    if key in NUMBERS and type(value) is int and 0 < value < LARGEST:
        _set_field(reading, NUMBERS[key], value, node)
        return True
    if key in NAMES and isinstance(value, str) and value in NAMES[key]:
        field = NAMES[key][value]
        if field is not None:
            _set_field(reading, *field, node)
        return True
    if key == FRACTION and isinstance(value, float) and 0 < value < 1:
        _set_field(reading, "goals.memory_headroom", round(1 - value, 6), node)
        return True
    if key == PARTITION and isinstance(value, list) and all(type(one) is int for one in value):
        _set_field(reading, "layout.stage_layers", value, node)
        return True
    return key == ATTENTION_DP and value is True


def _set_field(reading: Reading, path: str, value: Any, node: DocumentNode) -> None:
    """Set the field ``path`` of the spec, and record the position of its key."""
    section, _, field = path.partition(".")
    reading.spec.setdefault(section, {})[field] = value
    reading.spans[path] = node.span


def _turn_tp_into_dp(node: DocumentNode, reading: Reading) -> None:
    """Turn the tensor-parallel ranks into data-parallel ranks, as enable_attention_dp does."""
    layout = reading.spec.get("layout", {})
    if "tp" not in layout:
        hint = "set layout.dp to the value of --tp_size, and layout.tp to 1"
        reading.leave_out(f"{ATTENTION_DP}: true", node.span, hint)
        return
    layout["dp"], layout["tp"] = layout["tp"], 1
    reading.spans["layout.dp"] = node.span


CONFIG_FORMAT = FileFormat(
    read_trtllm_yaml,
    "configuration file of trtllm-serve (--config, --extra_llm_api_options)",
    (
        r"(?m)^(kv_cache_config|cuda_graph_config|moe_config|enable_attention_dp"
        r"|disable_overlap_scheduler|enable_chunked_prefill):",
    ),
)
