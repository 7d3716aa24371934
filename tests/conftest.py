"""Options of the whole test run."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import settings

from parc.compiler import cli, pools_pipeline
from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.simulation.simulate import Sampling, simulate
from parc.compiler.evaluate import evaluate_service
from parc.compiler.ir.serving import Traffic
from parc.compiler.search import simulate_finalists
from tests.compiled import SHARED_PLANS
from tests.property_settings import DEFAULT

# Derandomized, so that all machines run the same examples; no deadline, because CI can be slow.
settings.register_profile(
    "steady", derandomize=True, deadline=None, database=None, max_examples=DEFAULT
)
settings.load_profile("steady")

CHANGES = pytest.StashKey[list[tuple[str, str]]]()
"""(example, change in words) pairs of all outputs that ``--update-golden`` has rewritten."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CHANGES] = []
    # A process of tests keeps more objects than a command, and a collection in the middle of the
    # run takes seconds. The commands that tests run set this threshold again.
    cli.GC_THRESHOLD *= 10
    gc.set_threshold(cli.GC_THRESHOLD)
    if not hasattr(config, "workerinput"):  # the workers of pytest-xdist inherit the variable
        os.environ[SHARED_PLANS] = tempfile.mkdtemp(prefix="parc-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the plans that the workers shared, after the last worker has ended."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(SHARED_PLANS), ignore_errors=True)


def pytest_collection_finish() -> None:
    """Exempt what exists after collection from the garbage collector: thousands of test items.

    Each full collection would walk them, which takes a tenth of the CPU time of the run.
    """
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Exempt all objects from the garbage collector.

    At its end, pytest collects garbage five times, and with all caches of tests one collection
    takes seconds.
    """
    gc.freeze()


@pytest.fixture
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate services with 50 requests, not 2,000: for tests whose subject is not a latency."""
    sampling = Sampling(requests=50)

    def simulate_few(deployment: Deployment, traffic: Traffic, *more: Any) -> Any:
        return simulate(deployment, traffic, replace(more[0], requests=50), *more[1:])

    monkeypatch.setattr(evaluate_service, "simulate", simulate_few)
    # With so few requests, another sample has quite different percentiles.
    monkeypatch.setattr(simulate_finalists, "SAMPLES", (0,))
    monkeypatch.setattr(
        pools_pipeline, "simulate_pair", partial(pools_pipeline.simulate_pair, sampling=sampling)
    )
    # A new cache, because results of this test must not reach other tests.
    monkeypatch.setattr(
        evaluate_service, "_simulate", cache(evaluate_service._simulate.__wrapped__)
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what ``--update-golden`` changed, so that a reviewer reads it in words."""
    config = terminalreporter.config
    if not config.getoption("--update-golden"):
        return
    rows = config.stash[CHANGES]
    terminalreporter.section("what changed in the examples")
    width = max((len(name) for name, _ in rows), default=0)
    for name, line in rows:
        terminalreporter.write_line(f"{name:<{width}}  {line}")
    if not rows:
        terminalreporter.write_line("nothing")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the expected output of examples and diagnostics instead of comparing",
    )
