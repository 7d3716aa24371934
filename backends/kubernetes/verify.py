"""Verifier of the JobSet and LeaderWorkerSet manifests.

It parses the YAML documents, and compares the settings of the plan, the remaining content of every
object, and the files in the ConfigMap. If the folder has no ``plan.json``, it compares the numbers
of pods and GPUs with the rank map.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, cast

from parc.backends.kubernetes.verify_objects import (
    JOB_KINDS,
    JOB_POD,
    Manifest,
    environment_line,
    expected_training_objects,
    read_job_set_settings,
    replicated_pods,
)
from parc.backends.kubernetes.verify_pods import VENDOR_RESOURCES
from parc.backends.kubernetes.verify_serving import (
    LEADER,
    TEMPLATE,
    Servers,
    expected_serving_objects,
    group_documents,
    number_of_pods,
    pod_addresses,
    pods_per_group,
    read_serving_settings,
    verify_endpoint,
)
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
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_program import SHOWN, report_program_change
from parc.compiler.verify.verify_settings import PLAN, read_plan

JOBSET, GROUPS = "kubernetes/jobset.yaml", "kubernetes/leaderworkerset.yaml"
KINDS = {JOBSET: ("ConfigMap", "JobSet"), GROUPS: ("ConfigMap", "LeaderWorkerSet", "Service")}
"""Manifest -> kinds of its objects. Several LeaderWorkerSets may follow each other."""
OPTIONAL_KIND = "ComputeDomain"
"""Kind of the object that may follow the ConfigMap."""


class KubernetesVerifier(Verifier):
    """Compares the objects of the manifests with the plan and with the rank map."""

    files = FileDependencies(always=(JOBSET,), always_serving=(GROUPS,))
    not_in_files = MappingProxyType(
        {
            "problem.launch.kubernetes.rack_label": "only a queue or several racks use a label",
            "problem.launch.kubernetes.domain_label": "only a queue or several racks use a label",
            "problem.launch.kubernetes.max_restarts": "a LeaderWorkerSet has no such limit",
            "problem.launch.kubernetes.startup_minutes": "a training job has no startup probe",
            "problem.launch.kubernetes.compute_domain": "no pods use NVLink between hosts",
            "problem.launch.kubernetes.secret": "only variables from the environment use it",
            "placement.hosts": "without host names in the spec, Kubernetes chooses the hosts",
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
        """Yield the plan settings in the manifests."""
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
        if engine is None:
            return
        places = engine.api_ports(artifacts)
        if places is None:
            size, nodes = pods_per_group(serving.plan), len(serving.plan["placement"]["hosts"])
            port = serving.problem["endpoint"]["port"]
            places = [(node, port) for node in range(0, nodes, size)]
        servers = Servers(engine.file, engine.health_path, tuple(places))
        _verify_objects(serving, expected_serving_objects(serving, servers), sink)
        verify_endpoint(serving, servers.places, sink)

    def server_addresses(self, artifacts: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the DNS names of the pods of all LeaderWorkerSets; None without any."""
        if GROUPS not in artifacts:
            return None
        return pod_addresses(group_documents(_read_objects(GROUPS, artifacts[GROUPS])))

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report numbers of pods or GPUs that differ from the rank map (A07)."""
        if JOBSET in artifacts:
            document = _read_objects(JOBSET, artifacts[JOBSET])[-1]
            _verify_pods(document, job.hosts, sink)
            _verify_gpus(JOBSET, document, JOB_POD, job.ranks_per_node, sink)
        if GROUPS in artifacts:
            documents = group_documents(_read_objects(GROUPS, artifacts[GROUPS]))
            _verify_pod_groups(documents, job.hosts, sink)
            for document in documents:
                _verify_gpus(GROUPS, document, LEADER, job.ranks_per_node, sink)


def _read_objects(file: str, text: str) -> tuple[YamlDocument, ...]:
    """Return the objects of the manifest ``file``, whose content is ``text``.

    Raises:
        MalformedFileError: the manifest does not contain exactly the objects that PARC emits.
    """
    documents = read_documents(file, text)
    kinds = [str(one.value_at("kind")) for one in documents]
    if kinds[1:2] == [OPTIONAL_KIND]:
        del kinds[1]
    single = [kind for kind in kinds if kind != "LeaderWorkerSet"]
    if tuple(kind for kind, _ in groupby(kinds)) != KINDS[file] or len(single) > len(set(single)):
        message = f"the objects are {', '.join(kinds)}, must be {', '.join(KINDS[file])}"
        raise MalformedFileError(file, 1, message)
    return documents


def _read_manifest(file: str, artifacts: Mapping[str, str]) -> Manifest | None:
    """Return the manifest ``file`` together with the plan; None if either file is absent.

    Raises:
        MalformedFileError: the manifest does not contain exactly the objects that PARC emits.
    """
    if file not in artifacts or PLAN not in artifacts:
        return None
    documents = _read_objects(file, artifacts[file])
    return Manifest(file, documents, read_plan(artifacts[PLAN]))


def _verify_objects(manifest: Manifest, expected: list[dict[str, Any]], sink: Sink) -> None:
    """Report values of the manifest that differ from those of the ``expected`` objects (A18)."""
    if len(manifest.documents) != len(expected):
        message = f"the manifest has {len(manifest.documents)} objects, must have {len(expected)}"
        report_program_change(manifest.file, 1, message, sink)
        return
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
    empty = YamlDocument({}, {})  # stands for an object that a damaged manifest lacks
    config, *jobs = (*read_documents(file, artifacts[file]), empty)
    job = next((one for one in jobs if one.value_at("kind") in JOB_KINDS), empty)
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


def _verify_pods(job: YamlDocument, hosts: list[str], sink: Sink) -> None:
    """Report a JobSet that does not have one pod per host, or assigns wrong node ranks (A07).

    If the pods list the names of all nodes, the list must match the rank map. Otherwise the
    node rank must increase by the pods per job from one job to the next.
    """
    pods = list(replicated_pods(job))
    names, _ = environment_line(job, JOB_POD, "NODE_NAMES")
    first: Path = ("spec", "replicatedJobs", 0)
    each = positive_integer_or_zero(job.value_at(*first, "template", "spec", "completions"))
    step = _rank_step_per_job(job, (*JOB_POD, "containers", 0), "JOB_INDEX")
    ranks_match = names.split() == hosts if isinstance(names, str) else step == each
    if sum(pods) != len(hosts) or not ranks_match:
        message = f"{sum(pods)} pods in {JOBSET}, the rank map has {len(hosts)} hosts"
        _report_node_ranks(
            message, ranks_match, Span(JOBSET, job.line(*first, "replicas"), 1), sink
        )


def _verify_pod_groups(groups: Sequence[YamlDocument], hosts: list[str], sink: Sink) -> None:
    """Report LeaderWorkerSets without one pod per host, or with wrong node ranks (A07).

    If the pods list the names of all nodes, the list must match the rank map. Otherwise
    PARC_HOSTS must name every pod, and the node rank must increase by the pods per group from one
    group to the next.
    """
    pods, ranks_match = sum(number_of_pods(job) for job in groups), True
    for job in groups:
        names, _ = environment_line(job, LEADER, "NODE_NAMES")
        addresses, _ = environment_line(job, LEADER, "PARC_HOSTS")
        size = positive_integer_or_zero(job.value_at(*TEMPLATE, "size"))
        step = _rank_step_per_job(job, (*LEADER, "containers", 0), "GROUP_INDEX")
        count = len(addresses.split()) if isinstance(addresses, str) else 0
        if isinstance(names, str):
            ranks_match &= names.split() == hosts and count in (0, len(hosts))
        else:
            ranks_match &= step == size and count == len(hosts)
    if pods != len(hosts) or not ranks_match:
        message = f"{pods} pods in {GROUPS}, the rank map has {len(hosts)} hosts"
        span = Span(GROUPS, groups[0].line("spec", "replicas"), 1)
        _report_node_ranks(message, ranks_match, span, sink)


def _report_node_ranks(message: str, ranks_match: bool, span: Span, sink: Sink) -> None:
    """Report A07 at ``span``; ``ranks_match`` is False if the node ranks differ too."""
    note = "" if ranks_match else "; the node ranks of the pods differ from the rank map"
    sink.report("A07", f"{message}{note}", span=span)


def _rank_step_per_job(job: YamlDocument, container: Path, index: str) -> int:
    """Return the factor of the variable ``index`` in the formula of NODE_RANK; 0 if it has none."""
    line = job.value_at(*container, "command", 2)
    found = re.search(rf"{index} \* (\d{{1,9}}) ", line) if isinstance(line, str) else None
    return int(found[1]) if found else 0


def _verify_gpus(file: str, job: YamlDocument, pod: Path, ranks_per_node: int, sink: Sink) -> None:
    """Report a number of GPUs per pod that differs from the ranks per host (A07)."""
    limits: Path = (*pod, "containers", 0, "resources", "limits")
    for name in VENDOR_RESOURCES.values():
        # The spec may name another GPU resource, so a missing match is not an error.
        found = job.value_at(*limits, name)
        if found is not None and found != str(ranks_per_node):
            message = f"{found!s:.20} GPUs per pod in {file}, the rank map has {ranks_per_node}"
            span = Span(file, job.line(*limits, name), 1)
            sink.report("A07", f"{message} ranks per host", span=span)


VERIFIER = KubernetesVerifier()
