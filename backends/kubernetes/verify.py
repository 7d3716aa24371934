"""Verifier of the JobSet and LeaderWorkerSet manifests.

It parses the YAML documents, and compares the settings of the plan, the remaining content of every
object, and the files in the ConfigMap. If the folder has no ``plan.json``, it compares the numbers
of pods and GPUs with the rank map.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, cast

from parc.backends.kubernetes.verify_objects import (
    JOB_POD,
    LEADER,
    TEMPLATE,
    Manifest,
    expected_serving_objects,
    expected_training_objects,
    pods_reached_by_service,
    read_job_set_settings,
    read_serving_settings,
)
from parc.backends.kubernetes.verify_pods import VENDOR_RESOURCES
from parc.backends.kubernetes.verify_yaml import (
    ABSENT,
    Path,
    YamlDocument,
    iterate_value_differences,
    positive_integer_or_zero,
    read_documents,
)
from parc.backends.registry import verifier_of_backend
from parc.backends.shared.verify_known_lines import read_script
from parc.backends.verifier import (
    DerivedSetting,
    EngineVerifier,
    FileDependencies,
    JobShape,
    Verifier,
)
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_program import SHOWN, report_program_change
from parc.compiler.verify.verify_settings import PLAN, read_plan

JOBSET, GROUPS = "kubernetes/jobset.yaml", "kubernetes/leaderworkerset.yaml"
JOB: Path = ("spec", "replicatedJobs", 0)
KINDS = {
    JOBSET: ["ConfigMap", "JobSet"],
    GROUPS: ["ConfigMap", "LeaderWorkerSet", "Service"],
}


class KubernetesVerifier(Verifier):
    """Compares the objects of the manifests with the plan and with the rank map."""

    files = FileDependencies(always=(JOBSET,), always_serving=(GROUPS,))
    not_in_files = MappingProxyType(
        {
            "problem.launch.kubernetes.rack_label": "only a queue or several racks use a label",
            "problem.launch.kubernetes.domain_label": "only a queue or several racks use a label",
            "problem.launch.kubernetes.max_restarts": "a LeaderWorkerSet has no such limit",
            "problem.launch.kubernetes.secret": "only variables from the environment use it",
            "placement.hosts": "Kubernetes chooses the hosts; F05 warns if the plan names them",
            "problem.cluster": "the pods request GPUs, and labels select the racks",
        }
    )

    def embedded_files(self, artifacts: Mapping[str, str]) -> Mapping[str, str]:
        """Return path in the output folder -> text, for each file in the ConfigMap."""
        found: dict[str, str] = {}
        for file in (JOBSET, GROUPS):
            for path, (text, _) in _config_files(file, artifacts).items():
                found[path] = text
        return found

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterable[DerivedSetting]:
        """Yield the settings of the plan that the manifests express."""
        for file, read in ((JOBSET, read_job_set_settings), (GROUPS, read_serving_settings)):
            manifest = _read_manifest(file, artifacts)
            if manifest is not None:
                yield from read(manifest)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report changed content (A18), and API servers that the Service does not reach (A19)."""
        for file in (JOBSET, GROUPS):
            _verify_config_files(file, artifacts, sink)
        training = _read_manifest(JOBSET, artifacts)
        if training is not None:
            _verify_objects(training, expected_training_objects(training), sink)
        serving = _read_manifest(GROUPS, artifacts)
        if serving is None:
            return
        engine = cast(EngineVerifier | None, verifier_of_backend(serving.problem["framework"]))
        if engine is not None:
            expected = expected_serving_objects(serving, engine.file, engine.health_path)
            _verify_objects(serving, expected, sink)
            _verify_endpoint(serving, engine.api_ports(artifacts), sink)

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report numbers of pods or GPUs that differ from the rank map (A07)."""
        checks = ((JOBSET, _verify_pods, JOB_POD), (GROUPS, _verify_pod_groups, LEADER))
        for file, verify, pod in checks:
            if file in artifacts:
                document = _job_object(file, artifacts[file])
                verify(document, len(job.hosts), sink)
                _verify_gpus(file, document, pod, job.ranks_per_node, sink)


def _job_object(file: str, text: str) -> YamlDocument:
    """Return the JobSet or the LeaderWorkerSet of the manifest ``file``, whose content is ``text``.

    Raises:
        MalformedFileError: the manifest does not contain exactly the objects that PARC emits.
    """
    documents = read_documents(file, text)
    kinds = [one.value_at("kind") for one in documents]
    if kinds != KINDS[file]:
        message = f"the objects are {', '.join(map(str, kinds))}, must be {', '.join(KINDS[file])}"
        raise MalformedFileError(file, 1, message)
    return documents[1]


def _read_manifest(file: str, artifacts: Mapping[str, str]) -> Manifest | None:
    """Return the manifest ``file`` together with the plan; None if either file is absent.

    Raises:
        MalformedFileError: the manifest does not contain exactly the objects that PARC emits.
    """
    if file not in artifacts or PLAN not in artifacts:
        return None
    _job_object(file, artifacts[file])
    documents = read_documents(file, artifacts[file])
    return Manifest(file, documents, read_plan(artifacts[PLAN]))


def _verify_objects(manifest: Manifest, expected: list[dict[str, Any]], sink: Sink) -> None:
    """Report values of the manifest that differ from those of the ``expected`` objects (A18)."""
    for document, must in zip(manifest.documents, expected, strict=True):
        changes = list(iterate_value_differences(must, document.value))
        for path, wanted, found in changes[:SHOWN]:
            name = ".".join(map(str, path))
            state = "is missing" if found is ABSENT else f"is {found!r:.60}"
            rest = "the plan does not need it" if wanted is ABSENT else f"must be {wanted!r:.60}"
            message = f"{name} of the {must['kind']} {state}, {rest}"
            report_program_change(manifest.file, document.line(*path), message, sink)


def _config_files(file: str, artifacts: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Return path -> (text, line) of each file in the ConfigMap of the manifest ``file``.

    Paths are relative to the output folder. A key of a ConfigMap cannot contain slashes, so PARC
    writes dots; the volume maps each key to its path.
    """
    if file not in artifacts:
        return {}
    config, job, *_ = (*read_documents(file, artifacts[file]), *(YamlDocument({}, {}),) * 2)
    texts = config.value_at("data")
    found = {}
    for item in _config_map_items(job.value):
        text = texts.get(item.get("key")) if isinstance(texts, dict) else None
        if isinstance(text, str) and isinstance(item.get("path"), str):
            found[item["path"]] = (text, config.line("data", item["key"]))
    return found


