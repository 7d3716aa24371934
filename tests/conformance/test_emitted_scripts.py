"""Bash and shellcheck accept every script that PARC emits for the examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiled import EXAMPLES, example_files
from tests.shell_checks import shell_findings

pytestmark = pytest.mark.conformance


def test_bash_and_shellcheck_accept_all_scripts_of_the_examples(tmp_path: Path) -> None:
    scripts = {
        text
        for name in EXAMPLES
        for path, text in example_files(name).items()
        if path.endswith((".sh", ".sbatch"))
    }
    assert len(scripts) > len(EXAMPLES)
    assert shell_findings(sorted(scripts), tmp_path) == ""
