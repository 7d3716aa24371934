"""The flags of torchrun that importers and lint ignore are those of the real parser."""

from __future__ import annotations

import subprocess

import pytest

from parc.compiler.tools.importers.flags import TORCHRUN
from tests.conformance.tool_checkers import tool_python

pytestmark = pytest.mark.conformance
SPELLINGS = """\
from torch.distributed.run import get_args_parser
for action in get_args_parser()._actions:
    print(*action.option_strings, sep="\\n")
"""


def test_the_flags_of_torchrun_equal_those_of_its_parser() -> None:
    command = [tool_python("torch"), "-c", SPELLINGS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    spelled = {flag.replace("_", "-") for flag in done.stdout.split() if flag.startswith("--")}
    assert spelled - {"--help"} == TORCHRUN
