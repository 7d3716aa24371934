"""Scripts of all plans are accepted by bash and shellcheck."""

from __future__ import annotations

from pathlib import Path

import pytest

from parc.backends.registry import backend
from tests.backends.plans import PLANS
from tests.backends.stage import Stage
from tests.shell_checks import shell_findings


@pytest.mark.parametrize("title", PLANS)
def test_bash_and_shellcheck_accept_the_scripts(stage: Stage, title: str, tmp_path: Path) -> None:
    stage.emit(PLANS[title])
    out = stage.root / "out"
    scripts = [path for pattern in ("slurm/*.s*", "*/launch.sh") for path in out.glob(pattern)]
    assert scripts
    assert shell_findings(sorted({path.read_text("utf-8") for path in scripts}), tmp_path) == ""


@pytest.mark.parametrize("title", PLANS)
def test_artifacts_are_text_with_unix_lines_under_their_own_folder(title: str) -> None:
    plan = PLANS[title]
    for name in set(plan.problem.emit) - {"megatron"}:
        artifacts = backend(name).emit(plan)
        assert artifacts == backend(name).emit(plan)
        for artifact in artifacts:
            assert artifact.path.startswith(f"{name}/")
            assert artifact.text.endswith("\n")
            assert not artifact.text.endswith("\n\n")
            assert "\r" not in artifact.text
            assert "None" not in artifact.text


@pytest.mark.parametrize("title", PLANS)
def test_no_script_uses_the_rendezvous_that_reorders_hosts(title: str) -> None:
    plan = PLANS[title]
    for name in set(plan.problem.emit) - {"megatron"}:
        for artifact in backend(name).emit(plan):
            for word in ("c10d", "rdzv", "$SLURM_NODEID", "--nodes="):
                commands = [
                    line for line in artifact.text.splitlines() if not line.lstrip().startswith("#")
                ]
                assert word not in "\n".join(commands), artifact.path
