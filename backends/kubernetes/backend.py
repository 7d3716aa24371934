"""The backend ``kubernetes``: a JobSet for a training job, a LeaderWorkerSet for a serving job."""

from __future__ import annotations

from typing import Any

from parc.backends.kubernetes.jobset import training_objects
from parc.backends.kubernetes.leaderworkerset import server_addresses, serving_objects
from parc.backends.kubernetes.rules import check_kubernetes, check_serving_objects
from parc.backends.kubernetes.yaml_documents import yaml_text
from parc.backends.shared.launch_rules import check_launch
from parc.backends.shared.launch_script import launch_command_of_plan
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Artifact, JobStart, Plan, ServingPlan

HEAD = """\
# {command} {path}
# Each pod sets its node rank; the files of the plan are mounted at /parc.
"""


class Kubernetes:
    """The backend ``kubernetes``."""

    name = "kubernetes"
    versions = ("1.32", "1.33", "1.34", "1.35", "1.36")
    """Kubernetes releases; JobSet v1alpha2 and Kueue's annotations are the same in all of them."""

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report values that the API server would reject or that would break the rank map."""
        check_launch(plan, sink)
        check_kubernetes(plan, sink)

    def emit(self, plan: Plan) -> tuple[Artifact, ...]:
        """Return ``kubernetes/jobset.yaml``, which contains a ConfigMap and a JobSet."""
        program = launch_command_of_plan(plan).relative_program
        return (_manifest("jobset", training_objects(plan), program),)

    def check_serving(self, plan: ServingPlan, sink: Sink) -> None:
        """Report values of a serving plan that the API server would reject."""
        check_serving_objects(plan, sink)

    def emit_serving(self, plan: ServingPlan) -> tuple[Artifact, ...]:
        """Return ``kubernetes/leaderworkerset.yaml``.

        The file contains a ConfigMap, one or several LeaderWorkerSets, and a Service.
        """
        return (_manifest("leaderworkerset", serving_objects(plan)),)

    def server_addresses(self, plan: ServingPlan) -> tuple[str, ...]:
        """Return the DNS names of the pods, at which a router in the cluster reaches them."""
        return server_addresses(plan)


def _manifest(name: str, objects: list[dict[str, Any]], program: str = "") -> Artifact:
    """Return ``kubernetes/<name>.yaml`` with ``objects``; the image contains ``program``."""
    path = f"kubernetes/{name}.yaml"
    start = JobStart("kubectl apply -f", program=program, in_image=True)
    text = HEAD.format(command=start.command, path=path) + yaml_text(objects)
    return Artifact(path, text, start=start)


BACKEND = Kubernetes()
