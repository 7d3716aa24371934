"""Flags that need another flag, or exclude one.

Sources: NVIDIA/Megatron-LM, megatron/training/arguments.py, ``validate_args``; vllm-project/vllm,
vllm/config/parallel.py and vllm/engine/arg_utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.tools.importers.flags import Flag


@dataclass(frozen=True, slots=True)
class Coupling:
    """``flag``, with ``value`` where one is said, needs one of ``needs``, none of ``excludes``."""

    code: str
    flag: str
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    why: str = ""
    value: str = ""


SHARDS = ("--use-distributed-optimizer", "--use-megatron-fsdp", "--use-torch-fsdp2")
EXPERTS = ("--num-experts",)
MEGATRON: tuple[Coupling, ...] = (
    Coupling("R04", "--bf16", excludes=("--fp16",), why="only one of the two can be on"),
    Coupling("R06", "--fp8-param-gather", SHARDS, why="the optimizer must be sharded"),
    Coupling(
        "R13", "--overlap-param-gather", ("--overlap-grad-reduce",), why="one needs the other"
    ),
    Coupling("R13", "--overlap-param-gather", SHARDS, why="there is nothing to gather without it"),
    Coupling("S14", "--tp-comm-overlap", ("--sequence-parallel",), why="it overlaps its gathers"),
    Coupling(
        "P05",
        "--hybrid-layer-pattern",
        excludes=(
            "--num-layers-per-virtual-pipeline-stage",
            "--num-virtual-stages-per-pipeline-rank",
            "--pipeline-model-parallel-layout",
            "--account-for-embedding-in-pipeline-split",
            "--account-for-loss-in-pipeline-split",
        ),
        why="bars in the pattern say how the model is cut",
    ),
    Coupling(
        "P05",
        "--num-layers-per-virtual-pipeline-stage",
        excludes=(
            "--num-virtual-stages-per-pipeline-rank",
            "--pipeline-model-parallel-layout",
        ),
        why="both say how the model is cut",
    ),
    Coupling(
        "P05",
        "--num-virtual-stages-per-pipeline-rank",
        excludes=("--pipeline-model-parallel-layout",),
        why="both say how the model is cut",
    ),
    Coupling(
        "P05",
        "--pipeline-model-parallel-layout",
        excludes=(
            "--decoder-first-pipeline-num-layers",
            "--decoder-last-pipeline-num-layers",
            "--account-for-embedding-in-pipeline-split",
            "--account-for-loss-in-pipeline-split",
        ),
        why="the layout says it all",
    ),
    *(
        Coupling("F04", flag, EXPERTS, why="without experts it does nothing")
        for flag in (
            "--moe-router-topk",
            "--moe-ffn-hidden-size",
            "--moe-grouped-gemm",
            "--moe-shared-expert-intermediate-size",
            "--moe-layer-freq",
        )
    ),
    Coupling("F04", "--q-lora-rank", ("--multi-latent-attention",), why="it does nothing alone"),
    Coupling("F04", "--kv-lora-rank", ("--multi-latent-attention",), why="it does nothing alone"),
    Coupling(
        "F04", "--num-query-groups", ("--group-query-attention",), why="it does nothing alone"
    ),
    *(
        Coupling("R08", "--recompute-granularity", (flag,), why="full needs both", value="full")
        for flag in ("--recompute-method", "--recompute-num-layers")
    ),
    Coupling(
        "R08",
        "--recompute-method",
        ("--recompute-granularity", "--recompute-activations"),
        why="nothing is recomputed",
    ),
    Coupling(
        "R08",
        "--recompute-num-layers",
        ("--recompute-granularity", "--recompute-activations"),
        why="nothing is recomputed",
    ),
)


VLLM: tuple[Coupling, ...] = (
    Coupling("M10", "--enable-eplb", ("--enable-expert-parallel",), why="experts must spread"),
    Coupling(
        "V09",
        "--headless",
        excludes=("--data-parallel-hybrid-lb", "--data-parallel-external-lb"),
        why="a host without servers needs the internal load balancer",
    ),
    Coupling(
        "V09",
        "--data-parallel-hybrid-lb",
        excludes=("--data-parallel-external-lb",),
        why="requests are spread by the hosts or from outside",
    ),
)


def broken_couplings(
    table: tuple[Coupling, ...],
    sure: Mapping[str, Flag],
    written: Mapping[str, Flag],
    is_open: bool,
) -> Iterator[tuple[Flag, str, Finding]]:
    """(flag, code, finding) of every coupling that does not hold.

    Args:
        table: what must hold.
        sure: flags that every run has; only they are judged, and only they exclude others.
        written: all flags, also those of branches: what may be there is not missed.
        is_open: more flags may come at run time, so that none is missed.
    """
    for row in table:
        flag = sure.get(row.flag)
        if flag is None or (row.value and row.value not in {one.text for one in flag.values}):
            continue
        if row.needs and not is_open and not any(name in written for name in row.needs):
            needed = " or ".join(row.needs)
            yield (
                flag,
                row.code,
                Finding(f"{row.flag} needs {needed}", label=row.why, fix=f"add {row.needs[0]}"),
            )
        for other in (sure[name] for name in row.excludes if name in sure):
            yield (
                flag,
                row.code,
                Finding(
                    f"{row.flag} and {other.name} exclude each other",
                    label=row.why,
                    fix=f"remove {other.name}",
                    causes=(Cause("", "the other one", other.word.span),),
                ),
            )
