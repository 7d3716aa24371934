"""Score of PARC's tests: the share of small random changes of the code that make a test fail.

    python -m benchmarks.mutants --group lint --count 90 --seed 1 [--only 'backends/*/verify*.py']
        [--tests tests/lint tests/topology]
    python -m benchmarks.mutants --again build/mutants/lint-1.jsonl --seconds 600

The first run also records the lines that each test executes, which takes some minutes and needs
`coverage` (not a dependency of the project). Per mutant, the tests that execute its line run, from
the fastest to the slowest, up to ``--seconds`` of unmutated time; the first failure ends the run.
`--again` repeats the survivors of a file of results, for example after tests were added.

All tests are imported once. Each mutant of a function runs in a fork of that process in which the
code of the function is replaced, without an import (3 s) and without a change of any file. Only a
mutant of code that runs at import has a pytest process and a changed copy of the checkout. mutmut 3
also forks per mutant, but selects tests per function, draws no sample, and rewrites the modules
with libcst, which breaks tests of sources and signatures; cosmic-ray has no test selection.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutation_runner import ROOT, Runner, Server
from benchmarks.mutation_sites import Mutant, Site, mutate, sites_of

GROUPS = {
    "passes": ("resolve", "evaluate", "placement", "checks", "verify", "search"),
    "cost": ("cost",),
    "lint": ("tools/lint", "tools/importers"),
    "topology": ("topology",),
    "backends": ("../backends",),
}
"""Folders below compiler/ by the name of the group."""


def sample(sites: list[Site], seed: int) -> Iterator[Site]:
    """Yield the sites in random order, at most one per line, with all kinds of edits alike."""
    chance = random.Random(seed)
    kinds = defaultdict(list)
    for site in sites:
        kinds[site.kind].append(site)
    for group in kinds.values():
        chance.shuffle(group)
    lines = set()
    while kinds:
        kind = chance.choice(sorted(kinds))
        site = kinds[kind].pop()
        if not kinds[kind]:
            del kinds[kind]
        if (site.path, site.line) not in lines:
            lines.add((site.path, site.line))
            yield site


def sites_of_group(group: str, only: str) -> list[Site]:
    """Return the sites of all files of a group whose paths match ``only``."""
    files = {
        file
        for folder in GROUPS[group]
        for file in (ROOT / "compiler" / folder).resolve().rglob("*.py")
    }
    named = sorted((file.relative_to(ROOT).as_posix(), file) for file in files)
    return [
        site for name, file in named if fnmatch.fnmatch(name, only) for site in sites_of(file, name)
    ]


def run_sample(server: Server, arguments: argparse.Namespace) -> None:
    """Run the sample of each group, and write the results."""
    runner = Runner(server, arguments.work, arguments.seconds)
    for group in arguments.group:
        sites = sample(sites_of_group(group, arguments.only), arguments.seed)
        path = arguments.work / f"{group}-{arguments.seed}{arguments.name}.jsonl"
        rows: list[dict[str, Any]] = []
        while len(rows) < arguments.count and (site := next(sites, None)):
            row = _row(runner, site)
            if row["killed"] != "invalid":
                rows.append(row)
                _write(path, rows)
        _print_score(group, rows)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _row(runner: Runner, site: Site) -> dict[str, Any]:
    began = time.monotonic()
    mutant = mutate((ROOT / site.path).read_text(encoding="utf-8"), site)
    killed = runner.result(mutant)
    seconds = round(time.monotonic() - began, 1)
    texts = {"before": mutant.before, "after": mutant.after}
    return {**dataclasses.asdict(site), **texts, "killed": killed, "seconds": seconds}


def _print_score(name: str, rows: list[dict[str, Any]]) -> None:
    killed = sum(bool(row["killed"]) for row in rows)
    print(f"{name}: {killed} of {len(rows)} killed, {100 * killed / len(rows):.0f} %", flush=True)


def run_again(server: Server, arguments: argparse.Namespace) -> None:
    """Run the survivors of files of results, and update the files."""
    runner = Runner(server, arguments.work, arguments.seconds)
    for path in arguments.again:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        survivors = [row for row in rows if not row["killed"]]
        # Mutants of code that runs at import are slow, so they come last.
        for row in sorted(survivors, key=lambda row: not row["function"]):
            if mutant := _find(row):
                killed = runner.result(mutant)
                row["killed"] = "" if killed == "invalid" else killed
                _write(path, rows)
        _print_score(path.name, rows)


def _find(row: dict[str, Any]) -> Mutant | None:
    """Return the mutant of a row of results; its line may have moved."""
    file = ROOT / row["path"]
    if not file.exists():
        return None
    source = file.read_text(encoding="utf-8")
    near = [
        site
        for site in sites_of(file, row["path"])
        if (site.function, site.edit) == (row["function"], row["edit"])
    ]
    for site in sorted(near, key=lambda site: abs(site.line - row["line"])):
        mutant = mutate(source, site)
        if (mutant.before, mutant.after) == (row["before"], row["after"]):
            return mutant
    return None


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--group", action="append", choices=[*GROUPS])
    parser.add_argument("--only", default="*", help="pattern of paths, such as '*/verify*.py'")
    parser.add_argument("--count", type=int, default=90)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="time of the tests per mutant")
    parser.add_argument("--name", default="", help="end of the name of the file of results")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="folders and files of tests")
    parser.add_argument("--again", type=Path, nargs="*", help="files of results")
    arguments = parser.parse_args()
    arguments.group = arguments.group or [*GROUPS]
    work = run_again if arguments.again else run_sample
    server = Server(lambda server: work(server, arguments))
    temporary = f"--basetemp={arguments.work / 'tmp'}"
    options = ["-q", "--capture=no", "-p", "no:cacheprovider", "-p", "no:xdist", temporary]
    sys.exit(
        pytest.main([*options, *(str(ROOT / tests) for tests in arguments.tests)], plugins=[server])
    )


if __name__ == "__main__":
    main()
