"""Check commands of SGLang's server with the real SGLang, on a CPU.

    python sglang_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "argv": ["--model-path", "MODEL", ...], "env": {}, "gpu": {...}, "config": {...},
"groups": false}. "argv" has the words after `python3 -m sglang.launch_server`; "config" is the
model's config.json and replaces the model that "argv" names; "gpu" has the fields of
sglang_machine.Machine. A verdict adds "sizes", and on request
"groups": {"tp": [[0, 1], ...], "attention_tp": ..., "moe_ep": ..., "pp": ...} of one engine. For a
case {"name", "flags": true}, it adds only "flags": the rows of known_flags.json. Stages:

    parse      the parser of the server
    resolve    ServerArgs.resolve_once and check_server_args: defaults, rules of models and sizes
    groups     initialize_model_parallel with a function that records the groups

Kernels, activations, checkpoints and tokenizers are not checked. Runs under the Python that has
SGLang; imports neither PARC nor pytest.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from case_lines import FAULTS, Case, Rejected, Verdict, answer_cases, import_before_forks
from sglang_machine import Machine, install_machine

IMPORTED_LATE = (
    "sglang.srt.arg_groups.pipeline",
    "sglang.srt.distributed.parallel_state",
    "sglang.srt.layers.dp_attention",
    "sglang.srt.entrypoints.engine",
)
MACHINE = Machine("NVIDIA H200", 139.8, (9, 0))
SIZES = {
    "tp_size": "tp",
    "pp_size": "pp",
    "attn_dp_size": "dp",
    "ep_size": "ep",
    "nnodes": "nodes",
    "node_rank": "node_rank",
    "context_length": "max_model_len",
    "max_running_requests": "max_num_seqs",
    "chunked_prefill_size": "max_num_batched_tokens",
    "mem_fraction_static": "gpu_memory_utilization",
    "page_size": "block_size",
    "dtype": "dtype",
    "kv_cache_dtype": "kv_cache_dtype",
    "quantization": "quantization",
    "moe_a2a_backend": "a2a",
    "deepep_mode": "deepep_mode",
    "enable_eplb": "eplb",
    "ep_num_redundant_experts": "redundant_experts",
}


def check(case: Case, verdict: Verdict) -> None:
    """Run the stages in order, up to the first that rejects the case."""
    vars(MACHINE).update(case.get("gpu", {}))
    MACHINE.capability = tuple(MACHINE.capability)
    MACHINE.gpus = case.get("gpus_per_node", 8)
    os.environ.update(case.get("env", {}))
    verdict["stage"] = "parse"
    if case.get("flags"):
        verdict["flags"] = list(known_flags())
        return
    argv = list(case["argv"])
    argv[argv.index("--model-path") + 1] = write_config(case["config"])
    args = parse(argv)
    verdict["stage"] = "resolve"
    args.resolve_once()
    args.check_server_args()
    verdict["sizes"] = sizes(args)
    if case.get("groups"):
        verdict["stage"] = "groups"
        verdict["groups"] = groups_of(args)


def parse(argv: list[str]) -> Any:
    """Parse as sglang/launch_server.py does."""
    from sglang.srt.server_args import prepare_server_args

    heard = io.StringIO()
    try:
        with contextlib.redirect_stderr(heard):
            return prepare_server_args(argv)
    except SystemExit as stop:
        raise Rejected(heard.getvalue().rpartition("error: ")[2].strip()) from stop


def known_flags() -> Iterator[dict[str, Any]]:
    """Yield a row for every spelling of every flag of the parser."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    for action in parser._actions:
        main = next(name for name in action.option_strings if name.startswith("--"))
        row: dict[str, Any] = {"takes": 1 if action.nargs is None else action.nargs}
        if action.choices:
            row["choices"] = sorted(map(str, action.choices))
        if action.type in (int, float):
            row["type"] = "int" if action.type is int else "float"
        for name in action.option_strings:
            yield {"flag": name, **row} | ({} if name == main else {"means": main})


