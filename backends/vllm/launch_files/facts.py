"""Conversion of a vLLM command to a serving problem and a layout.

The complete problem is used to word messages. In the partial problem, which rules are checked
against, values that the command does not determine are unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from parc.backends.vllm.computed_settings import KV_ROLES
from parc.backends.vllm.launch_files.import_command import DEGREES, LIMITS, SPREAD
from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.ir import ServingProblem
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.tools.importers.flags import LaunchFlag, whole_number
from parc.compiler.tools.lint.check_rules import LaunchFacts
from parc.compiler.tools.lint.complete_facts import (
    MODEL,
    catalog_name,
    checkpoint_format,
    cluster_section,
    is_catalog_cluster,
    known_cluster,
    known_pool,
    resolve_spec_tree,
)
from parc.compiler.tools.lint.options import LintOptions
from parc.compiler.tools.lint.partial_ir import mark_fields_unknown, with_field_values

TRANSFER = "--kv-transfer-config"
HYBRID = "--data-parallel-hybrid-lb"
SHARE, FORMAT, CACHE = "--gpu-memory-utilization", "--quantization", "--kv-cache-dtype"
TYPE = "--dtype"
CACHE_FORMATS = {"auto": "auto", "fp8": "fp8", "fp8_e4m3": "fp8", "bfloat16": "bf16"}
TYPES = {"auto": "bf16", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
"""Type of activations -> format of weights that are not quantized."""
OTHER_MEMORY = re.compile(
    r"--(load-format|cpu-offload|offload-|kv-offloading|kv-cache-memory|enable-lora|"
    r"num-gpu-blocks|speculative-config|hf-overrides|convert|config$|additional-config)"
)
"""Flags that change the memory of weights or KV cache in a way that PARC does not model."""
OTHER_FORMAT = re.compile(r"-(awq|gptq|int4|int8|w[0-9]a[0-9]+|gguf|nvfp4|mxfp4)\b")
NATIVE = ("deepseek_v3", "gpt_oss", "kimi_k2")
"""Families whose published checkpoints are quantized, which the catalog does not record."""


@frozen
class VllmFacts(LaunchFacts[ServingProblem, ServingLayout]):
    """Facts about a vLLM command whose layout is completely known."""

    refused: tuple[Diagnostic, ...]
    """Findings about known values, which apply to every layout."""


def vllm_facts(
    model: str, sure: Mapping[str, LaunchFlag], written: Collection[str], options: LintOptions
) -> VllmFacts | None:
    """Return the problem and the layout that a vLLM command describes.

    Return None if the command and ``options`` do not describe a valid problem.

    Args:
        model: name of the checkpoint that is served; empty if unknown.
        sure: name -> flag, for flags that have the same value in every run of the script.
        written: names of all flags in the script, including those that only some runs use.
        options: facts that the user gives on the command line of PARC.
    """
    name = options.model or catalog_name(model)
    tree = _spec_tree(name or MODEL, sure, options)
    plain = _resolve_problem(tree, options, Sink())
    if plain is None:
        return None
    trial = Sink()
    memory = _memory_settings(plain, model, sure, written) if name else None
    complete = (
        None if memory is None else _resolve_problem(_merge_sections(tree, memory), options, trial)
    )
    hidden = [*(() if complete else ("goals",)), *(() if name else ("model",))]
    counted = options.gpus is not None or is_catalog_cluster(options)
    problem = complete or plain
    cluster = known_cluster(problem.cluster, options, options.gpus_per_node is not None, counted)
    known = with_field_values(mark_fields_unknown(problem, hidden), cluster=cluster)
    if complete is None:
        known = with_field_values(known, service=known_pool(problem))
    if complete and not problem.service.quantize and problem.service.setup.weights != "bf16":
        # An 8-bit checkpoint has scales per tensor, channel or block; its name does not show which.
        service = with_field_values(
            problem.service, setup=mark_fields_unknown(problem.service.setup, ["block"])
        )
        known = with_field_values(known, service=service)
    layout = _serving_layout(tree["layout"])
    return VllmFacts(problem, layout, known, layout, tuple(trial.diagnostics))


def flag_number(flag: LaunchFlag | None) -> int | None:
    """Return the whole number that ``flag`` sets; None if the flag is absent or sets none."""
    return whole_number(flag.value) if flag is not None else None


def _spec_tree(model: str, sure: Mapping[str, LaunchFlag], options: LintOptions) -> dict[str, Any]:
    """Return a complete spec with the parallel sizes of a vLLM command.

    The spec has a cluster of 64 nodes unless the user gives a cluster or a number of GPUs.
    """
    layout: dict[str, Any] = {
        path.partition(".")[2]: flag_number(sure.get(flag)) or 1 for flag, path in DEGREES.items()
    }
    # A given number of GPUs determines the number of nodes instead.
    nodes: dict[str, Any] = {"nodes": 64} if options.cluster is None else {}
    return {
        "parc": 1,
        "name": "lint",
        "model": model,
        "cluster": cluster_section(nodes, options),
        "job": {
            "kind": "serve",
            "traffic": {"input_tokens": 1, "output_tokens": 1, "concurrency": 1},
            "checkpoint": "the-checkpoint",
            "precision": "bf16",
            "pool": _pool_of_connector(sure.get(TRANSFER)),
        },
        "goals": {"maximize": "throughput"},
        "layout": {**layout, "ep": "on" if SPREAD in sure else "off"},
        "launch": {"load_balancer": "hybrid" if HYBRID in sure else "internal"},
        "emit": ["vllm"],
        "versions": {"vllm": options.version},
    }


def _pool_of_connector(flag: LaunchFlag | None) -> str:
    """Return the value of ``job.pool`` that --kv-transfer-config sets."""
    try:
        config = json.loads(flag.values[0].text) if flag is not None and flag.values else {}
    except (ValueError, RecursionError):
        return "both"
    role = config.get("kv_role") if isinstance(config, dict) else None
    return next((pool for pool, one in KV_ROLES.items() if one == role), "both")


def _memory_settings(
    plain: ServingProblem, checkpoint: str, sure: Mapping[str, LaunchFlag], written: Collection[str]
) -> dict[str, Any] | None:
    """Return the spec fields that determine the memory of the weights and the KV cache.

    Return None if the command does not determine that memory. If the command does not limit the
    length of a request, the limit is the model's context length.
    """
    settings = (*LIMITS, SHARE, FORMAT, CACHE, TYPE)
    # A flag in a branch may change the memory, so that no estimate would be valid for every run.
    unsure = any(flag in written and flag not in sure for flag in settings)
    if unsure or any(OTHER_MEMORY.match(flag) for flag in written):
        return None
    values = {
        flag: sure[flag].values[0].text for flag in settings if flag in sure and sure[flag].values
    }
    limits = {path: flag_number(sure[flag]) for flag, path in LIMITS.items() if flag in sure}
    # 0.92 is the default of --gpu-memory-utilization in vLLM 0.28 to 0.33.
    share = re.fullmatch(r"0?\.[0-9]{1,4}|1(\.0*)?", values.get(SHARE, "0.92"))
    cache = CACHE_FORMATS.get(values.get(CACHE, "auto"))
    weights = _weight_format(plain, checkpoint, values)
    if weights is None or cache is None or share is None or None in limits.values():
        return None
    numbers = {path.partition(".")[2]: number for path, number in limits.items()}
    numbers.setdefault("max_model_len", plain.service.context)
    left = f"{100 - 100 * float(share[0]):.6g}%"
    return {
        "job": {**numbers, **weights, "kv_precision": cache},
        "goals": {"memory_headroom": left},
    }


def _weight_format(
    plain: ServingProblem, checkpoint: str, values: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the spec fields that set the number format of the weights.

    Return None if neither the flags nor the name of the checkpoint determine the format.
    """
    name, quantization = checkpoint.lower(), values.get(FORMAT)
    plain_type = TYPES.get(values.get(TYPE, "auto"))
    other = OTHER_FORMAT.search(name) or checkpoint_format(checkpoint) in ("int4", "nvfp4", "mxfp4")
    if quantization not in (None, "fp8") or other or plain_type is None:
        return None
    if name.endswith("-fp8"):
        return {"precision": "fp8"}
    if plain.model.family in NATIVE:
        return None
    return {"precision": "fp8", "quantize": True} if quantization else {"precision": plain_type}


def _merge_sections(tree: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec ``tree`` with the fields of ``parts`` added to its sections."""
    return {**tree, **{name: {**tree.get(name, {}), **parts[name]} for name in parts}}


def _resolve_problem(
    tree: Mapping[str, Any], options: LintOptions, sink: Sink
) -> ServingProblem | None:
    """Return the serving problem that the spec ``tree`` describes; None if the spec is invalid."""
    problem = resolve_spec_tree(tree, options, sink)
    return problem if isinstance(problem, ServingProblem) else None


def _serving_layout(pins: Mapping[str, Any]) -> ServingLayout:
    """Return the layout with the parallel sizes in ``pins``, the section ``layout`` of a spec."""
    tp, pp, dp, pcp, dcp = (pins[axis] for axis in ("tp", "pp", "dp", "pcp", "dcp"))
    spread = tp * pcp * dp if pins["ep"] == "on" else 1
    return ServingLayout(tp=tp, pp=pp, dp=dp, ep=spread, pcp=pcp, dcp=dcp)
