"""Verifier of torchrun's launch script and hosts file."""

from __future__ import annotations

from collections.abc import Mapping

from parc.backends.shared.verify_launch_script import exported_devices, verify_launch_script
from parc.backends.verifier import FileDependencies, JobShape, Verifier
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.launch_numbers import verify_host_file

SCRIPT, HOSTS = "torchrun/launch.sh", "torchrun/hosts"


class TorchrunVerifier(Verifier):
    """Compares hosts, rank counts and the rendezvous host with the rank map."""

    files = FileDependencies(
        always=(SCRIPT,),
        scripts=(SCRIPT,),
        references={SCRIPT: f"$PARC_DIR/{SCRIPT}", HOSTS: '$here/hosts"'},
    )

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report hosts (A02) and numbers (A07) that differ from the rank map."""
        if HOSTS in artifacts:
            verify_host_file(HOSTS, artifacts[HOSTS], job.hosts, sink)
        if SCRIPT in artifacts:
            verify_launch_script(SCRIPT, artifacts[SCRIPT], job, sink)

    def visible_devices(self, artifacts: Mapping[str, str]) -> list[str] | None:
        """Return the GPU indices that the launch script exports, or None."""
        return exported_devices(artifacts.get(SCRIPT, ""))


VERIFIER = TorchrunVerifier()
