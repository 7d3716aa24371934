"""Speed of the search in layouts per second on one core, and the cost of `parc search`.

    python benchmarks/search_speed.py [--runs 10] [--fail-over]
        [--calculon CHECKOUT [--calculon-python PYTHON]]

All times are CPU times, and every run starts with empty caches. Garbage collection is as rare as in
the command `parc`, for PARC and for Calculon. The columns of rates, per second:

- `sieve`: layouts of the whole space, each decided by the rules, the memory, and the step time of
  those that fit. Layouts that differ from a fitting one only by more recompute are decided by its
  time, which is a lower bound of theirs (`bounded`); all others violate a rule or do not fit.
- `priced`: layouts that fit, whose step time was computed, in the time of the whole sieve.
- `+bounded`: the same, plus the bounded layouts.
- `evaluated`: all valid layouts, with every recompute, whether they fit or not: the memory peak and
  the step time of each. The time includes the rules and the layouts that violate one.
- `search`, `first`: layouts of the space per time of a whole search, which computes step times only
  where a lower bound does not decide, and searches other stage splits too; and of its first run.

With a checkout of Calculon (and a Python that has numpy) a random part of Calculon's own search is
timed on the same GPUs. Two rates of it are printed: of all counted candidates, most of which it
rejects before evaluation, and of complete evaluations. Of the latter only the time inside complete
evaluations counts, not that of its enumeration and its rejections. Like is compared with like:
decided layouts with counted candidates, and evaluated layouts with complete evaluations: both are
memory and time of one layout. The limit on the ratio refers to these. The ratio of priced layouts
is printed too; it is lower, because it divides fewer layouts by the time of the whole sieve.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from parc.backends.registry import framework
from parc.compiler.cli import GC_THRESHOLD
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Sink
from parc.compiler.evaluate.estimate_layout import memory_limit_bytes
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import LayoutVariant, Problem
from parc.compiler.pipeline import resolve_spec
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.filter_layouts import COVERED_BY_SIBLING, LayoutFilter
from parc.compiler.search.layout_space import LayoutSpace
from parc.compiler.search.search_layouts import search_layouts
from parc.compiler.spec.reading.source import SpecSource

MAX_SECONDS = 2.0
"""Limit on the CPU seconds of `parc search`, start-up included; CPU time equals wall time on an
idle machine."""
MAX_MEGABYTES = 500
MIN_RATE = 100_000
"""Minimum number of decided layouts per second."""
MIN_RATIO = 350
"""Minimum ratio of PARC's rate of evaluated layouts to Calculon's complete evaluations."""

CALCULON = """
import gc, logging, os, random, sys, time, types
gc.set_threshold(int(sys.argv[3]))
sys.path.insert(0, sys.argv[1])
sys.modules.setdefault('psutil', types.SimpleNamespace(cpu_count=lambda logical=True: 1))
sys.modules.setdefault('pandas', types.ModuleType('pandas'))
from calculon import System, io
from calculon.llm import Llm, OptimalExecution, optimal_execution
complete = [0, 0.0]
class Timed(Llm):
    def __init__(self, *args):
        self.start = time.process_time()
        super().__init__(*args)
    def get_stats_json(self, *args):
        stats = super().get_stats_json(*args)
        complete[0] += 1
        complete[1] += time.process_time() - self.start
        return stats
optimal_execution.Llm = Timed
app = Llm.Application(io.read_json_file(sys.argv[1] + '/models/gpt3-175B.json'))
system = System(io.read_json_file(sys.argv[1] + '/systems/a100_80g.json'))
ranks, batch, chunks = 512, 1536, []
for tp in Llm.get_all_tensor_parallelisms(ranks, app.hidden, app.attn_heads):
    for pp in Llm.get_all_pipeline_parallelisms(ranks, tp, app.num_blocks):
        dp = Llm.get_data_parallelism(ranks, tp, pp)
        size = OptimalExecution.get_batch_size(dp, batch)
        for chunk in Llm.get_valid_pipeline_interleavings(app.num_blocks, pp):
            chunks += [(tp, pp, dp, chunk, size, level, shard, link)
                       for level in ('full', 'attn_only', 'none')
                       for shard in ((True, False) if dp > 1 else (False,))
                       for link in ('ar', 'p2p_rs_ag', 'rs_ag')]
random.Random(1).shuffle(chunks)
count = 0
start = time.process_time()
for chunk in chunks:
    row = OptimalExecution.search(False, 1, False, ranks, batch, 'float16', app, system,
                                  *chunk, [True], False, True, True)
    count += row[1]
    if time.process_time() - start > float(sys.argv[2]):
        break
