"""Check launch arguments with the real Megatron-Core, on a CPU.

    python megatron_checker.py MEGATRON_FOLDER < cases.jsonl > verdicts.jsonl

The case {"name", "flags": true} is answered with the rows of the parser's flags.

Another case: {"name", "argv", "world_size", "env": {}, "arch": 9, "ranks": [0],
"build": false, "built_rank": 0, "digests": false, "any_exception": false}. If "any_exception" is
true, every exception rejects the case, instead of only REJECTIONS. A
verdict: {"name", "accepted", "stage", "error", "sizes", "layers", "groups", "digests",
"parameters"}. Stages:

    parse      parse_args
    validate   validate_args
    config     TransformerConfig, as pretrain_gpt.py builds it
    batch      the calculator of micro-batches
    overlap    settings of data parallelism and optimizer
    optimizer  the learning-rate scheduler, evaluated at four steps
    schedule   the two checks of the interleaved schedule (reimplemented: it needs a GPU first)
    groups     initialize_model_parallel on torch's fake process group, for the sampled ranks
    layers     decoder layers of each chunk, from the functions that build them
    build      the model on the meta device, if the case requests it
    divide     widths that column-parallel layers split (reimplemented: building them takes seconds)

Runs under the Python that has torch and Megatron-Core; imports neither PARC nor pytest.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import hashlib
import io
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from build_model import count_parameters
from emulated_gpu import hardware, make_megatron_importable, read_docstrings_once
from hybrid_stages import divide_mamba, segment, transformer_config
from megatron_optimizer import optimizer_settings, overlap_settings
from megatron_sharing import sharing, sharing_groups, sharing_parameters

Verdict = dict[str, Any]
ORDERS = {False: "tp-cp-ep-dp-pp", True: "tp-cp-ep-pp-dp"}
REJECTIONS = (
    AssertionError,
    AttributeError,
    ImportError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    SystemExit,
    TypeError,
    ValueError,
    ZeroDivisionError,
)


class Rejected(Exception):
    """Megatron rejects the case in a way that is not one of its own exceptions."""


def parse(case: dict[str, Any]) -> Namespace:
    import megatron.training.arguments as parser

    heard, before = io.StringIO(), sys.argv
    sys.argv = ["pretrain_gpt.py", *case["argv"]]
    try:
        with contextlib.redirect_stderr(heard):
            return parser.parse_args()
    except SystemExit as stop:
        raise Rejected(heard.getvalue().strip().splitlines()[-1]) from stop
    finally:
        sys.argv = before


def validate(args: Namespace) -> None:
    import megatron.training.arguments as parser

    parser.validate_args(
        args, {"tokenizer_type": "GPT2BPETokenizer"}
    )  # as pretrain_gpt.py calls it


def configure(args: Namespace) -> Any:
    args = copy.copy(args)
    args.padded_vocab_size = padded_vocab(args)
    return transformer_config(args)


def padded_vocab(args: Namespace) -> int:
    try:
        from megatron.training.vocab_utils import calculate_padded_vocab_size
    except ModuleNotFoundError:  # Megatron-Core 0.17 pads the vocabulary of its tokenizer
        from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer
        from megatron.core.tokenizers.utils.build_tokenizer import vocab_size_with_padding

        tokens = args.vocab_size
        if args.tokenizer_type == "NullTokenizer":
            tokens = NullTokenizer(args.vocab_size).vocab_size
        return int(vocab_size_with_padding(tokens, args, logging_enabled=False))

    step, tp = args.make_vocab_size_divisible_by, args.tensor_model_parallel_size
    return int(calculate_padded_vocab_size(args.vocab_size, step, tp, logging_enabled=False))


def count_batches(args: Namespace) -> int:
    from megatron.core import num_microbatches_calculator as calculator

    calculator.unset_num_microbatches_calculator()
    calculator.init_num_microbatches_calculator(
        rank=1,
        rampup_batch_size=None,  # Megatron-Core 0.17 has no default
        global_batch_size=args.global_batch_size,
        micro_batch_size=args.micro_batch_size,
        # training/global_vars.py: ranks that share weights train on different micro-batches.
        data_parallel_size=args.data_parallel_size * sharing(args)[0],
        decrease_batch_size_if_needed=args.decrease_batch_size_if_needed,
    )
    return int(calculator.get_num_microbatches())


def schedule(args: Namespace, micro_batches: int) -> None:
    """Apply the checks of forward_backward_pipelining_with_interleaving in
    pipeline_parallel/schedules.py.
    """
    pp = args.pipeline_model_parallel_size
    if args.virtual_pipeline_model_parallel_size is None:
        return
    group = args.microbatch_group_size_per_vp_stage or pp
    if group > micro_batches or group < pp:
        raise ValueError(f"micro-batch group {group} not in [{pp}, {micro_batches}]")
    if 0 < micro_batches % group < pp:
        raise RuntimeError(f"remainder of {micro_batches} micro-batches in groups of {group}")


def join(args: Namespace, rank: int) -> None:
    """Call initialize_model_parallel as training/initialize.py does, on a process group that sends
    nothing.
    """
    import torch.distributed as dist
    from megatron.core import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    leave()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=args.world_size)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=args.tensor_model_parallel_size,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
        expert_model_parallel_size=args.expert_model_parallel_size,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        order=ORDERS[args.use_tp_pp_dp_mapping],
        create_gloo_process_groups=False,
        **sharing_parameters(args),
    )


def leave() -> None:
    import torch.distributed as dist
    from megatron.core import parallel_state

    if dist.is_initialized():
        with contextlib.suppress(Exception):
            parallel_state.destroy_model_parallel()
        # destroy_model_parallel does not reset this group
        parallel_state._HIERARCHICAL_CONTEXT_PARALLEL_GROUPS = None
        dist.destroy_process_group()


def groups_of_rank() -> dict[str, list[int]]:
    """Return the groups of the rank that joined, by PARC's names of groups."""
    import torch.distributed as dist
    from megatron.core import parallel_state as state

    made = {
        "tp": state.get_tensor_model_parallel_group(),
        "cp": state.get_context_parallel_group(),
        "dp": state.get_data_parallel_group(),
        "pp": state.get_pipeline_model_parallel_group(),
        "dp-cp": state.get_data_parallel_group(with_context_parallel=True),
        "tp-cp": state.get_tensor_and_context_parallel_group(),
        "tp-pp": state.get_model_parallel_group(),
        "etp": state.get_expert_tensor_parallel_group(),
        "ep": state.get_expert_model_parallel_group(),
        "edp": state.get_expert_data_parallel_group(),
        "etp-ep": state.get_expert_tensor_and_model_parallel_group(),
        "etp-ep-pp": state.get_expert_tensor_model_pipeline_parallel_group(),
    }
    if hasattr(state, "get_gtp_weight_remat_group"):
        made |= sharing_groups(state)
    levels = state.get_hierarchical_context_parallel_groups(check_initialized=False) or ()
    made |= dict(zip(("cp-a2a", "cp-p2p"), levels, strict=False))
    return {name: list(dist.get_process_group_ranks(group)) for name, group in made.items()}


