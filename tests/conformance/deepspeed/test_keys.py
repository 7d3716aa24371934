"""PARC's table of known keys equals the keys that the real DeepSpeed reads and rejects."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from parc.backends.deepspeed.capabilities import VERSIONS
from parc.backends.deepspeed.known_keys import known_keys
from parc.backends.shared.versions import is_in_range
from parc.backends.value_range import BOUNDS
from tests.conformance.tool_checkers import tool_python

pytestmark = pytest.mark.conformance
PROGRAM = Path(__file__).with_name("deepspeed_keys.py")


def test_the_known_keys_equal_the_keys_that_deepspeed_reads_or_rejects() -> None:
    command = [tool_python("torch"), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    real = {row["key"]: row for row in map(json.loads, done.stdout.splitlines())}
    own = {}
    for key, row in known_keys().items():
        there = is_in_range(VERSIONS[-1], row.get("since"), row.get("until"))
        if there or "refused_since" in row:
            own[key] = {name: row[name] for name in ("key", *BOUNDS) if name in row}
            own[key] |= {"closed": True} if there and "closed_since" in row else {}
            own[key] |= {} if there else {"rejected": True}
    assert own == real
