"""Order of the test files: those that took longest in the last run come first.

pytest-xdist gives each file to one worker. If a long file starts last, the other worker is idle
until it ends. tests/conformance/run sets PARC_CONFORMANCE_SECONDS, the file with the times.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

Seconds = dict[str, float]
"""Test file -> seconds of all its tests."""
STORED = os.environ.get("PARC_CONFORMANCE_SECONDS", "")
_measured: Counter[str] = Counter()


def read_seconds(stored: Path) -> Seconds:
    """Return the seconds of the last runs; empty before the first one."""
    found: Seconds = json.loads(stored.read_text("utf-8")) if stored.is_file() else {}
    return found


def longest_first(files: Sequence[str], seconds: Seconds) -> list[str]:
    """Return ``files`` in order of decreasing time; those without a time come first."""
    return sorted(files, key=lambda file: -seconds.get(file, float("inf")))


def file_of(nodeid: str) -> str:
    """Return the test file of a test."""
    return nodeid.partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files; the tests of a file keep their order."""
    if STORED:
        files = list(dict.fromkeys(file_of(item.nodeid) for item in items))
        order = longest_first(files, read_seconds(Path(STORED)))
        place = {file: number for number, file in enumerate(order)}
        items.sort(key=lambda item: place[file_of(item.nodeid)])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of a part of a test to that of its file."""
    _measured[file_of(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Store the times of the files that ran, once: not in the workers of pytest-xdist."""
    if STORED and _measured and not hasattr(session.config, "workerinput"):
        seconds = read_seconds(Path(STORED)) | _measured
        Path(STORED).write_text(json.dumps(seconds, indent=1, sort_keys=True), "utf-8")
