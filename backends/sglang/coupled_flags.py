"""Flags of SGLang that need or exclude another flag.

Source: sgl-project/sglang, python/sglang/srt/arg_groups/parallel_hook.py.
"""

from __future__ import annotations

from parc.compiler.tools.lint.flag_rules import FlagCoupling

DP, OLD_DP = "--attn-dp-size", "--dp-size"

COUPLINGS: tuple[FlagCoupling, ...] = (
    FlagCoupling(
        "V11",
        "--enable-dp-lm-head",
        (DP,),
        why="each data-parallel rank of attention computes its own logits",
    ),
    FlagCoupling(
        "V11",
        OLD_DP,
        excludes=(DP,),
        why="copies of the engine cannot be combined with attention data parallelism",
    ),
)