def layer_table(args: Namespace, config: Any) -> list[list[list[int]]]:
    """Return [first layer, number of layers] of each chunk of each rank."""
    vpp, pp = args.virtual_pipeline_model_parallel_size, args.pipeline_model_parallel_size
    pattern = args.hybrid_layer_pattern

    def chunk(rank: int, virtual: int | None) -> list[int]:
        if pattern is not None:
            return segment(pattern, pp, rank, virtual)
        return _chunk(config, rank, virtual)

    table = [[chunk(rank, v if vpp else None) for v in range(vpp or 1)] for rank in range(pp)]
    total = sum(count for row in table for _, count in row)
    if total != args.num_layers:
        raise ValueError(f"the chunks hold {total} layers, the model has {args.num_layers}")
    return table


def _chunk(config: Any, rank: int, virtual: int | None) -> list[int]:
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.transformer_block import get_num_layers_to_build
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

    where = {"vp_stage": virtual, "pp_rank": rank}
    if (layout := config.pipeline_model_parallel_layout) is not None:
        count = layout.get_num_layers_to_build(LayerType.decoder, **where)
        return [layout.get_layer_offset(LayerType.decoder, **where), count]
    return [get_transformer_layer_offset(config, **where), get_num_layers_to_build(config, **where)]


def divide(args: Namespace, config: Any) -> None:
    """Call ``divide`` of core/utils.py for the widths that the layers split."""
    from megatron.core.utils import divide as whole

    frequency, layers = config.moe_layer_freq, config.num_layers
    if isinstance(frequency, list) and len(frequency) != layers:
        raise ValueError(f"--moe-layer-freq has {len(frequency)} entries, not {layers}")
    tp, routed = config.tensor_model_parallel_size, config.num_moe_experts is not None
    pattern = args.hybrid_layer_pattern
    whole(config.num_attention_heads * config.kv_channels, tp)
    dense = not routed or (isinstance(frequency, list) and 0 in frequency)
    if "-" in pattern if pattern else dense:
        whole(config.ffn_hidden_size, tp)
    if routed:
        whole(config.moe_ffn_hidden_size, config.expert_tensor_parallel_size)
        whole(config.moe_shared_expert_intermediate_size or 0, tp)
    if pattern and "M" in pattern:
        divide_mamba(config)