print(count, time.process_time() - start, *complete)
"""
"""Random part of Calculon's search of GPT-3 175B on 512 A100, over all degrees and options."""
ENVIRONMENT = {name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"}
"""Environment in which byte code is cached between runs, as for an installed package."""


@dataclass(frozen=True)
class SearchCase:
    """Spec that pins nothing."""

    title: str
    spec: str


CASES = (
    SearchCase(
        "GPT-3 175B, 512 A100",
        "parc: 1\nname: gpt3\nmodel: gpt3-175b\ncluster: {node: dgx-a100, nodes: 64}\n"
        "job: {sequence_length: 2048, global_batch: 1536}\n",
    ),
    SearchCase(
        "Llama 3.1 405B, 16,384 H100",
        "parc: 1\nname: llama\nmodel: llama-3.1-405b\ncluster: {node: dgx-h100, nodes: 2048}\n"
        "job: {sequence_length: 8192, global_batch: 2048}\n",
    ),
    SearchCase(
        "Mixtral 8x7B, 128 H100",
        "parc: 1\nname: mixtral\nmodel: mixtral-8x7b\ncluster: {node: dgx-h100, nodes: 16}\n"
        "job: {sequence_length: 4096, global_batch: 1024}\n",
    ),
    SearchCase(
        "DeepSeek-V3, 2,048 H100",
        "parc: 1\nname: deepseek\nmodel: deepseek-v3\ncluster: {node: dgx-h100, nodes: 256}\n"
        "job: {sequence_length: 4096, global_batch: 15360}\n",
    ),
)


def empty_cost_model(problem: Problem) -> CostModel:
    """Return cost-model tables with empty caches."""
    return cost_model_for(problem, framework(problem.framework))


@dataclass(frozen=True)
class SieveCounts:
    """Numbers of layouts in one run over the whole space, and its CPU seconds."""

    decided: int
    priced: int
    """Layouts whose step time was computed."""
    bounded: int
    """Layouts that were excluded because a priced layout bounds their step time from below."""
    seconds: float


def new_filter(cost_model: CostModel) -> LayoutFilter:
    """Return a filter for the whole space, with empty caches."""
    problem, program = cost_model.problem, cost_model.framework
    space = LayoutSpace.for_variant(problem, program, LayoutVariant())
    rules = all_rules(problem, program)
    return LayoutFilter(cost_model, rules, memory_limit_bytes(cost_model), space)


def sieve_space(problem: Problem) -> SieveCounts:
    """Return the counts and the CPU seconds of one decision of the whole space."""
    cost_model = empty_cost_model(problem)
    start = time.process_time()
    sieve = new_filter(cost_model)
    sieve.filter_all_layouts()
    for survivor in sieve.survivors:
        sieve.step_seconds(survivor.point)
    seconds = time.process_time() - start
    bounded = sieve.dropped_counts[COVERED_BY_SIBLING]
    return SieveCounts(sieve.enumerated, len(sieve.survivors), bounded, seconds)


def evaluation_rate(problem: Problem) -> float:
    """Return the valid layouts per CPU second whose memory and step time are computed."""
    cost_model = empty_cost_model(problem)
    start, count = time.process_time(), 0
    sieve = new_filter(cost_model)
    for point, peaks in sieve.valid_peaks():
        count += len(sieve.sibling_seconds(point, peaks))
    return count / (time.process_time() - start)


def search_rate(problem: Problem) -> tuple[int, float]:
    """Return (layouts, CPU seconds) of one search with its ranking."""
    cost_model = empty_cost_model(problem)
    start = time.process_time()
    search = search_layouts(cost_model, Sink())
    seconds = time.process_time() - start
    return (search.enumerated if search else 0), seconds


def time_command(case: SearchCase) -> tuple[float, float, float]:
    """Return (wall seconds, CPU seconds, peak MB resident) of `parc search`, the best of three."""
    with TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.yaml"
        spec.write_text(case.spec, encoding="utf-8")
        command = [sys.executable, "-m", "parc", "search", str(spec)]
        return min(_run_command(command) for _ in range(3))


def _run_command(command: list[str]) -> tuple[float, float, float]:
    start = time.perf_counter()
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=ENVIRONMENT)
    # wait4 reports the resources of this child only, unlike resource.getrusage
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    # ru_maxrss is in kilobytes on Linux and in bytes on macOS.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    cpu = usage.ru_utime + usage.ru_stime
    return time.perf_counter() - start, cpu, usage.ru_maxrss / unit