def _config_map_items(value: Any) -> list[dict[str, Any]]:
    """Return the items of the first ConfigMap volume in ``value``; an item has a key and a path."""
    if isinstance(value, dict):
        config = value.get("configMap")
        items = config.get("items") if isinstance(config, dict) else None
        if isinstance(items, list):
            return [item for item in items if isinstance(item, dict)]
        value = list(value.values())
    if not isinstance(value, list):
        return []
    return next((items for one in value if (items := _config_map_items(one))), [])


def _verify_config_files(file: str, artifacts: Mapping[str, str], sink: Sink) -> None:
    """Report files in the ConfigMap that differ from the same files of the output folder (A18)."""
    for path, (text, line) in _config_files(file, artifacts).items():
        if path in artifacts and _commands_or_text(path, text) != _commands_or_text(
            path, artifacts[path]
        ):
            message = f"{path} in the ConfigMap differs from the file {path}"
            report_program_change(file, line, message, sink)


def _commands_or_text(path: str, text: str) -> Any:
    """Return the commands and exports of a shell script, or ``text`` itself for any other file."""
    if not path.endswith(".sh"):
        return text
    script = read_script(text)
    exports = {name: value for name, (value, _) in script.exports.items()}
    return [line.text for line in script.lines], exports


def _verify_endpoint(
    manifest: Manifest, servers: Iterable[tuple[int, int]] | None, sink: Sink
) -> None:
    """Report API servers that the Service does not reach (A19).

    ``servers`` contains (node rank, port) of each API server, or is None if these are unknown.
    """
    service, plan = manifest.documents[2], manifest.plan
    size = manifest.job.value_at("spec", "leaderWorkerTemplate", "size")
    if servers is None or type(size) is not int or size < 1:
        return
    nodes = len(plan["placement"]["hosts"])
    pods = pods_reached_by_service(service, size, nodes, manifest.name)
    ports = service.value_at("spec", "ports")
    targets = [one.get("targetPort") for one in ports or () if isinstance(one, dict)]
    found = list(servers)
    missed = [(node, port) for node, port in found if node not in pods or port not in targets]
    if not missed:
        return
    node, port = missed[0]
    message = (
        f"the Service reaches {len(found) - len(missed)} of {len(found)} API servers of the plan"
    )
    finding = Finding(
        message,
        f"for example, port {port} of node rank {node} is not a target port of the Service",
        help="the engines behind the other servers get no requests: give each engine all GPUs of a "
        "host (layout.tp), or use a load balancer that knows the ports of all API servers",
    )
    line = service.line("spec", "ports")
    sink.report("A19", finding, span=Span(manifest.file, line, 1))


