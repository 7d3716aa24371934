"""Reader for one side of a diff: the files of one output folder."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Mapping
from itertools import islice
from typing import Any

from parc.compiler.ir.frozen import frozen
from parc.compiler.report.diff.file_changes import OutputFiles, locked_digests

PLACE = ("rank", "node_rank", "host", "local_rank", "gpu", "rack", "nvlink_domain")
"""Columns of a rank map before the mesh coordinates, which depend on the framework."""
UNUSED = ("rank", "node_rank", "gpu")
"""Columns of PLACE that follow from the other columns, so that a diff does not store them."""
ROWS_AT_ONCE = 4096
"""Number of rows of the rank map that are read before they are stored as columns."""
EXPORT = re.compile(r"\s*export ([A-Za-z_]\w*)=(.*)")
DIRECTIVE = re.compile(r"#SBATCH (--[a-z0-9-]+)(?:[= ](.*))?")


class NotAnOutputDirectory(ValueError):
    """Error: a file is not an output of ``parc compile``. The message names the file and reason."""


@frozen
class RankMapColumns:
    """Columns of the rank map; each column has one value per rank."""

    hosts: tuple[str, ...]
    local: tuple[str, ...]
    racks: tuple[str, ...]
    domains: tuple[str, ...]
    coordinates: Mapping[str, tuple[str, ...]]
    """Axis -> coordinate of every rank, as text."""

    @property
    def world(self) -> int:
        """Number of ranks in the rank map."""
        return len(self.hosts)


@frozen
class DiffSide:
    """Contents of one side of a diff: plan, rank map, launch arguments and environment."""

    name: str
    plan: dict[str, Any]
    ranks: RankMapColumns | None
    """Rank map of the plan; None if it was not emitted."""
    arguments: Mapping[str, str]
    """Flag -> values of the flag, as shell words joined by spaces."""
    environment: Mapping[str, str]
    directives: Mapping[str, str]
    files: OutputFiles

    @property
    def serves(self) -> bool:
        """True if the plan is for a serving job, false for a training job."""
        return "service" in self.plan["problem"]

    @property
    def has_experts(self) -> bool:
        """True if the model is a mixture of experts."""
        return self.plan["problem"]["model"].get("experts") is not None


def read_diff_side(
    name: str, files: Mapping[str, str], digests: Mapping[str, str] | None = None
) -> DiffSide:
    """Return one of the two plans of a diff, with its rank map and launch files.

    Args:
        name: name of the side.
        files: path of each output file -> its text.
        digests: path -> digest of each file when it was written; None to read ``parc.lock``.

    Raises:
        NotAnOutputDirectory: plan.json is missing, or plan.json or rankmap.csv cannot be read.
    """
    plan = _parse_plan(name, files.get("plan.json"))
    # Flags are read from the emitted files, not from plan.json, so that edits by hand are compared.
    framework = plan["problem"].get("framework")
    # The arguments of an engine are the bash array `common` inside its launch script.
    serve = files.get(f"{framework}/serve.sh", "")
    launch = files.get("torchrun/launch.sh", "") + files.get("slurm/job.sbatch", "") + serve
    # The array ends at the first line that consists of a closing parenthesis.
    common = "common=(" + serve.partition("\ncommon=(")[2].partition("\n)\n")[0] + "\n)\n"
    return DiffSide(
        name=name,
        plan=plan,
        ranks=_parse_rank_map(name, files["rankmap.csv"]) if "rankmap.csv" in files else None,
        arguments=_parse_arguments(common if serve else files.get(f"{framework}/args.sh", "")),
        environment=_parse_exports(launch),
        directives=_parse_sbatch_directives(launch),
        files=OutputFiles(files, locked_digests(files) if digests is None else digests),
    )


def _parse_plan(name: str, text: str | None) -> dict[str, Any]:
    if text is None:
        raise NotAnOutputDirectory(
            f"{name} has no plan.json. Was the folder written by parc compile?"
        )
    try:
        plan = json.loads(text, parse_int=_parse_integer)
    except (ValueError, RecursionError) as error:
        raise NotAnOutputDirectory(f"{name}/plan.json is not JSON: {error}") from None
    missing = {"problem", "layout", "estimate"} - set(plan if isinstance(plan, dict) else ())
    if missing or not all(isinstance(plan[key], dict) for key in ("problem", "layout")):
        raise NotAnOutputDirectory(
            f"{name}/plan.json has no {', '.join(sorted(missing)) or 'layout'}"
        )
    return dict(plan)


def _parse_integer(digits: str) -> int | float:
    """Return ``digits`` as a number: an int for up to 18 digits, otherwise a float."""
    # Python refuses to print integers of more than 4,300 digits, and a damaged file may have them.
    return int(digits) if len(digits) < 19 else float(digits)


def _parse_rank_map(name: str, text: str) -> RankMapColumns:
    try:
        columns = _read_columns(text)
    except ValueError:
        raise NotAnOutputDirectory(
            f"{name}/rankmap.csv is not a table with equally long rows"
        ) from None
    missing = set(PLACE) - columns.keys()
    if missing or len(columns) == len(PLACE):
        gone = ", ".join(sorted(missing)) or "of mesh coordinates"
        raise NotAnOutputDirectory(f"{name}/rankmap.csv has no column {gone}")
    return RankMapColumns(
        hosts=columns["host"],
        local=columns["local_rank"],
        racks=columns["rack"],
        domains=columns["nvlink_domain"],
        coordinates={axis: column for axis, column in columns.items() if axis not in PLACE},
    )


def _read_columns(text: str) -> dict[str, tuple[str, ...]]:
    """Return the columns of a table by their head; those in UNUSED are empty.

    Raises:
        ValueError: there are no rows, or rows of different lengths.
    """
    reader = csv.reader(text.splitlines())
    head = next(reader, [])
    columns: list[list[str]] = [[] for _ in head]
    # Equal values share one string, and only few rows exist at a time, because the rows of a large
    # cluster need more memory than the columns.
    shared: dict[str, str] = {}
    while rows := list(islice(reader, ROWS_AT_ONCE)):
        cells = zip(*rows, strict=True)
        for axis, column, texts in zip(head, columns, cells, strict=True):
            if axis not in UNUSED:
                column += map(shared.setdefault, texts, texts)
    if not any(columns):
        raise ValueError("the table has no rows")
    return dict(zip(head, map(tuple, columns), strict=True))


def _parse_arguments(script: str) -> dict[str, str]:
    """Return flag -> values for the first bash array in ``script``.

    Each word that starts with ``--`` is a flag. The words between two flags are the values of the
    first of these flags.
    """
    _, _, body = script.partition("=(")
    try:
        # comments=True, because the emitted array has comment lines between the flags.
        words = shlex.split(body.rpartition(")")[0], comments=True)
    except ValueError:
        return {}
    found: dict[str, list[str]] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag = word
            found.setdefault(flag, [])
        elif flag:
            found[flag].append(shlex.quote(word))
    return {flag: " ".join(values) for flag, values in found.items()}


def _parse_exports(script: str) -> dict[str, str]:
    matches = map(EXPORT.match, script.splitlines())
    return {match[1]: match[2] for match in matches if match}


def _parse_sbatch_directives(script: str) -> dict[str, str]:
    matches = map(DIRECTIVE.match, script.splitlines())
    return {match[1]: match[2] or "" for match in matches if match}
