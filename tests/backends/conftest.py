"""Fixtures of the launcher tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return an empty stage for emitted scripts."""
    return Stage(tmp_path)
