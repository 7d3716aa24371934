"""Write the table of known flags of an engine from the real parsers of all its versions.

    python -m tests.conformance.write_known_flags vllm

tests/conformance/run prints the variables with the paths of the tools; test_versions.py and
test_accepts.py check that the tables are current.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def merge_versions(rows: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return the rows of known_flags.json: one per flag and range of versions with equal rows.

    ``rows`` maps each version, in ascending order, to the rows of its parser.
    """
    versions = list(rows)
    by_flag = {version: {row["flag"]: row for row in rows[version]} for version in versions}
    merged: list[Row] = []
    for flag in sorted({flag for found in by_flag.values() for flag in found}):
        first = None
        for number, version in enumerate(versions):
            row = by_flag[version].get(flag)
            after = by_flag[versions[number + 1]].get(flag) if number + 1 < len(versions) else row
            first = first or version
            if row is not None and (row != after or number + 1 == len(versions)):
                since = {} if first == versions[0] else {"since": first}
                until = {} if number + 1 == len(versions) else {"until": version}
                merged.append({**row, **since, **until})
            if row != after:
                first = None if number + 1 == len(versions) else versions[number + 1]
    return merged


def read_vllm() -> dict[str, Sequence[Row]]:
    """Return the rows of the parser of each supported version of vLLM."""
    from parc.backends.vllm.backend import DEFAULT_VERSION, VERSIONS
    from tests.conformance.tool_checkers import vllm_verdicts

    return {
        version: vllm_verdicts([{"flags": True}], "" if version == DEFAULT_VERSION else version)[0][
            "flags"
        ]
        for version in VERSIONS
    }


def read_sglang() -> dict[str, Sequence[Row]]:
    """Return the rows of the parser of SGLang with the bounds that it checks."""
    from tests.conformance.sglang.flag_rows import rows_with_bounds

    return {"": rows_with_bounds()}


ENGINES = {"vllm": read_vllm, "sglang": read_sglang}


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write ``rows`` to ``path``, one row per line."""
    path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", "utf-8")


if __name__ == "__main__":
    engine = sys.argv[1]
    table = Path(__file__).parents[2] / "backends" / engine / "known_flags.json"
    write_table(table, merge_versions(ENGINES[engine]()))
