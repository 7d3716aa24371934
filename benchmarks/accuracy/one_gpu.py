"""Steps of torchtitan, measured on one H100.

The rows of ``published/one_gpu.jsonl`` are PARC's own measurements of November 2026 with torchtitan
0.2.2, torch 2.11 and FSDP2 with one rank: a few layers of each model, five steps after the first
ones. Only ``ROWWISE_CAST_BYTES`` is fitted to one of them. ``vocab`` is a smaller vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy.cases import Case, make_cases
from benchmarks.accuracy.pages.page_tables import error_row
from benchmarks.accuracy.predict import cost_model_of, estimate_step, kernel_seconds
from benchmarks.accuracy.runs import Run
from parc.compiler.cost.step.layer_time import attention_core_seconds
from parc.compiler.ir import StepTime
from parc.compiler.spec.model_spec import ModelSpec

PATH = Path(__file__).parent / "published" / "one_gpu.jsonl"


@dataclass(frozen=True, slots=True)
class OneGpuRun:
    """Measured steps with their prediction."""

    name: str
    step_seconds: float
    kernel_seconds: float
    """Sum of the kernel times of a step, without the optimizer."""
    attention_seconds: float
    """Part of ``kernel_seconds`` in the attention core."""
    case: Case

    @property
    def estimate(self) -> StepTime:
        """Predicted times."""
        return estimate_step(self.case)

    @property
    def step_error(self) -> float:
        """Relative error of the step time; positive if the prediction is too long."""
        return self.estimate.total_seconds / self.step_seconds - 1

    @property
    def kernel_error(self) -> float:
        """Relative error of the kernel times."""
        predicted = kernel_seconds(cost_model_of(self.case), self.case.layout)
        return predicted / self.kernel_seconds - 1

    @property
    def attention_error(self) -> float:
        """Relative error of the time of the attention core."""
        cost_model, layout = cost_model_of(self.case), self.case.layout
        predicted = 0.0
        for kind in self.case.problem.model.layer_kinds:
            core = attention_core_seconds(cost_model, layout, kind)
            predicted += core.total + (
                core.forward if layout.recompute.granularity == "full" else 0.0
            )
        return predicted / self.attention_seconds - 1


def read_one_gpu_runs(path: Path = PATH) -> Iterator[OneGpuRun]:
    """Yield the runs in the order of the file."""
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        yield OneGpuRun(
            name=row["name"],
            step_seconds=row["step_seconds"],
            kernel_seconds=row["kernel_seconds"],
            attention_seconds=row["attention_seconds"],
            case=make_cases((_run(row),)).cases[0],
        )


def _run(row: dict[str, Any]) -> Run:
    """Return a row of ``one_gpu.jsonl`` in the form of a published run."""
    words = ["dp-overlap", "unfused-routing", *(["compiled"] if row["compiled"] else ["eager"])]
    resized = {"vocab": row["vocab"]} if "vocab" in row else {}
    return Run(
        id=row["name"],
        model=row["model"],
        layers=row["layers"],
        mtp=0,
        node="hgx-h100",
        gpus=1,
        gpus_per_node=1,
        network_gbps=None,
        nics=None,
        precision="bf16" if row["recipe"] == "bf16" else "fp8",
        recipe=row["recipe"],
        sequence=row["sequence_length"],
        global_batch=row["micro_batch"],
        tp=1,
        cp=1,
        pp=1,
        vpp=None,
        ep=1,
        etp=1,
        shard=1,
        zero=3,
        sequence_parallel=None,
        micro_batch=row["micro_batch"],
        recompute=row["recompute"],
        overlap="+".join(words),
        step_seconds=row["step_seconds"],
        tokens_per_s_per_gpu=None,
        oom=False,
        tier="A",
        sweep="",
        cluster="one H100",
        framework="torchtitan",
        source="PARC, one H100",
        spec=ModelSpec(base=row["model"], **resized),
    )


def one_gpu_section() -> str:
    """Return the section of the accuracy page as Markdown."""
    runs = tuple(read_one_gpu_runs())
    dense = [run for run in runs if run.case.problem.model.experts is None]
    return "\n".join(
        (
            "## torchtitan on one GPU",
            "",
            f"{len(runs)} steps of torchtitan 0.2.2 with a few layers of Llama 3 8B and 70B, Qwen3",
            "32B and Qwen3 30B-A3B were measured on one H100. Only the traffic of casts with",
            "scales per row is fitted to one of them.",
            "",
            "| quantity | runs | mean error | median | bias | within 10 % |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            error_row("attention core, all", runs, lambda run: run.attention_error),
            error_row("kernels, dense", dense, lambda run: run.kernel_error),
            error_row("kernels, all", runs, lambda run: run.kernel_error),
            error_row("step time, all", runs, lambda run: run.step_error),
            "",
        )
    )