def write_config(config: dict[str, Any]) -> str:
    """Return a folder that contains only the model's config.json, the same one for equal
    configs.
    """
    text = json.dumps(config, sort_keys=True)
    name = "parc-sglang-checker-" + hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), name)
    folder.mkdir(exist_ok=True)
    draft = folder / f"config.json.{os.getpid()}"
    draft.write_text(text)
    draft.replace(folder / "config.json")
    return str(folder)


def sizes(args: Any) -> dict[str, Any]:
    """Return the settings that SGLang derived, and the ranks that this command starts."""
    from sglang.srt.arg_groups.overrides import resolved_view
    from sglang.srt.distributed.utils import get_pp_indices

    view = resolved_view(args)
    found = {name: getattr(view, field) for field, name in SIZES.items()}
    layers, pp = model_layers(args), found["pp"]
    ends = [get_pp_indices(layers, stage, pp) for stage in range(pp)]
    return found | {
        "pp_layers": [end - start for start, end in ends],
        "node_ranks": ranks_of_node(view),
        "features": features(view),
    }


def features(view: Any) -> dict[str, Any]:
    """Return the settings of the optional features that SGLang derived."""
    draft = [view.speculative_algorithm, view.speculative_num_draft_tokens]
    names = [one.lora_name for one in view.lora_paths or []] if view.enable_lora else None
    return {
        "draft": draft if draft[0] else None,
        "lora": [view.max_loras_per_batch, view.max_lora_rank, names] if view.enable_lora else None,
        "offload_gb": view.hicache_size if view.enable_hierarchical_cache else None,
        "prefix_caching": not view.disable_radix_cache,
        "balancer": view.load_balance_method,
        "pool": [view.disaggregation_mode, view.disaggregation_bootstrap_port],
    }


def model_layers(args: Any) -> int:
    """Return the number of decoder layers that SGLang reads from the config."""
    from sglang.srt.arg_groups.overrides import model_config_of

    return int(model_config_of(args).num_hidden_layers)


def ranks_of_node(view: Any) -> list[int]:
    """Return the ranks that the command starts, from the ranges of the real launcher."""
    import sglang.srt.entrypoints.engine as engine

    vars(engine)["get_parallel"] = lambda: view
    stages, ranks, *_ = engine._calculate_rank_ranges(view.node_rank)
    return [stage * view.tp_size + rank for stage in stages for rank in ranks]


def groups_of(args: Any) -> dict[str, list[list[int]]]:
    """Return the groups of the engine that initialize_model_parallel creates."""
    import torch.distributed as dist
    from sglang.srt.arg_groups.overrides import resolved_view
    from sglang.srt.distributed import parallel_state as state

    view = resolved_view(args)
    found: dict[str, list[list[int]]] = {}
    group = types.SimpleNamespace(
        local_rank=0, device_group=None, rank_in_group=0, pynccl_comm=None, world_size=1
    )

    def note(group_ranks: Any, *_: Any, group_name: str, **__: Any) -> Any:
        found[group_name] = [[int(rank) for rank in ranks] for ranks in group_ranks]
        return group

    world = view.tp_size * view.pp_size
    widths = types.SimpleNamespace(
        tp_size=view.tp_size,
        moe_ep_size=view.ep_size,
        pp_size=view.pp_size,
        attn_dp_size=view.attn_dp_size,
        attn_cp_size=view.attn_cp_size,
        moe_dp_size=view.moe_dp_size,
        attn_dcp_size=view.dcp_size,
        shared_experts_tp_size=view.shared_experts_tp_size,
        override_permanently=lambda **_: None,
    )
    vars(state).update(
        init_model_parallel_group=note, get_world_group=lambda: group, get_parallel=lambda: widths
    )
    vars(dist).update(
        is_initialized=lambda: True,
        get_world_size=lambda *_, **__: world,
        get_rank=lambda *_, **__: 0,
        get_backend=lambda *_, **__: "fake",
    )
    state.initialize_model_parallel(backend="fake")
    return found


def main() -> int:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    import_before_forks("torch")
    install_machine(MACHINE)
    import_before_forks("sglang.srt.server_args", *IMPORTED_LATE)
    return answer_cases(check, FAULTS)


if __name__ == "__main__":
    sys.exit(main())
