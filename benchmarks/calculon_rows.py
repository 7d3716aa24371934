"""Step times by Calculon for ``benchmarks/compare_calculon.py``: cases on stdin, seconds on stdout.

    python benchmarks/calculon_rows.py CHECKOUT < cases.json

Runs under a Python that has numpy, and imports nothing of this project. A case contains application
and execution in Calculon's format, and the name of a system file that it ships. The output is a
list of seconds, with null for cases that Calculon rejects.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import types

CASES = list[dict]
CAPACITY_GIB = 1e9
"""Unlimited memory, because only the time is compared: runs that trained did fit."""


def seconds_of(checkout: str, cases: CASES) -> list[float | None]:
    """Return the seconds of each case."""
    sys.path.insert(0, checkout)
    # Only Calculon's command line needs these packages.
    sys.modules.setdefault("psutil", types.SimpleNamespace(cpu_count=lambda logical=True: 1))
    sys.modules.setdefault("pandas", types.ModuleType("pandas"))
    from calculon import System, io
    from calculon.llm import Llm

    logging.disable(logging.CRITICAL)
    files: dict[str, dict] = {}
    found: list[float | None] = []
    for case in cases:
        name = case["system"]
        if name not in files:
            files[name] = io.read_json_file(f"{checkout}/systems/{name}.json")
            files[name]["mem1"]["GiB"] = CAPACITY_GIB
        try:
            model = Llm(Llm.Application(case["application"]), logging.getLogger())
            system = System(copy.deepcopy(files[name]))
            model.compile(system, Llm.Execution.from_json(case["execution"]))
            model.run(system)
            found.append(float(model.get_total_time()))
        except (AssertionError, Llm.Error):
            found.append(None)
    return found


if __name__ == "__main__":
    json.dump(seconds_of(sys.argv[1], json.load(sys.stdin)), sys.stdout)
