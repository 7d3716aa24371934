"""Measured runs and nccl-tests output that the cost model generates, so the truth is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from parc.compiler.cost.setup.calibrated_parameters import Values
from parc.compiler.diagnostics import Sink
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.tools.calibration.fit_runs import predicted_seconds
from parc.compiler.tools.calibration.measured_runs import read_measured_runs

HEADER = (
    "run,model,node,nodes,sequence_length,global_batch,tp,pp,vpp,micro_batch,recompute,step_seconds"
)
RUNS = """\
narrow,gpt2-small,dgx-h100,1,1024,512,1,1,1,8,none,1
narrow again,gpt2-small,dgx-h100,1,1024,512,1,1,1,1,none,1
one host,llama-3-8b,dgx-h100,1,8192,128,1,1,1,1,none,1
two hosts,llama-3-8b,dgx-h100,2,8192,128,2,1,1,1,none,1
four hosts,llama-3-8b,dgx-h100,4,8192,128,8,1,1,1,selective,1
long,llama-3-8b,dgx-h100,4,32768,32,4,1,1,1,full,1
wide,llama-3-70b,dgx-h100,8,8192,128,8,4,5,1,none,1
wide again,llama-3-70b,dgx-h100,8,8192,128,4,8,1,1,full,1
"""


def write_runs(folder: Path, truth: Values, *changes: tuple[str, str]) -> str:
    """Write RUNS with the step times of a machine with parameters ``truth``; return the path."""
    source = SpecSource("runs.csv", f"{HEADER}\n{RUNS}", folder)
    lines = [HEADER]
    for run in read_measured_runs(source, Sink()):
        seconds = predicted_seconds(run, truth)
        line = RUNS.splitlines()[run.row.span.line - 2]
        lines.append(f"{line.rpartition(',')[0]},{seconds:.6g}")
    return write_text(folder, "\n".join(lines) + "\n", *changes)


def write_text(folder: Path, text: str, *changes: tuple[str, str]) -> str:
    """Write ``runs.csv`` with every (old, new) of ``changes`` replaced once; return the path."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "runs.csv").write_text(text, encoding="utf-8")
    return str(folder / "runs.csv")


def nccl_text(hosts: int, per_host: int, seconds: Callable[[int], float], test: str) -> str:
    """Return output of nccl-tests; ``seconds`` maps the bytes of a message to its time."""
    ranks = [
        f"#  Rank {host * per_host + device:2d} Group  0 Pid   4000 on         n{host + 1} "
        f"device  {device} [0000:1b:00] NVIDIA H100 80GB HBM3"
        for host in range(hosts)
        for device in range(per_host)
    ]
    rows = [
        f"{1 << power:12d} {1 << power >> 2:12d} float sum -1 {seconds(1 << power) * 1e6:9.2f} "
        "0.00 0.00 0 9.99 0.00 0.00 0"
        for power in range(3, 34)
    ]
    head = [f"# Collective test starting: {test}_perf", "# Using devices", *ranks, "#"]
    return "\n".join([*head, *rows, "# Avg bus bandwidth    : 136.3"]) + "\n"
