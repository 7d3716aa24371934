"""Check `vllm serve` commands with the real vLLM, on a CPU.

    python vllm_checker.py [SOURCES] < cases.jsonl > verdicts.jsonl

SOURCES is a folder with the Python files of another version of vLLM than the installed one. A case
with "flags": true gets "flags", the spellings that the parser accepts as rows of known_flags.json.

A case: {"name", "argv": ["MODEL", "-tp", "8", ...], "env": {}, "gpu": "h100", "gpus_per_node": 8,
"config": {...}, "groups": false, "cache": []}. "argv" has the words after `vllm serve`; "config" is
the model's config.json and replaces the model that "argv" names; "gpu" is a key of
vllm_machine.MACHINES or a mapping of the fields of Machine. A verdict adds "sizes", and on request
"groups": {"tp": [[0, 1], ...], "pp": ..., "dp": ..., "ep": ..., ...} of the whole deployment, from
the real initialize_model_parallel. If "cache" has the free bytes of each stage, it adds the result
of vllm_cache.caches for them. Stages:

    parse      the parser of `vllm serve`
    config     the command itself, up to its launchers, which build the engine's config objects
    groups     initialize_model_parallel with a function that records the groups
    cache      the model's class without weights, and the planner of the cache

Kernels, activations, checkpoints and tokenizers are not checked. Runs under the Python that has
vLLM; imports neither PARC nor pytest.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
import types
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from absent_modules import install_absent_modules
from case_lines import FAULTS, Case, Rejected, Verdict, answer_cases, import_before_forks
from vllm_cache import caches
from vllm_machine import MACHINES, Machine, install_machine

IMPORTED_LATE = (
    "vllm._custom_ops",
    "vllm._aiter_ops",
    "vllm.v1.attention.backends.mla.indexer",
    "vllm.model_executor.models.config",
    "vllm.model_executor.warmup.jit_warmup",
    "vllm.model_executor.layers.quantization.fp8",
)
"""Modules that vLLM imports only when it builds a config, which would add a second to every case.
"""
QUIET = {
    "VLLM_CONFIGURE_LOGGING": "0",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "CRITICAL",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "",
}
MACHINE = Machine(**vars(MACHINES["h100"]))
BOUNDS = {
    "ge": "minimum",
    "gt": "exclusive_minimum",
    "le": "maximum",
    "lt": "exclusive_maximum",
}
"""Bound of a pydantic field -> column of known_flags.json."""


def check(case: Case, verdict: Verdict) -> None:
    """Run the stages in order, up to the first that rejects the case."""
    if case.get("flags"):
        verdict["flags"] = flag_rows()
        return
    gpu = case.get("gpu", "h100")
    vars(MACHINE).update(gpu if isinstance(gpu, dict) else vars(MACHINES[gpu]))
    MACHINE.capability = tuple(MACHINE.capability)
    MACHINE.gpus = case.get("gpus_per_node", 8)
    os.environ.update(case.get("env", {}))
    verdict["stage"] = "parse"
    args = parse(case["argv"])
    verdict["stage"] = "config"
    args.model = args.model_tag = write_config(case["config"])
    args.skip_tokenizer_init = True
    launcher, config = configure(args)
    verdict["sizes"] = sizes(config) | {"launcher": launcher, "api_servers": args.api_server_count}
    if case.get("groups"):
        verdict["stage"] = "groups"
        verdict["groups"] = groups_of(config)
    if case.get("cache"):
        verdict["stage"] = "cache"
        verdict["cache"] = caches(config, case["cache"])


def parse(argv: list[str]) -> Namespace:
    """Parse as vllm/entrypoints/cli/main.py does."""
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser, command, heard = FlexibleArgumentParser(), ServeSubcommand(), io.StringIO()
    command.subparser_init(parser.add_subparsers(dest="subparser"))
    try:
        with contextlib.redirect_stderr(heard):
            args = parser.parse_args(["serve", *argv])
    except SystemExit as stop:
        raise Rejected(heard.getvalue().rpartition("error: ")[2].strip()) from stop
    command.validate(args)
    return args


def flag_rows() -> list[dict[str, Any]]:
    """Return a row for every spelling of a flag that the parser of `vllm serve` accepts."""
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    commands = FlexibleArgumentParser().add_subparsers(dest="subparser")
    with recorded_config_classes() as classes:
        parser = ServeSubcommand().subparser_init(commands)
    bounds: dict[str, dict[str, Any]] = {}
    for one in classes:
        for name, found in bounds_of_fields(one):
            bounds.setdefault(name, found)
    spellings = sorted(parser._option_string_actions.items())
    return [
        flag_row(flag, action) | bounds.get(action.dest, {})
        for flag, action in spellings
        if action.dest != "help"
    ]


@contextlib.contextmanager
def recorded_config_classes() -> Iterator[list[Any]]:
    """Yield a list that gets the config classes whose fields the parser offers as flags."""
    from vllm.engine import arg_utils

    classes, real = [], arg_utils.get_kwargs

    def get_kwargs(cls: Any) -> Any:
        classes.append(cls)
        return real(cls)

    arg_utils.get_kwargs = get_kwargs
    try:
        yield classes
    finally:
        arg_utils.get_kwargs = real


def bounds_of_fields(cls: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (field, bounds of known_flags.json) of a pydantic dataclass, from gt, ge, lt and le."""
    # Without bounds too: the first class with a field of this name has the flag.
    for name, field in getattr(cls, "__pydantic_fields__", {}).items():
        found = {
            column: plain_number(getattr(limit, key))
            for limit in field.metadata
            for key, column in BOUNDS.items()
            if getattr(limit, key, None) is not None
        }
        yield name, found


