"""Checks of emitted shell scripts with bash and shellcheck."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

SHELLCHECK = Path(sysconfig.get_path("scripts")) / "shellcheck"


def shell_findings(texts: Sequence[str], folder: Path) -> str:
    """Return what bash and shellcheck report about scripts, which are written to ``folder``."""
    scripts = [folder / f"script{number}.sh" for number, _ in enumerate(texts)]
    found = ""
    for script, text in zip(scripts, texts, strict=True):
        script.write_text(text, encoding="utf-8", newline="\n")
        parsed = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
        found += parsed.stderr
    command = [SHELLCHECK, "--shell=bash", *scripts]
    return found + subprocess.run(command, capture_output=True, text=True, check=False).stdout
