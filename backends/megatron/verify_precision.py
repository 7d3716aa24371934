"""Number formats in Megatron's arguments, and the fields of ``plan.json`` that they set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parc.backends.megatron.verify_flags import ParsedFlags
from parc.backends.megatron.verify_model import Implied, Shown
from parc.backends.megatron.verify_plan_fields import PlanFields

JOB, STAGE = "problem.job", "layout.zero_stage"
PRECISIONS: dict[object, str] = {
    (True, False, None, None): "bf16",
    (False, True, None, None): "fp16",
    (False, False, None, None): "fp32",
    **{
        (True, False, ("hybrid", recipe), None): "fp8"
        for recipe in ("tensorwise", "delayed", "blockwise")
    },
    (True, False, ("e4m3", "mxfp8"), None): "mxfp8",
    (True, False, None, ("e2m1", "nvfp4")): "nvfp4",
}
"""(bf16, fp16, format and recipe of fp8, format and recipe of fp4) -> precision of the plan."""


def _precision(settings: ParsedFlags) -> Any:
    eight, four = settings["fp8-format"], settings["fp4-format"]
    key = (
        settings["bf16"],
        settings["fp16"],
        (eight, settings["fp8-recipe"]) if eight is not None else None,
        (four, settings["fp4-recipe"]) if four is not None else None,
    )
    return PRECISIONS.get(key, "no precision that a plan can have")


def _low_precision_field(*names: str) -> Callable[[PlanFields], bool]:
    return lambda f: f[f"{JOB}.precision"] in names


def _scaled_by(fields: PlanFields, *recipes: str) -> bool:
    return fields[f"{JOB}.precision"] == "fp8" and fields[f"{JOB}.fp8_recipe"] in recipes


def _fp8_recipe_flag(fields: PlanFields) -> str:
    # The parser's default also applies if no operand is scaled.
    own = {"fp8": fields[f"{JOB}.fp8_recipe"], "mxfp8": "mxfp8"}
    return str(own.get(fields[f"{JOB}.precision"], "delayed"))


def _stores_fp8(fields: PlanFields) -> bool:
    scaled = _scaled_by(fields, "tensorwise", "delayed")
    return bool((scaled or fields[f"{JOB}.precision"] == "mxfp8") and fields[STAGE] > 0)


def _stores_fp4(fields: PlanFields) -> bool:
    # The precision-aware optimizer, which bf16 moments need, has no shards of nvfp4 weights.
    whole = fields[f"{JOB}.moment_precision"] == "fp32"
    # Megatron-FSDP (stages 2 and 3) has no buffers for them either.
    return bool(fields[f"{JOB}.precision"] == "nvfp4" and whole and fields[STAGE] == 1)


SHOWN: tuple[Shown, ...] = ((f"{JOB}.precision", "bf16", _precision),)
"""Rows for the number formats of every plan."""
IMPLIED: tuple[Implied, ...] = (
    (
        "moe-router-padding-for-quantization",
        f"{JOB}.precision",
        lambda f: f.routed and _low_precision_field("fp8", "mxfp8", "nvfp4")(f),
    ),
    (
        "grad-reduce-in-bf16",
        f"{JOB}.gradient_precision",
        # With fp16 weights, gradients are reduced in fp16, and the flag has no effect.
        lambda f: f[f"{JOB}.gradient_precision"] == "bf16" and not _low_precision_field("fp16")(f),
    ),
    ("exp-avg-sq-dtype", f"{JOB}.moment_precision", lambda f: f[f"{JOB}.moment_precision"]),
    (
        "use-precision-aware-optimizer",
        f"{JOB}.moment_precision",
        lambda f: f[f"{JOB}.moment_precision"] != "fp32",
    ),
    ("fp8-param-gather", f"{JOB}.precision", _stores_fp8),
    ("fp4-param-gather", f"{JOB}.precision", _stores_fp4),
    (
        "reuse-grad-buf-for-mxfp8-param-ag",
        f"{JOB}.precision",
        # Megatron-FSDP has no use for it.
        lambda f: f[f"{JOB}.precision"] == "mxfp8" and f[STAGE] == 1,
    ),
    (
        "fp8-amax-history-len",
        f"{JOB}.fp8_recipe",
        lambda f: 1024 if _scaled_by(f, "delayed") else 1,
    ),
    (
        "fp8-amax-compute-algo",
        f"{JOB}.fp8_recipe",
        lambda f: "max" if _scaled_by(f, "delayed") else "most_recent",
    ),
    ("fp8-recipe", f"{JOB}.fp8_recipe", _fp8_recipe_flag),
)
"""Rows for the flags of number formats of every plan."""