def plain_number(number: float) -> float:
    """Return a whole number as int, so that 0.0 and 0 give the same row."""
    return int(number) if number == int(number) else number


def flag_row(flag: str, action: Any) -> dict[str, Any]:
    """Return the row of a flag: its number of values, their type and the valid values."""
    row: dict[str, Any] = {"flag": flag, "takes": 1 if action.nargs is None else action.nargs}
    # Optional numbers accept None, lengths 1k, and JSON {}: they are not plain numbers.
    others = ("None", "1k", "{}")
    if action.type and accepts(action, "1") and not any(accepts(action, t) for t in others):
        row["type"] = "float" if accepts(action, "1.5") else "int"
    if action.choices:
        texts = map(str, action.choices)
        row["choices"] = sorted(texts, key=lambda t: (int(t) if t.isdigit() else sys.maxsize, t))
    first = action.option_strings[0]
    return row if first == flag else row | {"means": first}


def accepts(action: Any, text: str) -> bool:
    """Return True if the type of a flag converts ``text``."""
    try:
        action.type(text)
    except Exception:
        return False
    return True


def write_config(config: dict[str, Any]) -> str:
    """Return a folder that contains only the model's config.json, the same one for equal
    configs.
    """
    text = json.dumps(config, sort_keys=True)
    name = "parc-vllm-checker-" + hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), name)
    folder.mkdir(exist_ok=True)
    draft = folder / f"config.json.{os.getpid()}"
    draft.write_text(text)
    draft.replace(folder / "config.json")
    return str(folder)


def configure(args: Namespace) -> tuple[str, Any]:
    """Run the command with launchers that build the engine's config instead of an engine."""
    import vllm
    from vllm.entrypoints.cli import serve
    from vllm.usage.usage_lib import UsageContext

    made: list[tuple[str, Any]] = []

    def launch(name: str, args: Namespace, headless: bool = False) -> None:
        engine = vllm.AsyncEngineArgs.from_cli_args(args)
        context = UsageContext.OPENAI_API_SERVER
        config = engine.create_engine_config(usage_context=context, headless=headless)
        if headless and engine.data_parallel_hybrid_lb:  # two checks of run_headless
            raise Rejected("data_parallel_hybrid_lb is not applicable in headless mode")
        if headless and config.parallel_config.data_parallel_size_local <= 0:
            raise Rejected("data_parallel_size_local must be > 0 in headless mode")
        made.append((name, config))

    serve.run_dp_supervisor = lambda args: launch("supervisor", args)
    serve.run_headless = lambda args: launch("headless", args, headless=True)
    serve.run_multi_api_server = lambda args: launch("many servers", args)
    serve.run_server = lambda args, **_: args
    serve.uvloop = types.SimpleNamespace(run=lambda args: launch("one server", args))
    serve.ServeSubcommand.cmd(args)
    return made[0]


def sizes(config: Any) -> dict[str, Any]:
    """Return the settings that vLLM derived."""
    return parallel_sizes(config) | {
        "max_model_len": config.model_config.max_model_len,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "gpu_memory_utilization": config.cache_config.gpu_memory_utilization,
        "kv_cache_dtype": str(config.cache_config.cache_dtype),
        "block_size": config.cache_config.block_size,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "quantization": config.model_config.quantization,
        "features": features(config),
    }


def features(config: Any) -> dict[str, Any]:
    """Return the settings of the optional features that vLLM derived."""
    draft, lora = config.speculative_config, config.lora_config
    transfer = config.kv_transfer_config
    return {
        "draft": None if draft is None else [draft.method, draft.num_speculative_tokens],
        "lora": None if lora is None else [lora.max_loras, lora.max_lora_rank, lora.max_cpu_loras],
        "offload_gib": config.cache_config.kv_offloading_size,
        "prefix_caching": config.cache_config.enable_prefix_caching,
        "pool": None if transfer is None else [transfer.kv_connector, transfer.kv_role],
    }


