"""Runs of the program that PARC emits for FSDP2, measured on one H100 and one H200.

The rows of ``published/emitted.jsonl`` are PARC's own measurements of November 2026 with torch
2.11 and transformers 5.17. No parameter of the step time is fitted to them. On the H100 the
optimizer was not yet fused and torch's allocator had no expandable segments, so that only the
kernel times of its micro-batches are compared. Models with ``config`` are Hugging Face configs
with fewer layers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import parc
from benchmarks.accuracy.pages.page_tables import error_row
from benchmarks.accuracy.predict import kernel_seconds
from parc.backends.registry import framework
from parc.compiler.ir import Estimate, Plan
from parc.compiler.resolve.resolve_kernels import cost_model_for

PATH = Path(__file__).parent / "published" / "emitted.jsonl"
EMITTED_SETTINGS = "hgx-h200"
"""Node type of the runs with the settings that PARC emits today."""


@dataclass(frozen=True, slots=True)
class EmittedRun:
    """Measured run with its plan."""

    name: str
    node: str
    step_seconds: float
    kernel_seconds: float
    """Sum of the kernel times of all micro-batches of a step, without the optimizer."""
    allocated_bytes: int
    reserved_bytes: int
    plan: Plan

    @property
    def estimate(self) -> Estimate:
        """Estimate of the plan."""
        return self.plan.estimate

    @property
    def is_mixture(self) -> bool:
        """True if the model has routed experts."""
        return self.plan.problem.model.experts is not None

    @property
    def step_error(self) -> float:
        """Relative error of the step time; positive if the estimate is too long."""
        return self.estimate.time.total_seconds / self.step_seconds - 1

    @property
    def kernel_error(self) -> float:
        """Relative error of the kernel times of the micro-batches."""
        problem = self.plan.problem
        cost_model = cost_model_for(problem, framework(problem.framework))
        return kernel_seconds(cost_model, self.plan.layout) / self.kernel_seconds - 1

    @property
    def allocated_error(self) -> float:
        """Relative error of the peak of allocated bytes."""
        return self.estimate.memory[0].allocated_bytes / self.allocated_bytes - 1

    @property
    def reserved_error(self) -> float:
        """Relative error of the peak of reserved bytes."""
        return self.estimate.memory[0].reserved_bytes / self.reserved_bytes - 1


def read_emitted_runs(path: Path = PATH) -> Iterator[EmittedRun]:
    """Yield the runs in the order of the file, each with its plan."""
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        yield EmittedRun(
            name=row["name"],
            node=row["node"],
            step_seconds=row["step_seconds"],
            kernel_seconds=row["kernel_seconds"],
            allocated_bytes=row["allocated_bytes"],
            reserved_bytes=row["reserved_bytes"],
            plan=plan_run(row),
        )


def plan_run(row: dict[str, Any]) -> Plan:
    """Return the plan of a row; SpecError if its spec is rejected."""
    with TemporaryDirectory() as folder:
        model = row["model"]
        if "config" in model:
            config = Path(folder, "config.json")
            config.write_text(json.dumps(model["config"]), "utf-8")
            model = str(config)
        spec = {
            "parc": 1,
            "name": row["name"],
            "model": model,
            "cluster": {
                "node": {"base": row["node"], "gpus_per_node": 1, "nvlink_domain": 1},
                "nodes": 1,
            },
            "job": {
                "sequence_length": row["sequence_length"],
                "global_batch": row["micro_batch"] * row["micro_batches"],
            },
            "layout": {key: row[key] for key in ("micro_batch", "recompute", "zero_stage")},
            "emit": ["fsdp"],
        }
        found = parc.compile(spec, root=folder)
    assert isinstance(found, Plan)
    return found


def emitted_section() -> str:
    """Return the section of the accuracy page as Markdown."""
    runs = tuple(read_emitted_runs())
    today = [run for run in runs if run.node == EMITTED_SETTINGS]
    dense = [run for run in runs if not run.is_mixture]
    return "\n".join(
        (
            "## Programs that PARC emits",
            "",
            f"{len(runs)} steps of the program that PARC emits for FSDP2 were measured on one H100",
            "and one H200. No parameter of the step time is fitted to them; the fragmentation of",
            "emitted programs is fitted to their reserved bytes. *kernels* is the sum of kernel",
            "times of all micro-batches of a step, predicted for a host that launches them in no",
            "time; step times also include the optimizer and gaps.",
            "",
            "| quantity | runs | mean error | median | bias | within 10 % |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            error_row("kernels, dense", dense, lambda run: run.kernel_error),
            error_row("kernels, all", runs, lambda run: run.kernel_error),
            error_row("step time, all on H200", today, lambda run: run.step_error),
            error_row("allocated bytes, all on H200", today, lambda run: run.allocated_error),
            error_row("reserved bytes, all on H200", today, lambda run: run.reserved_error),
            "",
        )
    )
