"""Options of the whole test run."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same examples on every machine and day; a slow machine is no failure.
settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the expected output of examples and diagnostics instead of comparing",
    )
