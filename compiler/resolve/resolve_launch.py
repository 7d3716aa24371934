"""Resolve section ``launch:`` of a spec, check words of commands, compute the digest of a spec."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import (
    Cluster,
    Generation,
    KubernetesJob,
    Launch,
    ProfiledSteps,
    SlurmJob,
)
from parc.compiler.ir.serialize import as_json
from parc.compiler.resolve.resolve_targets import Targets
from parc.compiler.spec.launch_spec import KubernetesSpec, LaunchSpec, SlurmSpec
from parc.compiler.spec.spec import TaskSpec
from parc.compiler.topology.hostlist import compress_hosts_in_order, expand_host_list


def resolve_launch(
    spec: LaunchSpec, targets: Targets, program: str = "", *, nvlink_spans_hosts: bool
) -> Launch:
    """Return the launch settings of a job.

    ``program`` is the default of ``launch.program``. ``nvlink_spans_hosts`` is True if NVLink
    domains of the cluster contain several hosts.
    """
    slurm = spec.slurm
    return Launch(
        program=program if spec.program is None else spec.program,
        args=spec.args,
        omit=spec.omit,
        tensorboard_dir=spec.logging.tensorboard,
        wandb_project=spec.logging.wandb,
        profile=ProfiledSteps(**spec.profile.model_dump()) if spec.profile else None,
        env=tuple(
            (name, value) for name, value in sorted(spec.env.items()) if isinstance(value, str)
        ),
        env_inherited=tuple(
            sorted(name for name, value in spec.env.items() if not isinstance(value, str))
        ),
        setup=spec.setup,
        master_port=spec.master_port,
        network_interface=spec.network_interface,
        slurm=SlurmJob(
            version=dict(targets.versions).get("slurm", ""),
            partition=slurm.partition,
            account=slurm.account,
            qos=slurm.qos,
            time_limit=slurm.time_limit,
            reservation=slurm.reservation,
            constraint=slurm.constraint,
            exclude=slurm.exclude,
            nodelist=slurm.nodelist,
            array=slurm.array,
            comment=slurm.comment,
            mail_user=slurm.mail.user if slurm.mail else None,
            mail_type=slurm.mail.type if slurm.mail else None,
            extra=slurm.extra,
            container_image=slurm.container_image,
            container_mounts=slurm.container_mounts,
            container_runtime=container_runtime(slurm),
            requeue=slurm.requeue,
            # sbatch --signal takes whole seconds.
            signal_seconds=max(1, round(slurm.signal)),
            log_dir=slurm.log_dir,
        ),
        kubernetes=resolve_kubernetes(
            spec.kubernetes, compute_domain=nvlink_spans_hosts and _claims_channels(spec)
        ),
    )


def container_runtime(slurm: SlurmSpec) -> str | None:
    """Return the program that starts the container of a Slurm job.

    The result is None if the spec sets neither a container image nor the program.
    """
    if slurm.container_runtime != "auto":
        return slurm.container_runtime
    if slurm.container_image is None:
        return None
    # pyxis cannot read an image in Singularity's format, and has no protocol oras or library.
    own = slurm.container_image.endswith(".sif") or slurm.container_image.startswith(
        ("oras://", "library://")
    )
    return "apptainer" if own else "pyxis"


COMMAND_WORDS = (
    *("job.checkpoint", "job.checkpoint_dir", "job.data", "job.load_dir"),
    *("job.tokenizer", "job.tokenizer_model", "launch.program", "job.speculative.checkpoint"),
)
"""Fields whose texts are separate words of a command, which can follow a flag."""


PATHS = (
    *COMMAND_WORDS,
    *("job.lora.adapters", "launch.logging.tensorboard", "layout.offload.nvme_path"),
    *("launch.slurm.container_image", "launch.slurm.container_mounts"),
)
"""Fields whose texts are or contain paths, which the launch files quote."""
_UNEXPANDED = re.compile(r"^~[^/:]*(?=/|:|$)|\$(?:\{[A-Za-z_]\w*\}|[A-Za-z_]\w*)")
"""Home folder or variable that only a shell would expand."""


def check_command_words(spec: TaskSpec, sink: Sink) -> None:
    """Report texts that programs and launch files do not understand as the user means them.

    A text that starts with a dash would be a flag (X24), and a path with a tilde or a variable
    would not be expanded (L38).
    """
    for path in COMMAND_WORDS:
        for at, text in _texts_at(spec, path):
            if text.startswith("-"):
                finding = Finding(
                    f"{at} is {text[:60]!r}, which a program reads as a flag",
                    label="starts with a dash",
                    help="write a path as ./-NAME; flags belong in launch.args",
                )
                sink.report("X24", finding, at=at)
    for path in PATHS:
        for at, text in _texts_at(spec, path):
            if found := _UNEXPANDED.search(text):
                _report_unexpanded(at, text, found[0], sink)


def _report_unexpanded(at: str, text: str, word: str, sink: Sink) -> None:
    """Report a path whose part ``word`` only a shell would expand (L38)."""
    folders = word in ("$data", "$checkpoints", "$cache") and text.startswith(f"{word}/")
    finding = Finding(
        f"{at} is {text[:60]!r}, and no shell expands {word}",
        label=f"the job would use a folder with the name {word}",
        help=f"{word}/ needs site: FILE, a site file with folders.{word[1:]}"
        if folders
        else "write the whole path; a site file can set the folders $data/, $checkpoints/, $cache/",
    )
    sink.report("L38", finding, at=at)


def _texts_at(spec: TaskSpec, path: str) -> Iterator[tuple[str, str]]:
    """Yield (spec path, text) of the text at ``path``, or of each entry of a list or mapping."""
    value: Any = spec
    for name in path.split("."):
        value = getattr(value, name, None)
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        yield from ((f"{path}.{name}", text) for name, text in value.items())
    else:
        yield from ((f"{path}[{index}]", text) for index, text in enumerate(value or ()))


def _claims_channels(spec: LaunchSpec) -> bool:
    """Return True if pods claim channels for NVLink between hosts, where there is such NVLink."""
    if spec.kubernetes.compute_domain is not None:
        return spec.kubernetes.compute_domain
    # 0 is the value with which NCCL uses no NVLink between hosts.
    return spec.env.get("NCCL_MNNVL_ENABLE") != "0"


def resolve_kubernetes(spec: KubernetesSpec, *, compute_domain: bool) -> KubernetesJob:
    """Return the Kubernetes settings of the spec, with defaults for the keys that are not set.

    ``compute_domain`` is True if pods on several hosts claim channels of a ComputeDomain.
    """
    return KubernetesJob(
        image=spec.image or "",
        namespace=spec.namespace or "",
        queue=spec.queue or "",
        rack_label=spec.rack_label,
        domain_label=spec.domain_label,
        gpu_resource=spec.gpu_resource or "",
        resources=tuple(sorted(spec.resources.items())),
        requests=tuple(sorted(spec.requests.items())),
        node_selector=tuple(sorted(spec.node_selector.items())),
        tolerations=spec.tolerations,
        pull_secrets=spec.pull_secrets,
        run_as_user=spec.run_as_user,
        run_as_group=spec.run_as_group,
        claims=tuple(sorted(spec.claims.items())),
        host_paths=tuple(sorted(spec.host_paths.items())),
        annotations=tuple(sorted(spec.annotations.items())),
        compute_domain=compute_domain,
        host_network=spec.host_network,
        privileged=spec.privileged,
        shared_memory=spec.shared_memory,
        secret=spec.secret or "",
        max_restarts=spec.max_restarts,
        startup_minutes=spec.startup_minutes,
    )


def spec_as_json(spec: TaskSpec) -> str:
    """Return the keys that ``spec`` sets as JSON text, with their values in base units."""
    # json.dumps also writes lone surrogates, which the encoder of pydantic rejects.
    return json.dumps(spec.model_dump(mode="json", exclude_unset=True))


def spec_digest(spec: TaskSpec, resolved: Sequence[object]) -> str:
    """Return the SHA-256 digest of a spec and of the objects to which its names refer.

    The digest covers the keys that the spec sets and the objects in ``resolved``, such as the model
    and the cluster. It does not depend on how host lists are written.
    """
    # Keys that are not set do not count, so that a new key of PARC keeps the digests of old specs.
    written = spec.model_dump(mode="json", exclude_unset=True)
    if isinstance(written["cluster"], dict):
        _unify_host_lists(written["cluster"])
    content = [
        written,
        *(as_json(value, NEWER_FIELDS) for value in (*resolved, *_facts_from_user_files(resolved))),
    ]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _unify_host_lists(cluster: dict[str, Any]) -> None:
    """Replace each host list in ``cluster`` by the shortest text for the same hosts.

    The order of the hosts is kept.
    """
    for key in ("spare", "unavailable"):
        if cluster.get(key):
            cluster[key] = _shortest_host_list(cluster[key])
    for rack in cluster.get("racks") or ():
        rack["nodes"] = _shortest_host_list(rack["nodes"])
        domains = rack.get("nvlink_domains") or {}
        domains.update({name: _shortest_host_list(hosts) for name, hosts in domains.items()})


def _shortest_host_list(lists: str | list[str]) -> str:
    texts = [lists] if isinstance(lists, str) else lists
    return compress_hosts_in_order(name for text in texts for name in expand_host_list(text))


def _facts_from_user_files(resolved: Sequence[object]) -> list[Generation]:
    """Return the GPU generations in ``resolved`` that were read from files of the user.

    Generations of the catalog are left out, so that an update of the catalog changes no digest.
    """
    clusters = [one for one in resolved if isinstance(one, Cluster)]
    return [one.generation for one in clusters if one.generation.file]


NEWER_FIELDS = frozenset(("upper", "above", "gpu_numa", "gpu_nics", "rails"))
"""Fields that the digest includes only if they are set, because older plans do not have them."""