def parallel_sizes(config: Any) -> dict[str, Any]:
    """Return the parallel sizes, and the part of the deployment that this command starts."""
    parallel, model = config.parallel_config, config.model_config
    tp, pcp, dp = (
        parallel.tensor_parallel_size,
        parallel.prefill_context_parallel_size,
        parallel.data_parallel_size,
    )
    balancers = ("external", "hybrid")
    return {
        "tp": tp,
        "pp": parallel.pipeline_parallel_size,
        "dp": dp,
        "pcp": pcp,
        "dcp": parallel.decode_context_parallel_size,
        "ep": dp * pcp * tp if parallel.enable_expert_parallel and model.is_moe else 1,
        "eplb": parallel.enable_eplb,
        "world": parallel.world_size_across_dp,
        "world_of_replica": parallel.world_size,
        "local_world": parallel.local_world_size,
        "dp_local": parallel.data_parallel_size_local,
        "dp_rank": parallel.data_parallel_rank,
        "nodes": parallel.nnodes,
        "nodes_of_replica": parallel.nnodes_within_dp,
        "node_rank": parallel.node_rank,
        "node_ranks": ranks_of_node(parallel),
        "load_balancer": next(
            (n for n in balancers if getattr(parallel, f"data_parallel_{n}_lb")), "internal"
        ),
        "executor": str(parallel.distributed_executor_backend),
        "dp_backend": parallel.data_parallel_backend,
        "all2all": parallel.all2all_backend,
        "pp_layers": layers_of_stages(config),
    }


def ranks_of_node(parallel: Any) -> list[int]:
    """Return the global ranks that the command starts (reimplemented:
    v1/executor/multiproc_executor.py).
    """
    if parallel.nnodes_within_dp > 1:  # a part of one replica
        part = parallel.node_rank % parallel.nnodes_within_dp
        first = parallel.data_parallel_rank * parallel.world_size + part * parallel.local_world_size
        return list(range(first, first + parallel.local_world_size))
    replicas = max(parallel.data_parallel_size_local, 1)  # whole replicas
    first = parallel.data_parallel_rank * parallel.world_size
    return list(range(first, first + replicas * parallel.world_size))


def layers_of_stages(config: Any) -> list[int]:
    from vllm.distributed.utils import get_pp_indices

    layers, pp = (
        config.model_config.get_total_num_hidden_layers(),
        config.parallel_config.pipeline_parallel_size,
    )
    ends = [get_pp_indices(layers, stage, pp) for stage in range(pp)]
    return [end - start for start, end in ends]


def groups_of(config: Any) -> dict[str, list[list[int]]]:
    """Return the groups of the deployment that initialize_model_parallel creates."""
    import torch.distributed as dist
    import vllm.distributed.parallel_state as state
    from vllm.config import set_current_vllm_config

    found: dict[str, list[list[int]]] = {}
    group = types.SimpleNamespace(local_rank=0, device_group=None, rank_in_group=0)

    def note(groups: Any, *_: Any, group_name: str, **__: Any) -> Any:
        found[group_name] = [[int(rank) for rank in ranks] for ranks in groups]
        return group

    parallel = config.parallel_config
    vars(state).update(init_model_parallel_group=note, get_world_group=lambda: group)
    vars(dist).update(
        is_initialized=lambda: True,
        get_world_size=lambda *_, **__: parallel.world_size_across_dp,
        get_rank=lambda *_, **__: 0,
        get_backend=lambda *_, **__: "fake",
    )
    with set_current_vllm_config(config, check_compile=False):
        state.initialize_model_parallel(
            parallel.tensor_parallel_size,
            parallel.pipeline_parallel_size,
            parallel.prefill_context_parallel_size,
            parallel.decode_context_parallel_size,
            backend="fake",
        )
    return found


def main() -> int:
    os.environ.update(QUIET)
    sys.path[:0] = sys.argv[1:]
    if sys.argv[1:]:  # of SageMaker; vLLM imports it up to 0.30
        install_absent_modules("model_hosting_container_standards")
    import_before_forks("torch")
    install_machine(MACHINE)
    import_before_forks("vllm.entrypoints.cli.serve", *IMPORTED_LATE)
    parse(["model"])  # fills the caches of the parser
    return answer_cases(check, (AttributeError, *FAULTS))  # raised by the replacements


if __name__ == "__main__":
    sys.exit(main())
