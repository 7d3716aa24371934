"""Flags of vLLM that need or exclude another flag.

Source: vllm-project/vllm, vllm/config/parallel.py and vllm/engine/arg_utils.py.
"""

from __future__ import annotations

from parc.compiler.tools.lint.flag_rules import FlagCoupling

COUPLINGS: tuple[FlagCoupling, ...] = (
    FlagCoupling(
        "M10",
        "--enable-eplb",
        ("--enable-expert-parallel",),
        why="EPLB balances experts across the ranks of expert parallelism",
    ),
    FlagCoupling(
        "V09",
        "--headless",
        excludes=("--data-parallel-hybrid-lb", "--data-parallel-external-lb"),
        why="a host without API servers needs the internal load balancer",
    ),
    FlagCoupling(
        "V09",
        "--data-parallel-hybrid-lb",
        excludes=("--data-parallel-external-lb",),
        why="requests are distributed either by the hosts (hybrid) or by an external balancer",
    ),
    FlagCoupling(
        "M10",
        "--eplb-config.num-redundant-experts",
        ("--enable-eplb",),
        why="only EPLB places copies of experts",
    ),
    FlagCoupling(
        "F08",
        "--enable-elastic-ep",
        ("--enable-eplb",),
        excludes=("--data-parallel-hybrid-lb",),
        why="elastic expert parallelism moves experts with EPLB",
        limits=(("--pipeline-parallel-size", ("1",)),),
    ),
    *(
        FlagCoupling("F08", flag, ("--numa-bind",), why="without it, processes are not bound")
        for flag in ("--numa-bind-nodes", "--numa-bind-cpus")
    ),
    FlagCoupling(
        "F08",
        "--distributed-executor-backend",
        why="Ray finds the hosts of its cluster itself",
        value="ray",
        limits=(("--nnodes", ("1",)),),
    ),
)
