"""Verifier of torchrun's launch script and hosts file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parc.backends.shared.verify_launch_script import (
    exported_devices,
    read_launch_script_settings,
    verify_launch_lines,
    verify_launch_script,
)
from parc.backends.verifier import DerivedSetting, FileDependencies, JobShape, Verifier
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.launch_numbers import verify_host_file
from parc.compiler.verify.verify_settings import PLAN, read_plan

SCRIPT, HOSTS = "torchrun/launch.sh", "torchrun/hosts"


class TorchrunVerifier(Verifier):
    """Compares hosts, rank counts and the rendezvous host with the rank map."""

    files = FileDependencies(
        always=(SCRIPT,),
        scripts=(SCRIPT,),
        references={SCRIPT: f"$PARC_DIR/{SCRIPT}", HOSTS: '$here/hosts"'},
    )

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterable[DerivedSetting]:
        """Yield the environment, program, arguments and port that the launch script sets."""
        if SCRIPT not in artifacts or PLAN not in artifacts:
            return ()
        return read_launch_script_settings(SCRIPT, read_plan(artifacts[PLAN]), artifacts)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report commands that the plan does not need, and commands that are missing (A18)."""
        if SCRIPT in artifacts and PLAN in artifacts:
            verify_launch_lines(SCRIPT, read_plan(artifacts[PLAN]), artifacts, sink)

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report differences from the rank map: hosts (A02), numbers of nodes and ranks (A07)."""
        if HOSTS in artifacts:
            verify_host_file(HOSTS, artifacts[HOSTS], job.hosts, sink)
        if SCRIPT in artifacts:
            verify_launch_script(SCRIPT, artifacts[SCRIPT], job, sink)

    def visible_devices(self, artifacts: Mapping[str, str]) -> list[str] | None:
        """Return the GPU indices that the launch script exports; None if it exports none."""
        return exported_devices(artifacts.get(SCRIPT, ""))


VERIFIER = TorchrunVerifier()
