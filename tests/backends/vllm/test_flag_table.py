"""Test of flags.yaml against the flags that vLLM's parser accepts."""

from __future__ import annotations

from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.vllm.arguments import PACKAGE, planned_flags


def test_the_parser_accepts_every_flag_of_the_table() -> None:
    assert planned_flags() <= rows_of_known_flags(PACKAGE).keys()
