"""Values of hints about a finished serving plan."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from parc.compiler.search.explain_services import format_limit
from parc.compiler.spec.units import Seconds


@pytest.mark.parametrize("seconds", [0.0005, 0.04, 7.5, 9.9996, 60.0, 75.0, 3600.0])
def test_a_limit_in_a_fix_can_be_written_into_a_spec(seconds: float) -> None:
    written = format_limit(seconds).replace(" ", "")
    assert TypeAdapter(Seconds).validate_python(written) == pytest.approx(seconds, rel=1e-3)
