"""Step times by llm-analysis for ``benchmarks/baselines.py``: cases on stdin, seconds on stdout.

    python benchmarks/llm_analysis_rows.py CHECKOUT < cases.json

Runs under a Python that has ``fire``, and imports nothing of this project. The output is a list of
seconds, with null for cases that llm-analysis rejects.
"""

from __future__ import annotations

import json
import logging
import pathlib
import sys

CASES = list[dict]
EFFICIENCY = 0.5
"""FLOPs efficiency that the documentation of llm-analysis suggests."""

CAPACITY_GB = 2000.0
"""Ample memory, because only the time is compared: runs that trained did fit."""


def seconds_of(checkout: str, cases: CASES) -> list[float | None]:
    """Return the seconds of each case."""
    sys.path.insert(0, checkout)
    from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
    from llm_analysis.config import DtypeConfig, GPUConfig, ModelConfig, ParallelismConfig

    logging.disable(logging.CRITICAL)
    found: list[float | None] = []
    for case in cases:
        with pathlib.Path(f"{checkout}/llm_analysis/gpu_configs/{case['gpu']}.json").open() as file:
            gpu = GPUConfig(**json.load(file))
        gpu.mem_per_GPU_in_GB = CAPACITY_GB
        try:
            analysis = LLMAnalysis(
                ModelConfig(**case["model"]),
                gpu,
                DtypeConfig(**case["dtype"]),
                ParallelismConfig(**case["parallelism"]),
                flops_efficiency=EFFICIENCY,
            )
            answer = analysis.training(
                **case["training"],
                activation_recomputation=ActivationRecomputation[case["recompute"]],
                ds_zero=DSZeRO(case["zero"]),
            )
            found.append(float(answer["latency_per_iter"]))
        except (AssertionError, ValueError, ZeroDivisionError):
            found.append(None)
    return found


if __name__ == "__main__":
    json.dump(seconds_of(sys.argv[1], json.load(sys.stdin)), sys.__stdout__)