def calculon_rates(python: str, checkout: str, seconds: float) -> tuple[float, float]:
    """Return Calculon's rates per second: all counted candidates, complete evaluations."""
    command = [python, "-c", CALCULON, checkout, str(seconds), str(GC_THRESHOLD)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    count, elapsed, complete, complete_seconds = map(float, result.stdout.split()[-4:])
    return count / elapsed, complete / complete_seconds


def measure(case: SearchCase, runs: int) -> tuple[SieveCounts, float, list[str]]:
    """Print a line; return (fastest sieve, best rate of evaluations, limits that were missed)."""
    problem = resolve_spec(SpecSource(case.title, case.spec, None), (), Sink())
    if problem is None:
        raise ValueError(f"{case.title}: the spec has errors")
    cold = search_rate(problem)
    sieve = min((sieve_space(problem) for _ in range(runs)), key=lambda one: one.seconds)
    evaluated = max(evaluation_rate(problem) for _ in range(runs))
    searches = [search_rate(problem) for _ in range(runs)]
    count = cold[0]
    rate, priced = sieve.decided / sieve.seconds, sieve.priced / sieve.seconds
    with_bounds = (sieve.priced + sieve.bounded) / sieve.seconds
    whole = max(number / seconds for number, seconds in searches)
    wall, cpu, megabytes = time_command(case)
    print(
        f"{case.title:28}{count:9,}{rate:12,.0f}{priced:12,.0f}{with_bounds:12,.0f}{evaluated:12,.0f}"
        f"{whole:12,.0f}{count / cold[1]:12,.0f}{wall:9.2f}{cpu:9.2f}{megabytes:8.0f}"
    )
    missed = [f"{case.title}: {rate:,.0f} layouts/s"] if rate < MIN_RATE else []
    missed += [f"{case.title}: {cpu:.2f} s of CPU"] if cpu > MAX_SECONDS else []
    missed += [f"{case.title}: {megabytes:.0f} MB"] if megabytes > MAX_MEGABYTES else []
    return sieve, evaluated, missed


def compare_with_calculon(
    ours: tuple[SieveCounts, float], python: str, checkout: str, seconds: float
) -> list[str]:
    """Print the rates of Calculon and the ratios; return the limits that were missed.

    ``ours`` contains the counts of the sieve, and the evaluated layouts per second.
    """
    counted, complete = calculon_rates(python, checkout, seconds)
    sieve, evaluated = ours[0], ours[1] / complete
    print(f"Calculon, GPT-3 175B on 512 A100: {counted:.0f}/s counted, {complete:.0f}/s complete")
    priced = sieve.priced / sieve.seconds / complete
    with_bounds = (sieve.priced + sieve.bounded) / sieve.seconds / complete
    print(
        f"PARC / Calculon: {sieve.decided / sieve.seconds / counted:,.0f} decided / counted, "
        f"{evaluated:,.0f} evaluated / complete; with the time of the whole sieve "
        f"{priced:,.0f} priced / complete, {with_bounds:,.0f} priced and bounded / complete"
    )
    return [f"ratio to Calculon: {evaluated:,.0f}"] if evaluated < MIN_RATIO else []


def main() -> int:
    """Print the table; with ``--fail-over``, return 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--fail-over", action="store_true", help="exit 1 when a limit is missed")
    parser.add_argument("--calculon", metavar="CHECKOUT", help="also measure Calculon")
    parser.add_argument(
        "--calculon-python", default=sys.executable, help="Python interpreter with numpy"
    )
    parser.add_argument("--calculon-seconds", type=float, default=30.0)
    options = parser.parse_args()
    gc.set_threshold(GC_THRESHOLD)
    columns = ("layouts", "sieve/s", "priced/s", "+bounded/s", "evaluated/s", "search/s")
    columns += ("first/s", "wall s", "CPU s", "MB")
    widths = (9, 12, 12, 12, 12, 12, 12, 9, 9, 8)
    head = "".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))
    print(f"{'problem':28}{head}")
    measured = [measure(case, options.runs) for case in CASES]
    missed = [line for _, _, lines in measured for line in lines]
    if options.calculon:
        python, checkout = options.calculon_python, options.calculon
        ours = measured[0][:2]
        missed += compare_with_calculon(ours, python, checkout, options.calculon_seconds)
    print("\n".join(f"missed: {line}" for line in missed) or "all limits are met")
    return 1 if missed and options.fail_over else 0


if __name__ == "__main__":
    sys.exit(main())
