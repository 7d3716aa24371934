"""Flags of vLLM that need another flag, or exclude one.

Source: vllm-project/vllm, vllm/config/parallel.py and vllm/engine/arg_utils.py.
"""

from __future__ import annotations

from parc.compiler.tools.lint.coupled_flags import Coupling

COUPLINGS: tuple[Coupling, ...] = (
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