def digests(args: Namespace) -> dict[str, str]:
    """Return the sha256 of the groups of every token that initialize_model_parallel uses."""
    from megatron.core.parallel_state import RankGenerator

    order, pp = ORDERS[args.use_tp_pp_dp_mapping], args.pipeline_model_parallel_size
    etp, ep = args.expert_tensor_parallel_size, args.expert_model_parallel_size
    dense = RankGenerator(
        tp=args.tensor_model_parallel_size,
        ep=1,
        dp=args.data_parallel_size,
        pp=pp,
        cp=args.context_parallel_size,
        order=order,
    )
    edp = args.world_size // (etp * ep * pp)
    expert = RankGenerator(tp=etp, ep=ep, dp=edp, pp=pp, cp=1, order=order)
    tokens = ("tp", "cp", "dp", "pp", "dp-cp", "tp-cp", "tp-pp", "tp-dp", "tp-dp-cp")
    found = {token: digest(dense.get_ranks(token)) for token in tokens}
    names = {"etp": "tp", "ep": "ep", "edp": "dp", "etp-ep": "tp-ep", "etp-ep-pp": "tp-ep-pp"}
    return found | {name: digest(expert.get_ranks(token)) for name, token in names.items()}


def digest(groups: list[list[int]]) -> str:
    return hashlib.sha256(json.dumps(groups, separators=(",", ":")).encode()).hexdigest()


def sizes(args: Namespace) -> dict[str, Any]:
    pp, etp = args.pipeline_model_parallel_size, args.expert_tensor_parallel_size
    return {
        "tp": args.tensor_model_parallel_size,
        "cp": args.context_parallel_size,
        "pp": pp,
        "vpp": args.virtual_pipeline_model_parallel_size or 1,
        "dp": args.data_parallel_size * sharing(args)[0],
        "gtp": sharing(args)[0],
        "egtp": sharing(args)[1],
        "ep": args.expert_model_parallel_size,
        "etp": etp,
        "edp": args.world_size // (etp * args.expert_model_parallel_size * pp),
        "sequence_parallel": args.sequence_parallel,
    }


def check(case: dict[str, Any]) -> Verdict:
    """Run the stages in order, up to the first that rejects the case."""
    verdict: Verdict = {"name": case["name"], "accepted": False, "stage": "parse"}
    world = {"WORLD_SIZE": str(case["world_size"]), "RANK": "0", "LOCAL_RANK": "0"}
    rejections = (Exception,) if case.get("any_exception") else (Rejected, *REJECTIONS)
    before = dict(os.environ)
    os.environ.update({**case.get("env", {}), **world})
    try:
        with hardware(case.get("arch", 9)), contextlib.redirect_stdout(sys.stderr):
            _stages(case, verdict)
        verdict.update(accepted=True, stage="")
    except rejections as rejection:
        verdict["error"] = f"{type(rejection).__name__}: {rejection}"[:500]
    finally:
        leave()
        os.environ.clear()
        os.environ.update(before)
    return verdict


def _stages(case: dict[str, Any], verdict: Verdict) -> None:
    def stage(name: str, step: Callable[..., Any], *given: Any) -> Any:
        verdict["stage"] = name
        return step(*given)

    args = stage("parse", parse, case)
    stage("validate", validate, args)
    verdict["sizes"] = sizes(args)
    config = stage("config", configure, args)
    verdict["micro_batches"] = stage("batch", count_batches, args)
    stage("overlap", overlap_settings, args)
    verdict["optimizer"] = stage("optimizer", optimizer_settings, args)
    stage("schedule", schedule, args, verdict["micro_batches"])
    verdict["groups"] = {}
    for rank in case.get("ranks", [0]):
        stage("groups", join, args, rank)
        verdict["groups"][str(rank)] = groups_of_rank()
    verdict["layers"] = stage("layers", layer_table, args, config)
    stage("divide", divide, args, config)
    if case.get("build"):
        stage("groups", join, args, case.get("built_rank", 0))
        verdict["parameters"] = stage("build", count_parameters, args, padded_vocab(args))
    if case.get("digests"):
        verdict["digests"] = digests(args)


def flags() -> list[dict[str, Any]]:
    """Return every spelling of the parser's flags with its number of values."""
    import megatron.training.arguments as arguments

    parser = ArgumentParser(allow_abbrev=False)
    with contextlib.redirect_stdout(io.StringIO()):
        arguments.add_megatron_arguments(parser)
    return [
        {
            "flag": spelling,
            "takes": 1 if action.nargs is None else action.nargs,
            "type": getattr(action.type, "__name__", None),
            "default": shown_default(action.default),
        }
        for action in parser._actions
        for spelling in action.option_strings
        if action.dest != "help"
    ]


def shown_default(value: Any) -> Any:
    """Return a default that JSON can contain; an enumeration has the name of its member."""
    if isinstance(value, bool):
        return str(value)
    return getattr(value, "name", value)


def main() -> int:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    builtins.exit = sys.exit  # site's exit, which validate_args calls, also closes stdin
    make_megatron_importable(sys.argv[1])
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        import megatron.training.arguments  # noqa: F401
    read_docstrings_once()
    for line in sys.stdin:
        case = json.loads(line)
        verdict = case | {"flags": flags()} if case.get("flags") else check(case)
        print(json.dumps(verdict), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
