"""CPU time per spec of `parc compile --check` over many specs in one run.

The specs are variants of all examples: other batches, lengths, numbers of hosts and headrooms.
Their output is compiled first, and not timed.

    python benchmarks/batch_speed.py [--variants 8] [--fail-over]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML

from parc.compiler.cli import main as main_command
from parc.compiler.ir.frozen import frozen

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LIMIT_MS = 180
"""Limit on the CPU milliseconds per spec: 10,000 specs in 30 CPU minutes."""


@frozen
class Change:
    """Differences between a variant and its example."""

    batches: int = 1
    """Factor of the global batch."""
    shorter: int = 1
    """Divisor of the sequence length."""
    nodes: int = 1
    """Factor of the number of hosts."""
    headroom: str = "8%"


CHANGES = (
    *(Change(), Change(batches=2), Change(shorter=2), Change(batches=2, nodes=2)),
    *(Change(shorter=2, headroom="9%"), Change(batches=4, nodes=2, headroom="10%")),
    *(Change(batches=2, shorter=2, headroom="11%"), Change(headroom="12%")),
)


def variant(spec: dict[str, Any], number: int, change: Change) -> dict[str, Any]:
    """Return the spec with ``change``; fields that it does not set as numbers stay."""
    job, cluster = dict(spec["job"]), spec["cluster"]
    for key, factor in (("global_batch", change.batches), ("sequence_length", 1 / change.shorter)):
        if isinstance(job.get(key), int):
            job[key] = int(job[key] * factor)
    if isinstance(cluster, dict) and isinstance(cluster.get("nodes"), int):
        cluster = {**cluster, "nodes": cluster["nodes"] * change.nodes}
    goals = {**spec.get("goals", {}), "memory_headroom": change.headroom}
    name = f"{spec['name']}-{number}"
    return {**spec, "name": name, "job": job, "cluster": cluster, "goals": goals}


def write_specs(folder: Path, variants: int) -> Iterator[str]:
    """Write the specs below ``folder``, and yield their paths relative to it."""
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    for example in sorted(EXAMPLES.glob("*/spec.yaml")):
        home = folder / example.parent.name
        # Specs name other files of their folder.
        others = shutil.ignore_patterns("expected", "spec.yaml")
        shutil.copytree(example.parent, home, ignore=others)
        spec = yaml.load(example)
        for number, change in enumerate(CHANGES[:variants]):
            path = home / f"spec{number}.yaml"
            yaml.dump(variant(spec, number, change), path)
            yield path.relative_to(folder).as_posix()


def compile_specs(specs: list[str]) -> None:
    """Write the output of all specs into the current folder; RuntimeError if one has errors."""
    with Path(os.devnull).open("w") as quiet, redirect_stdout(quiet), redirect_stderr(quiet):
        for spec in specs:
            if main_command.main(["compile", spec], standalone_mode=False):
                raise RuntimeError(f"parc compile {spec} failed")


def cpu_ms(words: list[str]) -> float:
    """Return the CPU milliseconds of a command and its workers; CalledProcessError if it fails."""
    before = os.times()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return 1000 * (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def main() -> int:
    """Print the time per spec; with ``--fail-over``, return 1 if the limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", type=int, default=len(CHANGES), help="variants per example")
    parser.add_argument("--fail-over", action="store_true", help="exit 1 when the limit is passed")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        specs = list(write_specs(Path(), options.variants))
        compile_specs(specs)
        total = cpu_ms([sys.executable, "-m", "parc", "compile", "--check", *specs])
        os.chdir("/")
    each = total / len(specs)
    minutes = each * 10_000 / 60_000
    print(f"{len(specs)} specs: {each:.0f} ms CPU per spec (limit {LIMIT_MS})")
    print(f"10,000 such specs: {minutes:.0f} CPU minutes")
    return 1 if each > LIMIT_MS and options.fail_over else 0


if __name__ == "__main__":
    sys.exit(main())
