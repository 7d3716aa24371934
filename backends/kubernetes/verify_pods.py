"""Settings of the pods in a manifest, and the pod that these settings imply.

The objects are written here a second time, from the API reference of Kubernetes, because a verifier
shares no code with the emitter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from parc.backends.kubernetes.verify_yaml import Path, YamlDocument, same_quantities
from parc.backends.verifier import DerivedSetting
from parc.compiler.ir.frozen import frozen

VENDOR_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
MOUNT = "/parc"
KUEUE = "kueue.x-k8s.io/"
"""Start of the names of the annotations that PARC sets for Kueue."""
KUBERNETES = "problem.launch.kubernetes"
SIZE_LIMIT: Path = ("emptyDir", "sizeLimit")
QUANTITIES = ("resources", "requests", "shared_memory")
"""Fields of ``launch.kubernetes`` with quantities."""
Pairs = list[list[Any]]


@frozen
class PodSettings:
    """Settings of a pod that follow from a plan."""

    image: Any
    gpu_resource: str
    gpus: Any
    resources: Pairs
    """Resources with a limit, in addition to the GPUs."""
    requests: Pairs
    """Resources that are requested without a limit."""
    shared_memory: Any
    host_network: bool
    privileged: bool
    node_selector: Pairs
    tolerations: list[Any]
    """Tolerated taints in the syntax of kubectl taint."""
    pull_secrets: list[Any]
    user: Any
    """User ID of the processes; None if the manifest does not set it."""
    group: Any
    """Group ID of the processes; None if the manifest does not set it."""
    claims: Pairs
    """PersistentVolumeClaims with their mount paths."""
    host_paths: Pairs
    """Folders of the node with their mount paths."""
    annotations: Pairs
    """Annotations of the pod, without those of Kueue."""
    claims_channel: bool
    """True if the pod claims devices; PARC lets pods claim only channels of a ComputeDomain."""
    grace_seconds: Any
    inherited: tuple[str, ...]
    """Variables whose values the pod takes from a Secret, under keys of the same name."""
    secret: Any
    """Name of the Secret; None if no variable needs it."""
    files: tuple[str, ...]
    """Paths of the mounted files in the output folder."""


def _mapping_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings_in_list(value: Any) -> list[dict[str, Any]]:
    """Return the items of ``value`` that are mappings; an empty list if ``value`` is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def read_pod(
    document: YamlDocument, spec: Path, launch: Mapping[str, Any], vendor: str
) -> PodSettings:
    """Return the settings of the pod whose spec is at the path ``spec``.

    Args:
        document: object with the pod.
        spec: path of the pod's spec.
        launch: section ``launch.kubernetes`` of plan.json, which names the resources of the user.
        vendor: vendor of the GPUs.
    """
    pod = _mapping_or_empty(document.value_at(*spec))
    container = next(iter(_mappings_in_list(pod.get("containers"))), {})
    resources = _mapping_or_empty(container.get("resources"))
    limits = _mapping_or_empty(resources.get("limits"))
    requests = _mapping_or_empty(resources.get("requests"))
    only_requested = {name: requests[name] for name in requests if name not in limits}
    context = _mapping_or_empty(pod.get("securityContext"))
    extra = [name for name, _ in launch.get("resources", ())]
    default = launch.get("gpu_resource") or VENDOR_RESOURCES.get(vendor, "")
    resource = default if default in limits else next((n for n in limits if n not in extra), "")
    volumes = {one.get("name"): one for one in _mappings_in_list(pod.get("volumes"))}
    mounts = {
        one.get("name"): one.get("mountPath")
        for one in _mappings_in_list(container.get("volumeMounts"))
    }
    notes = _mapping_or_empty(document.value_at(*spec[:-1], "metadata", "annotations"))
    config = _mapping_or_empty(_mapping_or_empty(volumes.get("plan")).get("configMap"))
    memory = _mapping_or_empty(_mapping_or_empty(volumes.get("shared-memory")).get("emptyDir"))
    secrets = _secret_references(container)
    return PodSettings(
        inherited=tuple(secrets),
        secret=next((one.get("name") for one in secrets.values()), None),
        image=container.get("image"),
        gpu_resource=resource,
        gpus=limits.get(resource),
        resources=_name_value_pairs(limits, extra, without=resource),
        requests=_name_value_pairs(only_requested, [n for n, _ in launch.get("requests", ())]),
        tolerations=[_taint_text(one) for one in _mappings_in_list(pod.get("tolerations"))],
        pull_secrets=[one.get("name") for one in _mappings_in_list(pod.get("imagePullSecrets"))],
        user=context.get("runAsUser"),
        group=context.get("runAsGroup"),
        shared_memory=memory.get("sizeLimit"),
        host_network=pod.get("hostNetwork") is True,
        privileged=_mapping_or_empty(container.get("securityContext")).get("privileged") is True,
        node_selector=_name_value_pairs(
            _mapping_or_empty(pod.get("nodeSelector")),
            [name for name, _ in launch.get("node_selector", ())],
        ),
        claims=_mounted_volumes(volumes, mounts, "persistentVolumeClaim", "claimName"),
        host_paths=_mounted_volumes(volumes, mounts, "hostPath", "path"),
        annotations=[[one, notes[one]] for one in notes if not one.startswith(KUEUE)],
        claims_channel=bool(resources.get("claims") or pod.get("resourceClaims")),
        grace_seconds=pod.get("terminationGracePeriodSeconds"),
        files=tuple(str(item.get("path")) for item in _mappings_in_list(config.get("items"))),
    )


