"""Verifier of ``megatron/args.sh``, independent of the code that writes the file."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any

from parc.backends.megatron.verify_arguments import ARGUMENTS, WrittenFlags, read_arguments
from parc.backends.megatron.verify_groups import HIERARCHY, ParallelDegrees, derive_groups
from parc.backends.megatron.verify_plan_fields import read_fields
from parc.backends.megatron.verify_settings import derive_settings
from parc.backends.megatron.verify_stages import verify_batch, verify_layers
from parc.backends.verifier import (
    DerivedGroups,
    DerivedSetting,
    FileDependencies,
    FrameworkVerifier,
    LaunchedProgram,
)
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import TABLE


class MegatronVerifier(FrameworkVerifier):
    """Verifier that derives process groups, layers and batch from Megatron's arguments."""

    file = ARGUMENTS
    files = FileDependencies(references={ARGUMENTS: "/megatron/args.sh"})

    not_in_files = MappingProxyType(
        {
            "layout.offload.optimizer": "stays on the GPU; a rule rejects other values (E08)",
            "layout.offload.parameters": "stay on the GPU; a rule rejects other values (E08)",
            "layout.offload.nvme_path": "Megatron stores nothing on NVMe disks",
            "layout.zero_plus": "a feature of DeepSpeed; a rule rejects other values (E08)",
            "layout.world": "the launch scripts start the ranks",
            "problem.model.name": "label in reports",
            "problem.model.family": "the other fields describe the same model",
            "problem.model.source": "records the origin of the numbers",
            "problem.model.norms_per_layer": "Megatron has 2; a rule rejects others (E02)",
            "problem.model.final_norm": "Megatron has one; a rule rejects models without (E02)",
            "problem.model.left_out": "a rule rejects models with left-out parts (E07)",
            "problem.model.variants": "a rule rejects other models (E07)",
            "problem.model.extra_weights": "a rule rejects other models (E07)",
            "problem.model.norm_weights": "a rule rejects other models (E07)",
            "problem.model.attention.value_dim": "a rule rejects other models (E07)",
            "problem.model.attention.chunked": "a rule rejects other models (E07)",
            "problem.model.attention.shared_kv": "only layer variants have it (E07)",
            "problem.model.attention.keys_as_values": "only layer variants have it (E07)",
            "problem.model.attention.joint_kv": "a rule rejects other models (E07)",
            "problem.model.attention.low_rank": "a rule rejects other models (E07)",
            "problem.model.attention.compression": "only layer variants have it (E07)",
            "problem.model.residual_streams": "a rule rejects other models (E07)",
            "problem.model.mamba.step_rank": "a rule rejects Mamba-1 (E07)",
            "problem.model.mamba.norm": "a rule rejects models without it (E07)",
            "problem.model.convolution": "a rule rejects other models (E07)",
            "problem.model.attention.head_gate": "a rule rejects other models (E07)",
            "problem.model.linear.full_rank_gates": "a rule rejects other models (E07)",
            "problem.model.linear.kind": "Megatron has one; a rule rejects others (E07)",
            "problem.model.attention.indexer": "a rule rejects other models (E07)",
            "problem.model.mamba.conv_size": "Megatron has 4; a rule rejects others (E07)",
            "problem.model.ffn.bias": "attention.output_bias shows the switch of all biases (E02)",
            "problem.model.experts.bias": "attention.output_bias shows the switch of all biases",
        }
    )

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterable[DerivedSetting]:
        """Yield the plan settings that Megatron reads from ``megatron/args.sh``."""
        fields = read_fields(artifacts)
        if fields is None or ARGUMENTS not in artifacts:
            return ()
        return derive_settings(read_arguments(artifacts[ARGUMENTS]), fields)

    def program_start(
        self, plan: Mapping[str, Any], artifacts: Mapping[str, str]
    ) -> LaunchedProgram | None:
        """Return how launch.sh must start Megatron's program with the array in ``args.sh``."""
        layout, gpu = plan["layout"], plan["problem"]["cluster"]["gpu"]
        # validate_args: one hardware queue before Blackwell; ROCm reports compute capability 9.
        old = gpu["vendor"] == "amd" or gpu["compute_capability"][0] < 10
        # Megatron-FSDP refuses the variable.
        split = (layout["tp"] > 1 or layout["cp"] > 1) and layout["zero_stage"] < 2
        environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if old and split else {}
        # validate_args: with TransformerEngine 2.10 and newer, offload requires its first version.
        if layout["offload"]["activations"]:
            environment["NVTE_CPU_OFFLOAD_V1"] = "1"
        # validate_args requires it for CUDA graphs in expandable segments of memory.
        if layout["cuda_graphs"]:
            environment["NCCL_GRAPH_REGISTER"] = "0"
            # Blackwell: streams that gather shared weights keep their priority inside graphs.
            if not old and max(layout["gtp"], layout["egtp"]) > 1:
                environment["CUDA_GRAPHS_USE_NODE_PRIORITY"] = "1"
        return LaunchedProgram(
            program=shlex.quote(plan["problem"]["launch"]["program"]),
            arguments='"${MEGATRON_ARGS[@]}"',
            setup=(f'source "$here/../{ARGUMENTS}"', *_resume_lines(plan["problem"]["job"])),
            environment=environment,
            # Megatron saves a checkpoint on SIGTERM only with this flag.
            stop_test=f'grep -qs -e --exit-signal-handler "$PARC_DIR/{ARGUMENTS}"',
        )

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report layers that are in no pipeline stage, or in more than one (A08)."""
        verify_layers(read_arguments(artifacts[ARGUMENTS]), sink)

    def derive_groups(
        self, artifacts: Mapping[str, str], world: int, sink: Sink
    ) -> DerivedGroups | None:
        """Return the process groups of a job with ``world`` ranks.

        If the parallel sizes do not fit ``world`` ranks, report A05 and return None. A wrong batch
        size is reported as A09.
        """
        arguments = read_arguments(artifacts[ARGUMENTS])
        degrees = _read_degrees(arguments, world, sink)
        if degrees is None:
            return None
        sizes = degrees.sizes()
        verify_batch(arguments, sizes["dp"], sink)
        return DerivedGroups(
            file=ARGUMENTS,
            builder="Megatron",
            order=degrees.order,
            sizes=sizes,
            families=derive_groups(degrees),
            columns=degrees.columns(),
        )


def _read_degrees(arguments: WrittenFlags, world: int, sink: Sink) -> ParallelDegrees | None:
    """Return the parallel sizes that the flags set.

    If the sizes do not fit ``world`` ranks, report A05 (contradictory sizes) and return None.
    """
    tp = arguments.number("tensor-model-parallel-size", 1)
    pp = arguments.number("pipeline-model-parallel-size", 1)
    cp = arguments.number("context-parallel-size", 1)
    ep = arguments.number("expert-model-parallel-size", 1)
    # Megatron's default is tp, not 1.
    etp = arguments.number("expert-tensor-parallel-size", tp)
    # cp is not a factor of the expert mesh: context-parallel ranks are replicas of experts or hold
    # different experts.
    gtp = _sharing_ranks(arguments, "tensor-parallel-num-weight-shards", tp)
    egtp = _sharing_ranks(arguments, "expert-tensor-parallel-num-weight-shards", etp)
    dense, expert = tp * gtp * cp * pp, etp * ep * egtp * pp
    names = ("tp x gtp x cp x pp", "etp x ep x egtp x pp")
    if gtp == egtp == 1:
        names = ("tp x cp x pp", "etp x ep x pp")
    for name, product in zip(names, (dense, expert), strict=True):
        if world % product:
            message = f"{world} ranks of the rank map are not divisible by {name} = {product}"
            label = f"{world} % {product} = {world % product}, must be 0"
            finding = Finding(f"{message} of {ARGUMENTS}", label)
            sink.report("A05", finding, span=Span(TABLE, 1, 1))
            return None
    levels = arguments.numbers("hierarchical-context-parallel-sizes")
    if levels and (len(levels) != len(HIERARCHY) or prod(levels) != cp):
        sizes = " ".join(map(str, levels))
        message = f"{ARGUMENTS} has --hierarchical-context-parallel-sizes {sizes} for cp {cp}"
        finding = Finding(message, f"must be {len(HIERARCHY)} sizes whose product is {cp}")
        sink.report("A05", finding, span=Span(TABLE, 1, 1))
        return None
    swapped = arguments.has("use-tp-pp-dp-mapping")
    return ParallelDegrees(
        order="tp-cp-ep-pp-dp" if swapped else "tp-cp-ep-dp-pp",
        dense={"tp": tp, "gtp_remat": gtp, "cp": cp, "ep": 1, "dp": world // dense, "pp": pp},
        expert={"tp": etp, "cp": 1, "ep": ep, "gtp_remat": egtp, "dp": world // expert, "pp": pp},
        levels=levels,
    )


def _sharing_ranks(arguments: WrittenFlags, flag: str, size: int) -> int:
    """Return the number of ranks that share weights: weight shards / tensor-parallel size."""
    # Settings report a number of shards that is not a multiple of the size.
    return max(arguments.number(flag, size) // size, 1)


VERIFIER = MegatronVerifier()


def _resume_lines(job: Mapping[str, Any]) -> tuple[str, ...]:
    # A pretraining run that starts from another folder loads its own checkpoints as soon as it has
    # some. Of two flags --load, argparse takes the last one.
    own, first = job["checkpoint_dir"], job["load_dir"]
    if job["kind"] == "finetune" or not own or first in (None, own):
        return ()
    marker = shlex.quote(own.rstrip("/") + "/latest_checkpointed_iteration.txt")
    return (f"[[ ! -e {marker} ]] || MEGATRON_ARGS+=(--load {shlex.quote(own)})",)
