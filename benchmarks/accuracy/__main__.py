"""``python -m benchmarks.accuracy``: print the accuracy page, or single rows and fits."""

from __future__ import annotations

import argparse
import sys
from functools import cache
from pathlib import Path

from benchmarks.accuracy.cases import Case, Cases, make_cases
from benchmarks.accuracy.columns import columns_without_fit
from benchmarks.accuracy.fit_classes import fit_lines, fit_open_rows, write_all
from benchmarks.accuracy.groups import SMALL, is_small
from benchmarks.accuracy.pages.page import locked_table, page, regret_table
from benchmarks.accuracy.pages.row_lines import row_lines
from benchmarks.accuracy.predict import estimate_step
from benchmarks.accuracy.runs import PUBLISHED, read_runs
from benchmarks.accuracy.score import score
from benchmarks.accuracy.sources import is_fitted, is_locked
from benchmarks.accuracy.wide.small_models import small_runs
from benchmarks.accuracy.wide.table import read_training_table


def main(argv: list[str] | None = None) -> int:
    """Print the accuracy page or the chosen rows.

    Return exit status 0, or 2 if the data cannot be read.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.write and (not arguments.fit or arguments.group):
        parser.error("--write requires --fit, and all rows (no --group)")
    try:
        cases = load(arguments.data)
    except OSError as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return 2
    cases.cases = [case for case in cases.cases if _matches_words(case, arguments.group)]
    print(_answer(cases, arguments), end="")
    return 0


def _answer(cases: Cases, arguments: argparse.Namespace) -> str:
    """Return the text that the options ask for."""
    # Single locked rows are never shown, so that no formula can be chosen by them.
    rows = [case for case in cases.cases if not is_locked(case)]
    if arguments.rows:
        return "\n".join([*row_lines(rows), _summary(rows), ""])
    if arguments.quick:
        return f"{_summary(rows)}\n"
    if arguments.locked:
        found = columns_without_fit([case for case in cases.cases if case.scored])
        return f"{locked_table(cases.cases, found)}\n\n{regret_table(cases.cases)}\n"
    if arguments.fit:
        fit = fit_open_rows(rows)
        unfitted = [case for case in rows if case.scored and not is_fitted(case)]
        written = write_all(fit, unfitted) if arguments.write else []
        return "\n".join([fit_lines(fit), *(f"wrote {path}" for path in written), ""])
    text = page(cases, arguments.data)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    return text


def load(data: Path | None) -> Cases:
    """Return the cases of the project's published runs, or of a wide table in ``data``."""
    if data is None:
        found = _published_cases()
        return Cases(list(found.cases), found.imputed.copy(), found.left_out.copy())
    table = read_training_table(data)
    cases = make_cases((*table.runs, *small_runs(data)))
    cases.left_out.update(table.left_out)
    return cases


@cache
def _published_cases() -> Cases:
    return make_cases(read_runs(PUBLISHED / "runs.csv"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="read a wide table, FOLDER/train.csv"
    )
    parser.add_argument(
        "--group",
        default="",
        metavar="WORDS",
        help="use only rows that contain all words, such as 'h100 fp8'",
    )
    parser.add_argument(
        "--rows", action="store_true", help="print open rows sorted by error, with their terms"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="print errors of the shipped parameters on open rows, without refits",
    )
    parser.add_argument(
        "--locked", action="store_true", help="print the errors of the locked sources by group"
    )
    parser.add_argument(
        "--fit",
        action="store_true",
        help="fit all hardware classes to the open rows and print them",
    )
    parser.add_argument(
        "--write", action="store_true", help="with --fit: write the values to the catalog"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write the page to FILE")
    return parser


def _matches_words(case: Case, words: str) -> bool:
    """Return True if group, id, framework, cluster and overlap contain all ``words``."""
    run = case.run
    text = f"{case.group} {case.generation} {run.id} {run.framework} {run.cluster} {run.overlap}"
    text += " fsdp" if case.fsdp else ""
    return all(word.lower() in text.lower() for word in words.split())


def _summary(cases: list[Case]) -> str:
    groups: dict[str, list[float]] = {}
    for case in cases:
        if case.scored:
            ratio = estimate_step(case).total_seconds / case.seconds
            whole = (case.group, f"all {case.kind}", f"framework {case.run.framework}")
            for key in (SMALL,) if is_small(case) else whole:
                groups.setdefault(key, []).append(ratio)
    lines = [f"{'group':36} {'rows':>5} {'MAPE':>6} {'median':>6} {'p90':>6} {'bias':>6}  (%)"]
    for key, ratios in sorted(groups.items()):
        found = score(ratios)
        numbers = (found.mape, found.median, found.p90, found.bias)
        lines.append(f"{key:36} {found.count:5} " + " ".join(f"{100 * n:6.1f}" for n in numbers))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
