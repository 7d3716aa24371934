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
)
