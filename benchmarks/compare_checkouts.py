"""CPU time of commands in this checkout, relative to another checkout of PARC.

The commands run in turns in both checkouts, so that other load on the machine changes both alike,
and the minimum of each counts. The ratio is therefore comparable between machines.

    python benchmarks/compare_checkouts.py OTHER [--runs 3] [--points 24]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
SPEC = EXAMPLES / "llama-3-70b" / "spec.yaml"
LARGE = """\
parc: 1
name: large
model: llama-3.1-405b
cluster: {node: dgx-h100, nodes: 16384}
job: {sequence_length: 8192, global_batch: 16384}
layout: {tp: 8, pp: PP, cp: 1, micro_batch: 1}
emit: [megatron, rankmap]
"""
SWEPT = """\
parc: 1
name: swept
model: llama-3-70b
cluster: {node: dgx-h100, nodes: 32}
job: {sequence_length: 8192, global_batch: 1024}
"""
TRAINED = """\
parc: 1
name: trained
model: deepseek-v3
cluster: {node: dgx-h100, nodes: 2048}
job: {sequence_length: 4096, global_batch: 15360}
"""
SERVED = """\
parc: 1
name: served
model: deepseek-v3
cluster: {node: hgx-h200, nodes: NODES}
job: {kind: serve, precision: fp8, traffic: {input_tokens: 2000, output_tokens: 500}}
"""
LIMITS = "goals: {ttft: {p99: 2s}, tpot: {p90: 50ms}}\n"


def cases(folder: Path, points: int) -> dict[str, tuple[str, ...]]:
    """Return title -> arguments of ``parc``; ``folder`` receives the specs and outputs."""
    swept = folder / "swept.yaml"
    swept.write_text(SWEPT, encoding="utf-8")
    loaded = SERVED.replace("output_tokens: 500", "output_tokens: 500, request_rate: 2000")
    searched = {
        "search, 16,384 GPUs": TRAINED,
        "search of a service, 512 GPUs": SERVED.replace("NODES", "64"),
        "the same with limits on percentiles": SERVED.replace("NODES", "64") + LIMITS,
        "the same with a load, 24,576 GPUs": loaded.replace("NODES", "3072") + LIMITS,
    }
    for number, text in enumerate(searched.values()):
        (folder / f"searched{number}.yaml").write_text(text, encoding="utf-8")
    outputs = []
    for pp in (8, 16):
        spec = folder / f"large{pp}.yaml"
        spec.write_text(LARGE.replace("PP", str(pp)), encoding="utf-8")
        outputs.append(str(folder / f"large{pp}"))
        cpu_seconds(ROOT, ("compile", str(spec), "-o", outputs[-1]))
    grid = f"cluster.nodes=8..{8 * points}:8"
    examples = sorted(str(path) for path in EXAMPLES.glob("*/spec.yaml"))
    return {
        "check": ("check", str(SPEC)),
        f"check of {len(examples)} examples": ("check", *examples),
        "init of a model without a program": ("init", "--model", "grok-1"),
        f"sweep of {points} points": ("sweep", str(swept), "--vary", grid, "--jobs", "1"),
        "diff of 131,072 GPUs": ("diff", *outputs),
        **{
            title: ("search", str(folder / f"searched{number}.yaml"))
            for number, title in enumerate(searched)
        },
    }


def cpu_seconds(checkout: Path, words: tuple[str, ...]) -> float:
    """Return user plus system time of ``parc WORDS`` with the code of ``checkout``."""
    command = [sys.executable, "-m", "parc", *words]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment)
    # wait4 reports the resources of this child only, unlike resource.getrusage
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print a row per command: seconds in both checkouts, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--points", type=int, default=24)
    options = parser.parse_args()
    print(f"{'command':36}{'other s':>9}{'this s':>9}{'ratio':>7}")
    with TemporaryDirectory() as folder:
        for title, words in cases(Path(folder), options.points).items():
            turns = [
                (cpu_seconds(options.other.resolve(), words), cpu_seconds(ROOT, words))
                for _ in range(options.runs)
            ]
            other, this = (min(turn[side] for turn in turns) for side in (0, 1))
            print(f"{title:36}{other:9.2f}{this:9.2f}{this / other:7.2f}", flush=True)


if __name__ == "__main__":
    main()
