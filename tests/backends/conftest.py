"""Fixtures of the launcher tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """An empty stage."""
    return Stage(tmp_path)
