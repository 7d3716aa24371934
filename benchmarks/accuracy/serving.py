"""The serving section of the accuracy page: TPOT, TTFT, throughput, and the choice of layouts.

python -m benchmarks.accuracy.serving [--data FOLDER] [--rows WORDS]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from benchmarks.accuracy.serving_priced import Priced, price, read_serving
from benchmarks.accuracy.serving_waits import load_table

HEAD = """\
## Serving

Published latencies and rates of vLLM, SGLang and TensorRT-LLM; median |predicted / measured - 1|,
and the median of predicted / measured - 1 beside it, in %. Blank: not measured there. Whether
tokens were drafted is not recorded by the sampled benchmarks: rows of one layout differ by 2 x."""
LOADS = """\
Time to the first token by load: median, mean and median signed errors as shipped, in %, and those
of fits that saw no row of the same source. In a closed loop a fixed number of requests is in the
system; steps are of 8,192 tokens, for the prompts of all on a data-parallel rank."""
COLUMNS = "| model | GPU | engine | weights | source | rows | TPOT | TTFT | tokens/s |"


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows of one sweep: the best measured, and the one that the model picks."""

    rows: int
    right: bool
    regret: float
    by_tp: bool
    """The rows differ in tensor parallelism, each from every other."""


def choices(priced: Sequence[Priced]) -> list[Choice]:
    """One for each sweep of two layouts or more: the highest rate a GPU is the choice."""
    sweeps: dict[str, list[Priced]] = {}
    for one in priced:
        if one.row.sweep and one.row.measured.tokens_per_second_per_gpu:
            sweeps.setdefault(one.row.sweep, []).append(one)
    several = [rows for rows in sweeps.values() if len({one.row.layout for one in rows}) > 1]
    return [_choice(rows) for rows in several]


def _choice(rows: Sequence[Priced]) -> Choice:
    best = max(one.row.measured.tokens_per_second_per_gpu for one in rows)
    pick = max(rows, key=lambda one: one.found.tokens_per_second_per_gpu)
    regret = best / pick.row.measured.tokens_per_second_per_gpu - 1
    spread = {max(one.row.layout.tp, one.row.layout.dp) for one in rows}
    return Choice(len(rows), regret == 0, regret, len(spread) == len(rows))


def section(data: Path | None = None) -> str:
    """Markdown; the project's own rows, or those of a wide table in ``data``."""
    wide = read_serving(data)
    priced = price(wide.rows)
    groups: dict[tuple[str, ...], list[Priced]] = {}
    for one in priced:
        apart = " (decode pool)" if one.row.setup.prefill_apart else ""
        key = (*one.row.group[:4], one.row.source.split("/", 1)[-1] + apart)
        groups.setdefault(key, []).append(one)
    lines = [HEAD, "", COLUMNS, "| --- " * 9 + "|"]
    lines += [_line(key, groups[key]) for key in sorted(groups)]
    lines += [_line(("**all**", "", "", "", ""), priced), ""]
    lines += [_choice_line("all layouts", choices(priced))]
    tables = [choice for choice in choices(priced) if choice.by_tp]
    lines += [_choice_line("tensor parallelism alone", tables), "", _fits(priced)]
    lines += ["", LOADS, "", *load_table(priced), ""]
    left = ", ".join(f"{count} ({why})" for why, count in _by_count(wide.left_out))
    return "\n".join([*lines, f"- Rows left out: {left or 'none'}.", ""])


def _by_count(left_out: Counter[str]) -> list[tuple[str, int]]:
    return sorted(left_out.items(), key=lambda item: (-item[1], item[0]))


def _line(key: Sequence[str], priced: Sequence[Priced]) -> str:
    cells = [*key, str(len(priced))]
    readings: tuple[Callable[[Priced], float | None], ...] = (
        lambda one: one.tpot,
        lambda one: one.ttft,
        lambda one: one.rate,
    )
    for reading in readings:
        errors = [error for one in priced if (error := reading(one)) is not None]
        cells.append(_pair(errors))
    return f"| {' | '.join(cells)} |"


def _pair(errors: Sequence[float]) -> str:
    if not errors:
        return ""
    return f"{100 * median(map(abs, errors)):.1f} ({100 * median(errors):+.1f})"


def _choice_line(title: str, found: Sequence[Choice]) -> str:
    if not found:
        return f"- Choice of {title}: no sweeps."
    right = sum(choice.right for choice in found) / len(found)
    regret = [choice.regret for choice in found]
    return (
        f"- Choice of {title}: {len(found)} sweeps, right in {right:.1%}, mean regret "
        f"{mean(regret):.1%}, largest {max(regret):.0%}."
    )


def _fits(priced: Sequence[Priced]) -> str:
    misses = sum(not one.found.fits for one in priced)
    return f"- Deployments that ran and are predicted not to fit: {misses} of {len(priced)}."


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.serving")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="serving.csv in FOLDER")
    parser.add_argument("--rows", metavar="WORDS", help="rows whose group holds every word")
    arguments = parser.parse_args(argv)
    if arguments.rows is None:
        print(section(arguments.data), end="")
        return 0
    for one in price(read_serving(arguments.data).rows):
        text = " ".join(one.row.group)
        if all(word in text for word in arguments.rows.split()):
            print(row_line(one))
    return 0


def row_line(one: Priced) -> str:
    """One row with its terms, milliseconds."""
    row, found = one.row, one.found
    layout, step, seen = row.layout, found.decode, row.measured
    terms = ("projections", "attention", "mlp", "communication", "launch", "head", "host")
    parts = " ".join(f"{term} {1e3 * getattr(step, term):.2f}" for term in terms)
    return (
        f"{row.name}: tp {layout.tp} dp {layout.dp} ep {layout.ep} x {layout.replicas}, TPOT "
        f"{1e3 * found.tpot_seconds:.1f} ({1e3 * seen.tpot_seconds:.1f}), TTFT "
        f"{1e3 * found.ttft_seconds:.0f} ({1e3 * seen.ttft_seconds:.0f}), tokens/s/GPU "
        f"{found.tokens_per_second_per_gpu:.0f} ({seen.tokens_per_second_per_gpu:.0f}); "
        f"running {found.running:.0f} of {found.max_concurrency:.0f}, prompt "
        f"{1e3 * found.prefill_seconds:.1f}; {parts}"
    )


if __name__ == "__main__":
    sys.exit(main())