def _mounted_volumes(
    volumes: Mapping[Any, Mapping[str, Any]], mounts: Mapping[Any, Any], kind: str, key: str
) -> Pairs:
    """Return [value of ``key``, mount path] of each volume whose source has the kind ``kind``."""
    return [
        [_mapping_or_empty(one[kind]).get(key), mounts.get(name)]
        for name, one in volumes.items()
        if kind in one
    ]


def _secret_references(container: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return variable -> reference to a Secret, for each variable with such a reference."""
    sources = {
        one["name"]: _mapping_or_empty(one.get("valueFrom"))
        for one in _mappings_in_list(container.get("env"))
        if isinstance(one.get("name"), str)
    }
    return {
        name: _mapping_or_empty(source["secretKeyRef"])
        for name, source in sources.items()
        if "secretKeyRef" in source
    }


def _taint_text(toleration: Mapping[str, Any]) -> str:
    """Return the taint that ``toleration`` tolerates, as kubectl taint writes it."""
    value, effect = toleration.get("value"), toleration.get("effect")
    return "".join(
        (
            str(toleration.get("key", "")),
            "" if value is None else f"={value}",
            "" if effect is None else f":{effect}",
        )
    )


def _expected_toleration(taint: str) -> dict[str, str]:
    name, _, effect = taint.partition(":")
    key, equal, value = name.partition("=")
    match = {"operator": "Equal", "value": value} if equal else {"operator": "Exists"}
    return {"key": key, **match, **({"effect": effect} if effect else {})}


def _name_value_pairs(found: dict[str, Any], names: Iterable[str], without: str = "") -> Pairs:
    """Return the entries of ``found`` as pairs [name, value], without the entry ``without``.

    The entries that ``names`` lists come first, in the order of ``names``.
    """
    known = [name for name in names if name in found]
    order = [*known, *(name for name in found if name not in known)]
    return [[name, found[name]] for name in order if name != without]


def secret_variables(pod: PodSettings) -> list[dict[str, Any]]:
    """Return the environment entries whose values come from the Secret that ``pod`` uses."""
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": pod.secret, "key": name}}}
        for name in pod.inherited
    ]


def read_pod_settings(
    file: str, document: YamlDocument, spec: Path, pod: PodSettings
) -> Iterator[DerivedSetting]:
    """Yield the settings of the plan that the pod contains."""
    container = (*spec, "containers", 0)
    volumes = document.line(*spec, "volumes")
    limits = document.line(*container, "resources", "limits")
    requests = document.line(*container, "resources", "requests")
    gpu_line = document.line(*container, "resources", "limits", pod.gpu_resource)
    memory = document.line(*spec, "volumes", _shared_memory_index(document, spec), *SIZE_LIMIT)
    default = pod.gpu_resource in VENDOR_RESOURCES.values()
    gpus = int(pod.gpus) if isinstance(pod.gpus, str) and pod.gpus.isdecimal() else pod.gpus
    rows: tuple[tuple[str, Any, int], ...] = (
        (f"{KUBERNETES}.image", pod.image, document.line(*container, "image")),
        (
            f"{KUBERNETES}.gpu_resource",
            frozenset({"", pod.gpu_resource}) if default else pod.gpu_resource,
            gpu_line,
        ),
        ("placement.ranks_per_node", gpus, gpu_line),
        (f"{KUBERNETES}.resources", pod.resources, limits),
        (f"{KUBERNETES}.shared_memory", pod.shared_memory, memory),
        (f"{KUBERNETES}.host_network", pod.host_network, document.line(*spec, "hostNetwork")),
        (f"{KUBERNETES}.privileged", pod.privileged, document.line(*container, "securityContext")),
        (f"{KUBERNETES}.node_selector", pod.node_selector, document.line(*spec, "nodeSelector")),
        (f"{KUBERNETES}.requests", pod.requests, requests),
        (f"{KUBERNETES}.tolerations", pod.tolerations, document.line(*spec, "tolerations")),
        (f"{KUBERNETES}.pull_secrets", pod.pull_secrets, document.line(*spec, "imagePullSecrets")),
        (f"{KUBERNETES}.run_as_user", pod.user, document.line(*spec, "securityContext")),
        (f"{KUBERNETES}.run_as_group", pod.group, document.line(*spec, "securityContext")),
        (f"{KUBERNETES}.claims", pod.claims, volumes),
        (f"{KUBERNETES}.host_paths", pod.host_paths, volumes),
        (
            f"{KUBERNETES}.annotations",
            pod.annotations,
            document.line(*spec[:-1], "metadata", "annotations"),
        ),
        (
            "problem.launch.slurm.signal_seconds",
            pod.grace_seconds,
            document.line(*spec, "terminationGracePeriodSeconds"),
        ),
    )
    for path, value, line in rows:
        is_quantity = path.removeprefix(f"{KUBERNETES}.") in QUANTITIES
        accepts = same_quantities(value) if is_quantity else None
        yield DerivedSetting(path, value, file, line, accepts=accepts)


def _shared_memory_index(document: YamlDocument, spec: Path) -> int:
    """Return the index of the volume with the shared memory; that of the last volume if none."""
    volumes = document.value_at(*spec, "volumes")
    names = [one.get("name") for one in _mappings_in_list(volumes)]
    return names.index("shared-memory") if "shared-memory" in names else max(0, len(names) - 1)


def line_of_gpus(
    job: YamlDocument, spec: Path, pod: PodSettings, plan: Mapping[str, Any], place: int
) -> int:
    """Return the line of the GPU limit of ``pod`` if it differs from the plan; otherwise ``place``.

    The total number of GPUs depends on this limit and on the number of pods, at line ``place``.
    """
    limit: Path = (*spec, "containers", 0, "resources", "limits", pod.gpu_resource)
    return place if pod.gpus == str(plan["placement"]["ranks_per_node"]) else job.line(*limit)


def expected_metadata(pod: PodSettings, annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return the annotations of a pod template under their key; empty without annotations."""
    every = {**annotations, **{name: value for name, value in pod.annotations}}
    return {"annotations": every} if every else {}


def expected_pod(
    pod: PodSettings,
    name: str,
    restart: str,
    container: Mapping[str, Any],
    hosts: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the spec of the pod with the settings ``pod``.

    Args:
        pod: settings that the plan decides.
        name: name of the job.
        restart: restart policy.
        container: command, environment, ports and probes of the container.
        hosts: names of the hosts on which the pod may run; empty if it may run on any host.
    """
    claims = [(f"claim-{place}", *claim) for place, claim in enumerate(pod.claims)]
    mounts = [("plan", MOUNT), ("shared-memory", "/dev/shm")]
    folders = [(f"host-{place}", *one) for place, one in enumerate(pod.host_paths)]
    mounts += [(volume, path) for volume, _, path in (*claims, *folders)]
    items = [{"key": path.replace("/", "."), "path": path} for path in pod.files]
    # 365 is 0o555: everyone may read and execute the files.
    files = {"name": f"{name}-plan", "defaultMode": 0o555, "items": items}
    channel = {"name": "imex", "resourceClaimTemplateName": f"{name}-imex"}
    return {
        **({"resourceClaims": [channel]} if pod.claims_channel else {}),
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": pod.grace_seconds,
        **_expected_placement(pod, hosts),
        "containers": [
            {
                "name": "ranks",
                "image": pod.image,
                **container,
                "resources": _expected_resources(pod),
                "securityContext": _expected_security(pod),
                "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts],
            }
        ],
        "volumes": [
            {"name": "plan", "configMap": files},
            {
                "name": "shared-memory",
                "emptyDir": {"medium": "Memory", "sizeLimit": pod.shared_memory},
            },
            *(
                {"name": name, "persistentVolumeClaim": {"claimName": claim}}
                for name, claim, _ in claims
            ),
            *(
                {"name": name, "hostPath": {"path": folder, "type": "Directory"}}
                for name, folder, _ in folders
            ),
        ],
    }


def _expected_security(pod: PodSettings) -> dict[str, Any]:
    """Return the security settings of the container."""
    rights = {"privileged": True} if pod.privileged else {"allowPrivilegeEscalation": False}
    return {**rights, "capabilities": {"add": ["IPC_LOCK"]}}


def _expected_resources(pod: PodSettings) -> dict[str, Any]:
    """Return the limits, requests and claims of the container."""
    limits = {pod.gpu_resource: pod.gpus, **{name: value for name, value in pod.resources}}
    return {
        "limits": limits,
        "requests": {**limits, **dict(pod.requests)},
        **({"claims": [{"name": "imex"}]} if pod.claims_channel else {}),
    }


def kept_apart(
    spec: Mapping[str, Any], plan: Mapping[str, Any], hosts: Sequence[str], label: tuple[str, str]
) -> dict[str, Any]:
    """Return the pod spec ``spec``, without other pods with ``label`` on the host of the pod.

    The requirement is necessary only if a pod may run on several ``hosts``, and two pods would fit
    on one of them.
    """
    gpus, ranks = plan["problem"]["cluster"]["node"]["gpus"], plan["placement"]["ranks_per_node"]
    if len(hosts) < 2 or gpus // ranks < 2:
        return dict(spec)
    name, value = label
    others = {
        "labelSelector": {"matchLabels": {name: value}},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [others]}}
    return {**spec, "affinity": {**spec["affinity"], **apart}}


def _expected_placement(pod: PodSettings, hosts: Sequence[str]) -> dict[str, Any]:
    """Return the keys of a pod spec that determine the node, network and user of the pod."""
    network = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    user = {} if pod.user is None else {"runAsUser": pod.user}
    group = {} if pod.group is None else {"runAsGroup": pod.group, "fsGroup": pod.group}
    on_hosts = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [on_hosts]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {
        **(network if pod.host_network else {}),
        **({"nodeSelector": dict(pod.node_selector)} if pod.node_selector else {}),
        **({"affinity": affinity} if hosts else {}),
        **(
            {"tolerations": [_expected_toleration(taint) for taint in pod.tolerations]}
            if pod.tolerations
            else {}
        ),
        **(
            {"imagePullSecrets": [{"name": name} for name in pod.pull_secrets]}
            if pod.pull_secrets
            else {}
        ),
        **({"securityContext": user | group} if user or group else {}),
    }
