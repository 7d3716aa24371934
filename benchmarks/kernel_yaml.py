"""Text of the kernel catalog entries: constants, the rows of their fits, and the errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernel_forms import SMS, nest_sections, prefill_terms
from kernel_report import Validation
from kernel_rows import AMPERE

TITLES = {
    "a100-sxm-80gb": "A100 SXM4 80GB",
    "b200-180gb": "B200 SXM 180GB",
    "b300-288gb": "B300 SXM 288GB",
    "gb200-186gb": "GB200 186GB",
    "gb300-288gb": "GB300 288GB",
    "h100-sxm-80gb": "H100 SXM5 80GB",
    "h200-sxm-141gb": "H200 SXM5 141GB",
    "l40s-48gb": "L40S 48GB",
}
SOURCE = """source: >-
  ai-dynamo/aiconfigurator, collected kernel timings of a serving stack (GEMM, attention,
  recurrences, NCCL in one host); fitted by benchmarks/fit_kernels.py; errors in
  docs/kernel-fits.md
"""
SECTIONS = {"attention_prefill": "prefill", "scan": "scan"}


def entries(
    fitted: Sequence[Any],
    collectives: Mapping[tuple[str, str], tuple[dict[str, float], Validation]],
    links: Mapping[str, float],
) -> dict[str, str]:
    """Return GPU name -> text of its entry."""
    found = {}
    for gpu, sms in SMS.items():
        lines = [f"# {TITLES[gpu]}: kernel and collective times; `fit` is on held-out shapes."]
        lines += ["fitted: true", f"sms: {sms}"]
        if gpu in AMPERE:
            lines += ["like: h100-sxm-80gb # recurrences: no timing on this GPU"]
        lines += [SOURCE.rstrip()]
        for kind in ("gemm", "attention_prefill", "scan"):
            lines += _section(gpu, kind, fitted)
        lines += ["collectives:", f"  link_gb_per_s: {format_float(links[gpu])}"]
        for (name, operation), (values, validation) in collectives.items():
            if name == gpu:
                lines += [
                    f"  {operation}:",
                    *_mapping("terms", values, 4),
                    _fit(validation, (), 4),
                ]
        found[gpu] = "\n".join(lines) + "\n"
    return found


def _section(gpu: str, kind: str, fitted: Sequence[Any]) -> list[str]:
    found = [
        (one, series, validation)
        for one in fitted
        for series, validation in zip(one.pool.series, one.validations, strict=True)
        if one.pool.kind == kind and series[0] == gpu
    ]
    lines = ["gemm:"] if kind == "gemm" and found else []
    for one, series, validation in found:
        pooled = [name for name, _ in one.pool.series if name != gpu]
        values = prefill_terms(series, one.values) if kind == "attention_prefill" else one.values
        lines += [f"{SECTIONS[kind]}:" if kind in SECTIONS else f"  {series[1]}:"]
        indent = 2 if kind in SECTIONS else 4
        for part, numbers in nest_sections(values).items():
            lines += _mapping(part, numbers, indent)
        lines += [_fit(validation, pooled, indent)]
    return lines


def _mapping(name: str, values: Mapping[str, float], indent: int) -> list[str]:
    space = " " * indent
    return [f"{space}{name}:", *(f"{space}  {key}: {format_float(values[key])}" for key in values)]


def _fit(validation: Validation, pooled: Sequence[str], indent: int) -> str:
    parts = [
        f"rows: {validation.rows}",
        f"rms: {validation.rms:.3f}",
        f"median: {validation.median:.3f}",
    ]
    parts += [f"pooled_with: [{', '.join(pooled)}]"] if pooled else []
    return " " * indent + "fit: {" + ", ".join(parts) + "}"


def format_float(value: float) -> str:
    """Format a number so that YAML 1.2 reads a float: an exponent requires a decimal point."""
    text = f"{value:.4g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
        return f"{mantissa}e{int(exponent)}"
    return text
