"""Answers of AIConfigurator for ``benchmarks/compare_aiconfigurator.py``: JSON in, JSON out.

    python benchmarks/aiconfigurator_rows.py < requests.json

Runs under a Python that has AIConfigurator, and imports nothing of this project. Each request is a
list of keyword arguments: alternatives, of which the first that AIConfigurator accepts counts. With
``total_gpus`` they are those of ``cli_default`` (a search), else those of ``cli_estimate``. An
answer has the predicted milliseconds, the throughput and the CPU seconds, or the last error.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import time
import warnings

FIELDS = ("ttft", "tpot", "tokens/s/gpu", "concurrency", "parallel", "num_total_gpus", "version")


def predict_first_accepted(alternatives: list[dict]) -> dict:
    """Return the answer to the first alternative that is accepted."""
    error = "no alternative"
    start = time.process_time()
    for arguments in alternatives:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                found = predict(arguments)
        # Its errors have no common class, and the comparison counts an error as an answer.
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
            continue
        plain = {name: plain_value(found[name]) for name in FIELDS if name in found}
        return {**plain, "cpu_seconds": time.process_time() - start}
    return {"error": error[:200]}


def predict(arguments: dict) -> dict:
    """Return AIConfigurator's prediction, or its best configuration."""
    from aiconfigurator.cli.api import cli_default, cli_estimate

    if "total_gpus" in arguments:
        return best_row(cli_default(**arguments))
    return cli_estimate(**arguments).raw


def best_row(result: object) -> dict:
    """Return the best configuration of a search, as a dictionary."""
    table = result.best_configs[result.chosen_exp]
    if table.empty:
        raise ValueError("no configuration within the limits")
    return table.iloc[0].to_dict()


def plain_value(value: object) -> object:
    """Return a value that JSON can hold."""
    return value.item() if hasattr(value, "item") else value


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    json.dump([predict_first_accepted(request) for request in json.load(sys.stdin)], sys.stdout)