def _verify_pods(job: YamlDocument, hosts: int, sink: Sink) -> None:
    """Report a JobSet that does not have one pod per host, or assigns wrong node ranks (A07).

    The number of jobs times the pods per job must equal ``hosts``. The node rank must increase by
    the pods per job from one job to the next.
    """
    replicas = positive_integer_or_zero(job.value_at(*JOB, "replicas"))
    pods = positive_integer_or_zero(job.value_at(*JOB, "template", "spec", "completions"))
    step = _rank_step_per_job(job, (*JOB_POD, "containers", 0), "JOB_INDEX")
    if replicas * pods != hosts or step != pods:
        message = f"{replicas} x {pods} pods in {JOBSET}, the rank map has {hosts} hosts"
        sink.report("A07", message, span=Span(JOBSET, job.line(*JOB, "replicas"), 1))


def _verify_pod_groups(job: YamlDocument, hosts: int, sink: Sink) -> None:
    """Report a LeaderWorkerSet without one pod per host, or with wrong node ranks (A07).

    The number of groups times the pods per group must equal ``hosts``, and PARC_HOSTS must name
    every pod. The node rank must increase by the pods per group from one group to the next.
    """
    container: Path = (*LEADER, "containers", 0)
    groups = positive_integer_or_zero(job.value_at("spec", "replicas"))
    size = positive_integer_or_zero(job.value_at(*TEMPLATE, "size"))
    step = _rank_step_per_job(job, container, "GROUP_INDEX")
    names = job.value_at(*container, "env", 1, "value")
    count = len(names.split()) if isinstance(names, str) else 0
    if groups * size != hosts or step != size or count != hosts:
        message = (
            f"{groups} x {size} pods and {count} pod names in {GROUPS}, "
            f"the rank map has {hosts} hosts"
        )
        sink.report("A07", message, span=Span(GROUPS, job.line("spec", "replicas"), 1))


def _rank_step_per_job(job: YamlDocument, container: Path, index: str) -> int:
    """Return the factor of the variable ``index`` in the formula of NODE_RANK; 0 if it has none."""
    line = job.value_at(*container, "command", 2)
    found = re.search(rf"{index} \* (\d{{1,9}}) ", line) if isinstance(line, str) else None
    return int(found[1]) if found else 0


def _verify_gpus(file: str, job: YamlDocument, pod: Path, ranks_per_node: int, sink: Sink) -> None:
    """Report a number of GPUs per pod that differs from the ranks per host (A07)."""
    limits: Path = (*pod, "containers", 0, "resources", "limits")
    for name in VENDOR_RESOURCES.values():
        # The spec may name another GPU resource, so no match is no error.
        found = job.value_at(*limits, name)
        if found is not None and found != str(ranks_per_node):
            message = f"{found!s:.20} GPUs per pod in {file}, the rank map has {ranks_per_node}"
            span = Span(file, job.line(*limits, name), 1)
            sink.report("A07", f"{message} ranks per host", span=span)


VERIFIER = KubernetesVerifier()
