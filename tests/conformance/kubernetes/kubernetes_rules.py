"""Rules of Kubernetes objects that no schema contains: checks of their webhooks and controllers.

Reimplemented from the admission webhooks of Kubernetes, JobSet, LeaderWorkerSet and Kueue. Imports
neither PARC nor pytest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Manifest = dict[str, Any]
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
NODE_LABEL = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
QUANTITY = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?(\d+\.?\d*|\.\d+))"
)
LONGEST_LABEL = 63
POD_SUFFIX = 6
"""Length of the suffix of a pod of a Job: a dash and five random characters, after its index."""
KUEUE = "kueue.x-k8s.io/podset-"


def broken_rules(manifest: Manifest) -> list[str]:
    """Return one sentence per violated rule."""
    found = list(RULES.get(manifest.get("kind", ""), lambda _: iter(()))(manifest))
    for where, template in pod_templates(manifest):
        found += [f"{where}: {text}" for text in (*quantities(template), *topology(template))]
    return found


def pod_templates(manifest: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Yield the path and content of every pod template of an object."""
    spec = manifest.get("spec", {})
    for index, job in enumerate(spec.get("replicatedJobs", [])):
        where = f"spec.replicatedJobs[{index}].template.spec.template"
        yield where, job.get("template", {}).get("spec", {}).get("template", {})
    for name, template in spec.get("leaderWorkerTemplate", {}).items():
        if name.endswith("Template"):
            yield f"spec.leaderWorkerTemplate.{name}", template
    if manifest.get("kind") == "Job":
        yield "spec.template", spec.get("template", {})


def quantities(template: Manifest) -> Iterator[str]:
    """Check amounts of resources. Extended resources such as GPUs must be integers, with requests
    equal to limits.
    """
    for container in template.get("spec", {}).get("containers", []):
        resources = container.get("resources", {})
        asked, limits = resources.get("requests", {}), resources.get("limits", {})
        for name, amount in (*limits.items(), *asked.items()):
            if not QUANTITY.fullmatch(str(amount)):
                yield f"{name}: {amount!r} is not a quantity"
            elif "/" in name and not str(amount).isdigit():
                yield f"{name}: {amount!r} must be an integer"
        for name in sorted(n for n in asked if "/" in n and asked[n] != limits.get(n)):
            yield f"requests of {name} must equal its limits"


def topology(template: Manifest) -> Iterator[str]:
    """Check Kueue's annotations for topology-aware scheduling."""
    notes = template.get("metadata", {}).get("annotations", {})
    asked = {key.removeprefix(KUEUE): v for key, v in notes.items() if key.startswith(KUEUE)}
    whole = [
        key for key in ("required", "preferred", "unconstrained") if f"{key}-topology" in asked
    ]
    if len(whole) > 1:
        yield f"only one of {KUEUE}*-topology may be set, not {whole}"
    for key in ("required-topology", "preferred-topology", "slice-required-topology"):
        if key in asked and not NODE_LABEL.fullmatch(asked[key]):
            yield f"{KUEUE}{key}: {asked[key]!r} is not the name of a node label"
    if ("slice-required-topology" in asked) != ("slice-size" in asked):
        yield f"{KUEUE}slice-required-topology and {KUEUE}slice-size need each other"
    if not re.fullmatch(r"[1-9]\d*", asked.get("slice-size", "1")):
        yield f"{KUEUE}slice-size: {asked['slice-size']!r} is not a positive integer"
    if "group-name" in asked and whole not in (["required"], ["preferred"]):
        yield f"{KUEUE}group-name needs {KUEUE}required-topology or -preferred-topology"
    known = {f"{key}-topology" for key in ("required", "preferred", "unconstrained")}
    known |= {"slice-required-topology", "slice-size", "group-name"}
    known |= {"slice-required-topology-constraints"}
    yield from (f"{KUEUE}{key} is unknown to Kueue" for key in sorted(set(asked) - known))


def job_set(manifest: Manifest) -> Iterator[str]:
    """Apply the rules of JobSet's webhook: names of pods and of the subdomain."""
    name, spec = manifest["metadata"]["name"], manifest["spec"]
    subdomain = spec.get("network", {}).get("subdomain", name)
    if not is_label(subdomain):
        yield f"spec.network.subdomain: {subdomain!r} is not a DNS label"
    jobs = spec.get("replicatedJobs", [])
    names = [job.get("name", "") for job in jobs]
    if len(set(names)) < len(names):
        yield f"spec.replicatedJobs: names are not unique: {names}"
    for job in jobs:
        one = job.get("template", {}).get("spec", {})
        last_job, last_pod = job.get("replicas", 1) - 1, (one.get("completions") or 1) - 1
        pod = f"{name}-{job.get('name')}-{max(last_job, 0)}-{max(last_pod, 0)}"
        if not is_label(pod) or len(pod) + POD_SUFFIX > LONGEST_LABEL:
            yield f"pod name {pod!r} and {POD_SUFFIX} more characters are not a DNS label"
        yield from job_spec(one)


def job(manifest: Manifest) -> Iterator[str]:
    """Apply the rules of a Job that is not part of a JobSet."""
    if not is_label(manifest["metadata"]["name"]):
        yield f"metadata.name: {manifest['metadata']['name']!r} is not a DNS label"
    yield from job_spec(manifest["spec"])


def job_spec(spec: Manifest) -> Iterator[str]:
    if spec.get("completionMode") == "Indexed" and not spec.get("completions"):
        yield "completions is required where completionMode is Indexed"
    policy = spec.get("template", {}).get("spec", {}).get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        yield f"restartPolicy of a Job's pods must be Never or OnFailure, not {policy!r}"


def leader_worker_set(manifest: Manifest) -> Iterator[str]:
    """Apply the rules of LeaderWorkerSet's webhook: sizes of subgroups, amounts of a rollout."""
    template = manifest["spec"]["leaderWorkerTemplate"]
    size, policy = template.get("size", 1), template.get("subGroupPolicy", {})
    part = policy.get("subGroupSize", 1)
    if part > size or (size % part and (size - 1) % part):
        yield f"subGroupSize {part} must divide size {size} or size - 1"
    if policy.get("subGroupPolicyType") == "LeaderExcluded" and (size - 1) % part:
        yield f"subGroupSize {part} must divide size - 1 = {size - 1} with LeaderExcluded"
    rollout = manifest["spec"].get("rolloutStrategy", {}).get("rollingUpdateConfiguration", {})
    if rollout.get("maxUnavailable", 1) in (0, "0%") and rollout.get("maxSurge", 0) in (0, "0%"):
        yield "maxUnavailable and maxSurge must not both be 0"


def topology_levels(manifest: Manifest) -> Iterator[str]:
    labels = [level["nodeLabel"] for level in manifest["spec"]["levels"]]
    if "kubernetes.io/hostname" in labels[:-1]:
        yield "kubernetes.io/hostname may only be the lowest level"


def is_label(name: str) -> bool:
    return len(name) <= LONGEST_LABEL and bool(LABEL.fullmatch(name))


RULES = {
    "Job": job,
    "JobSet": job_set,
    "LeaderWorkerSet": leader_worker_set,
    "Topology": topology_levels,
}
