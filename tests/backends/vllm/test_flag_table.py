"""The flags of the table are flags that the parser knows."""

from __future__ import annotations

from parc.backends.shared.extra_arguments import known_flags
from parc.backends.vllm.arguments import PACKAGE, planned_flags


def test_every_flag_is_one_that_the_parser_knows() -> None:
    assert planned_flags() <= known_flags(PACKAGE).keys()
