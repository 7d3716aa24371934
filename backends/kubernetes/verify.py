"""Verifier of the JobSet and LeaderWorkerSet manifests.

It reads numbers with regular expressions, because it must not share the YAML writer with the
emitter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from parc.backends.verifier import FileDependencies, JobShape, Verifier
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.launch_numbers import line_of_first_match
from parc.compiler.verify.read_emitted import read_number

JOBSET, GROUPS = "kubernetes/jobset.yaml", "kubernetes/leaderworkerset.yaml"


class KubernetesVerifier(Verifier):
    """Compares the pods, node ranks and GPUs of the manifests with the rank map."""

    files = FileDependencies(always=(JOBSET,), always_serving=(GROUPS,))

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report numbers of pods or GPUs that differ from the rank map (A07)."""
        for file, verify in ((JOBSET, _verify_pods), (GROUPS, _verify_pod_groups)):
            if file in artifacts:
                verify(artifacts[file], len(job.hosts), sink)
                _verify_gpus(file, artifacts[file], job.ranks_per_node, sink)


def _verify_pods(text: str, hosts: int, sink: Sink) -> None:
    """Report pods that are not one per host, or not numbered by node rank (A07).

    Jobs x pods per job must equal ``hosts``, and the node rank must advance by the pods of a job
    from one job to the next.
    """
    replicas = read_number(text, r"^ +replicas: (\d+)$") or 0
    pods = read_number(text, r"^ +completions: (\d+)$") or 0
    # The factor in the shell formula of NODE_RANK; a wrong one would give two pods the same rank.
    step = read_number(text, r"JOB_INDEX \* (\d+) ")
    if replicas * pods != hosts or step != pods:
        message = f"{replicas} x {pods} pods in {JOBSET}, the rank map has {hosts} hosts"
        sink.report(
            "A07", message, span=Span(JOBSET, line_of_first_match(text, r"^ +replicas:"), 1)
        )


def _verify_pod_groups(text: str, hosts: int, sink: Sink) -> None:
    """Report pods of a LeaderWorkerSet that are not one per host, in node rank order (A07).

    Groups x pods per group must equal ``hosts``, every pod must have a name in PARC_HOSTS, and the
    node rank must advance by the size of a group.
    """
    groups = read_number(text, r"^ +replicas: (\d+)$") or 0
    size = read_number(text, r"^ +size: (\d+)$") or 0
    step = read_number(text, r"GROUP_INDEX \* (\d+) ")
    named = re.search(r"name: PARC_HOSTS\n +value: (.*)$", text, re.MULTILINE)
    count = len(named[1].split()) if named else 0
    if groups * size != hosts or step != size or count != hosts:
        message = (
            f"{groups} x {size} pods and {count} pod names in {GROUPS}, "
            f"the rank map has {hosts} hosts"
        )
        sink.report(
            "A07", message, span=Span(GROUPS, line_of_first_match(text, r"^ +replicas:"), 1)
        )


def _verify_gpus(file: str, text: str, ranks_per_node: int, sink: Sink) -> None:
    """Report a number of GPUs per pod that differs from the ranks per host (A07)."""
    # The spec may name another GPU resource, so no match is no error.
    pattern = r"^ +(?:nvidia|amd)\.com/gpu: '(\d+)'$"
    found = read_number(text, pattern)
    if found is not None and found != ranks_per_node:
        message = (
            f"{found} GPUs per pod in {file}, the rank map has {ranks_per_node} ranks per host"
        )
        sink.report("A07", message, span=Span(file, line_of_first_match(text, pattern), 1))


VERIFIER = KubernetesVerifier()
