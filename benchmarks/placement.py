"""Quality and speed of placement: against brute force, against lower bounds, on 131,072 GPUs.

    python -m benchmarks.placement [--cases N] [--giant]

Random clusters and jobs are those of tests/placement/random_clusters.py. Each case is determined by
its number and is the same on every machine. Times are CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import mean, median

from parc.compiler.diagnostics import Sink
from parc.compiler.ir import PlacementProof, Plan
from parc.compiler.pipeline import emit_plan, plan_spec
from parc.compiler.placement.fixed_hosts import evaluate_placement
from parc.compiler.placement.replan_hosts import replan_hosts
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.writer import write_artifacts
from tests.placement.random_clusters import irregular, placed, tiny
from tests.placement.test_place_ranks_optimum import best_cost, every_cost

HOSTS = 16_384
LARGE_JOBS = {
    "dense": ("llama-3.1-405b", "dgx-h100", "{tp: 8, cp: 1, pp: 16, dp: 1024, vpp: 1}"),
    "experts": ("deepseek-v3", "hgx-h800", "{tp: 1, pp: 16, ep: 64, etp: 1, vpp: 1}"),
}


def compare_with_brute_force(cases: int) -> None:
    """Compare placements of small cases with the best order, found by brute force."""
    same = 0
    for seed in range(cases):
        case = tiny(seed)
        proof = placed(case).proof
        best = best_cost(every_cost(*case), proof.tie_seconds)
        found = (proof.exposed_seconds, proof.uplink_bytes, proof.total_bytes)
        close = all(abs(a - b) <= 1e-9 * b for a, b in zip(found, best, strict=True))
        same += close and proof.quality == "optimal"
    print(f"{same} of {cases} jobs of at most 8 hosts: equal to brute force and proved optimal")


def measure_gaps(cases: int) -> None:
    """Report the gap to the lower bound on irregular clusters of 64 to 2,048 hosts."""
    gaps, quality, gains, seconds, bytes_ = [], Counter[str](), [], [], []
    for seed in range(cases):
        case = irregular(seed)
        start = time.process_time()
        placement = placed(case)
        seconds.append(time.process_time() - start)
        exposed = {one.name: one.exposed_seconds for one in placement.alternatives}
        gaps.append(placement.proof.exposed_gap)
        bytes_.append(placement.proof.bytes_gap)
        quality[_quality_words(placement.proof)] += 1
        gains.append(exposed["name order"] / max(placement.proof.exposed_seconds, 1e-12))
    gaps.sort()
    print(f"{cases} irregular clusters of 64 to 2,048 hosts")
    print(f"  gap to the bound   median {median(gaps) * 100:.2f} %, mean {mean(gaps) * 100:.2f} %")
    print(
        f"  three quarters     {gaps[cases * 3 // 4] * 100:.2f} %, "
        f"nine tenths {gaps[cases * 9 // 10] * 100:.2f} %"
    )
    print("  " + ", ".join(f"{count} {name}" for name, count in sorted(quality.items())))
    met = sum(not gap for gap in bytes_)
    print(f"  uplink bytes       bound reached by {met}, gap {median(bytes_) * 100:.0f} % (median)")
    print(
        f"  name order exposes {median(gains):.2f} times as much (median), {max(gains):.1f} at most"
    )
    print(f"  CPU seconds        median {median(seconds):.2f}, at most {max(seconds):.2f}")


def _quality_words(proof: PlacementProof) -> str:
    if proof.quality == "optimal" or proof.exposed_gap:
        return proof.quality
    return "minimal exposed time (proved)"


def measure_largest_job(name: str) -> None:
    """Place, emit and write a job on 131,072 GPUs in irregular racks, then drain a host."""
    chosen, node, pins = LARGE_JOBS[name]
    racks = "\n".join(_racks())
    text = (
        f"parc: 1\nname: giant\nmodel: {chosen}\ncluster:\n  node: {node}\n"
        "  fabric: {base: infiniband-ndr, oversubscription: 4}\n"
        f"  racks:\n{racks}\n  spare: ['k0001n[01-08]']\n"
        f"job: {{sequence_length: 8192, global_batch: 16384}}\nlayout: {pins}\n"
    )
    sink, clock = Sink(), _Clock()
    plan = plan_spec(SpecSource("giant.yaml", text, None), (), sink, clock)
    assert plan is not None
    artifacts = emit_plan(plan, sink, clock)
    with tempfile.TemporaryDirectory() as folder:
        write_artifacts(artifacts, Path(folder) / "out")
    clock("write")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    emit = sum(spent for step, spent in clock.spent.items() if step.startswith("emit"))
    print(f"131,072 GPUs, {name}: {plan.placement.proof.summary}")
    parts = {
        "resolve and search": sum(clock.spent.values()) - emit - clock.sum("place_ranks"),
        "place": clock.spent["place_ranks"],
        "emit": emit,
        "verify": clock.spent["verify_plan"],
        "write": clock.spent["write"],
    }
    parts["resolve and search"] -= parts["verify"] + parts["write"]
    print("  " + ", ".join(f"{step} {spent:.2f} s" for step, spent in parts.items()))
    print(f"  place, emit and write {parts['place'] + emit + parts['write']:.2f} s, {peak:.2f} GiB")
    _drain(plan)


def _drain(plan: Plan) -> None:
    start = time.process_time()
    found = replan_hosts(plan, [plan.placement.hosts[5000].name], Sink())
    assert found is not None
    evaluate_placement(found.plan)
    spent = time.process_time() - start
    print(f"  replan of one host {spent:.2f} s, {len(found.moves) * 8} ranks move")


def _racks() -> list[str]:
    draw = random.Random(1)
    rows, hosts = [], 0
    while hosts < HOSTS + 8:
        size = min(draw.choice((32, 32, 32, 31, 30, 17)), HOSTS + 8 - hosts)
        name = f"k{len(rows) + 1:04d}"
        rows.append(f'    - {{name: {name}, nodes: "{name}n[01-{size:02d}]"}}')
        hosts += size
    return rows


class _Clock:
    """CPU seconds per pass."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._last = time.process_time()

    def __call__(self, step: str) -> None:
        now = time.process_time()
        self.spent[step] = self.spent.get(step, 0.0) + now - self._last
        self._last = now

    def sum(self, *steps: str) -> float:
        """Return the total seconds of several passes."""
        return sum(self.spent.get(step, 0.0) for step in steps)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--giant", action="store_true", help="only the case with 131,072 GPUs")
    options = parser.parse_args()
    if not options.giant:
        compare_with_brute_force(options.cases)
        measure_gaps(options.cases)
    for name in LARGE_JOBS:
        measure_largest_job(name)


if __name__ == "__main__":
    main()
