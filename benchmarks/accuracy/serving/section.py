"""Serving section of the accuracy page: TPOT, TTFT, throughput, and the choice of layouts.

python -m benchmarks.accuracy.serving.section [--data FOLDER] [--rows WORDS]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from benchmarks.accuracy.score import format_median_errors
from benchmarks.accuracy.serving.predictions import ServingPrediction, predict_serving, read_serving
from benchmarks.accuracy.serving.waits import load_table
from parc.compiler.report.formatting import format_percent

HEAD = """\
## Serving

The table compares predictions with published latencies and throughput of vLLM, SGLang and
TensorRT-LLM. Each cell contains the median of |predicted / measured - 1| and, in brackets, the
median of predicted / measured - 1, in %; a cell is blank if the source did not measure the
quantity. The sampled benchmarks do not record whether speculative decoding was on, which is why
rows of the same layout differ by up to a factor of 2.

*Choice* compares layouts of one sweep: rows with the same model, GPU, engine, formats, lengths and
load that were measured with the same version of the engine and, if the source does not record
whether speculative decoding was on, on the same day. PARC chooses the row with the highest
predicted throughput per GPU. The regret is the highest measured throughput per GPU divided by that
of the chosen row, minus 1. Rows are left out if their measured values contradict the row: weights
larger than the memory of the stated GPUs, prompts that need more FLOP/s than the peak of the
GPUs, or fewer than half as many decoding requests (by Little's law) as are stated and fit into
memory."""
LOADS = """\
Errors of the time to the first token by load, in %. *median*, *mean* and *bias* (median signed
error) are those of the shipped constants; the last two columns are median and bias of fits without
any row of the same source. In a closed loop, the number of requests in the system is constant. The
rows of closed loops differ in how many engine steps of 8,192 tokens the prompts of all requests on
one data-parallel rank need. The table also counts the mean times of the benchmarks under
[99th percentiles](#99th-percentiles), except those of full engines. Their four sources are not in
the table above; the row *benchmarks with percentiles* shows them alone.

Without these benchmarks, few of the rows here have a light load, so they do not determine the time
in the front end of the engine. Fits to a larger set of rows, again without any row of the same
source, give a median of 25 % and a bias of +16 % for the benchmarks with percentiles. Most of their
prompts are short or cached: the median time to the first token is 35 to 80 ms, and such fits are
wrong by 13 to 16 ms, about the time in the front ends of these sources (8 to 18 ms)."""
COLUMNS = "| model | GPU | engine | weights | source | rows | TPOT | TTFT | tokens/s |"


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice of the layout with the highest predicted throughput in one sweep."""

    rows: int
    right: bool
    regret: float
    by_tp: bool
    """True if all rows differ in the degree of tensor parallelism (or attention data parallelism).
    """


def choices(predictions: Sequence[ServingPrediction]) -> list[Choice]:
    """Return the choice in each sweep of at least two layouts, by throughput per GPU."""
    sweeps: dict[str, list[ServingPrediction]] = {}
    for one in predictions:
        if one.row.sweep and one.row.measured.tokens_per_second_per_gpu:
            sweeps.setdefault(one.row.sweep, []).append(one)
    several = [rows for rows in sweeps.values() if len({one.row.layout for one in rows}) > 1]
    return [_choice(rows) for rows in several]


def _choice(rows: Sequence[ServingPrediction]) -> Choice:
    best = max(one.row.measured.tokens_per_second_per_gpu for one in rows)
    pick = max(rows, key=lambda one: one.found.tokens_per_second_per_gpu)
    regret = best / pick.row.measured.tokens_per_second_per_gpu - 1
    # attention data parallelism uses dp ranks in place of tp ranks
    spread = {max(one.row.layout.tp, one.row.layout.dp) for one in rows}
    return Choice(len(rows), regret == 0, regret, len(spread) == len(rows))


def section(data: Path | None = None) -> str:
    """Return the section as Markdown, for the project's rows or for a wide table in ``data``."""
    wide = read_serving(data)
    predictions = predict_serving(wide.rows)
    groups: dict[tuple[str, ...], list[ServingPrediction]] = {}
    for one in predictions:
        apart = " (decode pool)" if one.row.setup.prefill_apart else ""
        key = (*one.row.group[:4], one.row.source.split("/", 1)[-1] + apart)
        groups.setdefault(key, []).append(one)
    lines = [HEAD, "", COLUMNS, "| --- " * 9 + "|"]
    lines += [_line(key, groups[key]) for key in sorted(groups)]
    lines += [_line(("**all**", "", "", "", ""), predictions), ""]
    lines += [_choice_line("all sweeps", choices(predictions))]
    tables = [choice for choice in choices(predictions) if choice.by_tp]
    lines += [_choice_line("sweeps over the tensor parallel size", tables), "", _fits(predictions)]
    lines += ["", LOADS, "", *load_table(predictions), ""]
    left = ", ".join(f"{count} ({why})" for why, count in _by_count(wide.left_out))
    return "\n".join([*lines, f"- Rows left out: {left or 'none'}.", ""])


def _by_count(left_out: Counter[str]) -> list[tuple[str, int]]:
    return sorted(left_out.items(), key=lambda item: (-item[1], item[0]))


def _line(key: Sequence[str], predictions: Sequence[ServingPrediction]) -> str:
    cells = [*key, str(len(predictions))]
    readings: tuple[Callable[[ServingPrediction], float | None], ...] = (
        lambda one: one.tpot,
        lambda one: one.ttft,
        lambda one: one.rate,
    )
    for reading in readings:
        cells.append(format_median_errors(map(reading, predictions)))
    return f"| {' | '.join(cells)} |"


def _choice_line(title: str, found: Sequence[Choice]) -> str:
    if not found:
        return f"- Choice in {title}: none."
    right = sum(choice.right for choice in found) / len(found)
    regret = [choice.regret for choice in found]
    return (
        f"- Choice in {title} ({len(found)}): PARC chooses the fastest layout in "
        f"{format_percent(right)} of them. The fastest layout is faster than the chosen one by "
        f"{format_percent(mean(regret))} on average and {max(regret) * 100:.0f} % at most."
    )


def _fits(predictions: Sequence[ServingPrediction]) -> str:
    misses = sum(not one.found.fits for one in predictions)
    count = f"{misses} of {len(predictions)}"
    return f"- Deployments that ran although they are predicted not to fit: {count}."


def main(argv: Sequence[str] | None = None) -> int:
    """Print the section, or the chosen rows; return exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.serving.section")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="read FOLDER/serving.csv")
    parser.add_argument(
        "--rows", metavar="WORDS", help="print the rows whose group contains all words"
    )
    arguments = parser.parse_args(argv)
    if arguments.rows is None:
        print(section(arguments.data), end="")
        return 0
    for one in predict_serving(read_serving(arguments.data).rows):
        text = " ".join(one.row.group)
        if all(word in text for word in arguments.rows.split()):
            print(row_line(one))
    return 0


def row_line(one: ServingPrediction) -> str:
    """Return one row with its terms in milliseconds."""
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
