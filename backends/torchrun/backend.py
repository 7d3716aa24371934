"""The backend ``torchrun``: a launch script with a static rendezvous, and the hosts in order."""

from __future__ import annotations

from parc.backends.shared.launch_rules import check_launch
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Artifact, Plan


class Torchrun:
    """The backend ``torchrun``."""

    name = "torchrun"
    versions = ("2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13")
    """PyTorch releases; the options used here are the same in all of them."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report hosts, ports and environment variables that would break the rank map."""
        check_launch(plan, sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ``torchrun/launch.sh``, plus ``torchrun/hosts`` if the hosts have names."""
        # Imported here, because checks emit no file.
        from parc.backends.shared.launch_script import hosts_file_text, launch_script

        script = launch_script(plan, "torchrun", "hosts")
        if not plan.problem.cluster.named:
            return (script,)
        return (Artifact("torchrun/hosts", hosts_file_text(plan)), script)


BACKEND = Torchrun()
