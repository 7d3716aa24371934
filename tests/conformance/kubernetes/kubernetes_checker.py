"""Check manifests with the Kubernetes models of Kubeflow's API package and with schemas.

    python kubernetes_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "manifest": {...}}. A verdict adds "keys_ignored": keys that an API server would
drop (or reject, with strict validation). Stages:

    schema     schemas/KIND.json, for kinds that have no model in the package
    model      the generated pydantic model of the kind, and of the pod templates in it
    openapi    the strict schemas of each Kubernetes release that a case lists in "releases", for
               objects of Kubernetes and pod templates: PARC_CONFORMANCE_KUBERNETES
    crd        the schema in the CustomResourceDefinition of the kind, if the folder
               PARC_CONFORMANCE_CRDS contains it
    rules      kubernetes_rules.py: the additional checks of webhooks

Runs under a Python that has kubeflow-trainer-api and jsonschema; imports neither PARC nor pytest.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from case_lines import Case, Rejected, Verdict, answer_cases, import_before_forks
from kubernetes_rules import broken_rules, pod_templates

MODELS = {
    "ClusterTrainingRuntime": "TrainerV1alpha1ClusterTrainingRuntime",
    "ConfigMap": "IoK8sApiCoreV1ConfigMap",
    "Job": "IoK8sApiBatchV1Job",
    "JobSet": "JobsetV1alpha2JobSet",
    "Service": "IoK8sApiCoreV1Service",
    "TrainJob": "TrainerV1alpha1TrainJob",
    "TrainingRuntime": "TrainerV1alpha1TrainingRuntime",
}
VERSIONS = {
    "ConfigMap": "v1",
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Service": "v1",
}
POD_TEMPLATE = "IoK8sApiCoreV1PodTemplateSpec"
SCHEMAS = Path(__file__).with_name("schemas")


def check(case: Case, verdict: Verdict) -> None:
    """Check the schema or the model, then the rules."""
    manifest = case["manifest"]
    kind = manifest.get("kind", "")
    schema = SCHEMAS / f"{kind.lower()}.json"
    verdict["keys_ignored"] = []
    if schema.exists():
        verdict["stage"] = "schema"
        verdict["keys_ignored"] = against_schema(manifest, json.loads(schema.read_text()))
        verdict["stage"] = "model"
        for where, template in pod_templates(manifest):
            verdict["keys_ignored"] += against_model(template, POD_TEMPLATE, where)
    else:
        verdict["stage"] = "model"
        if kind not in MODELS:
            raise Rejected(f"no model and no schema of kind {kind!r}")
        version, right = manifest.get("apiVersion"), VERSIONS.get(kind)
        if right is None:
            right = "trainer.kubeflow.org/v1alpha1"
        if version != right:
            raise Rejected(f"apiVersion {version!r} of {kind} is not {right!r}")
        verdict["keys_ignored"] = against_model(manifest, MODELS[kind], "")
    verdict["stage"] = "openapi"
    against_releases(manifest, case.get("releases", ()))
    verdict["stage"] = "crd"
    if (definition := custom_schemas().get(kind)) is not None:
        ignored = verdict["keys_ignored"] + against_schema(manifest, definition)
        verdict["keys_ignored"] = sorted(set(ignored))
    verdict["stage"] = "rules"
    if broken := broken_rules(manifest):
        raise Rejected("; ".join(broken))


def against_schema(manifest: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Return the keys that are not in the schema; raise Rejected for all other errors."""
    from jsonschema import Draft202012Validator

    unknown, errors = [], []
    for error in Draft202012Validator(schema).iter_errors(manifest):
        where = ".".join(str(step) for step in error.absolute_path)
        if error.validator == "additionalProperties" and isinstance(error.schema, dict):
            known = error.schema.get("properties", {})
            unknown += [f"{where}.{key}".strip(".") for key in error.instance if key not in known]
        else:
            errors.append(f"{where}: {error.message}")
    if errors:
        raise Rejected("; ".join(errors))
    return unknown


def against_releases(manifest: dict[str, Any], listed: list[str]) -> None:
    """Check an object of Kubernetes, and each pod template, with the schemas of the releases."""
    kind = manifest.get("kind", "")
    for release in listed:
        if kind in ("ConfigMap", "Service"):
            against_release(manifest, kind, release, "")
        for where, template in pod_templates(manifest):
            against_release(template, "PodTemplateSpec", release, where)


def against_release(value: dict[str, Any], kind: str, release: str, where: str) -> None:
    """Check ``value`` with the schema of ``kind`` in a Kubernetes release, without unknown keys."""
    from jsonschema import Draft202012Validator

    schema = {"$ref": f"#/$defs/io.k8s.api.core.v1.{kind}", "$defs": releases()[release]}
    errors = [
        f"{'.'.join([where, *map(str, error.absolute_path)]).strip('.')}: {error.message}"
        for error in Draft202012Validator(schema).iter_errors(value)
    ]
    if errors:
        raise Rejected(f"Kubernetes {release}: {'; '.join(errors)}")


@cache
def releases() -> dict[str, dict[str, Any]]:
    """Return Kubernetes release -> strict schemas of all its objects, by their full names."""
    folder, found = os.environ.get("PARC_CONFORMANCE_KUBERNETES"), {}
    for path in Path(folder).rglob("*-local-strict/_definitions.json") if folder else ():
        text = path.read_text().replace("/api/_definitions.json#", "#")
        # the name of the folder is v1.34.0-local-strict
        found[path.parent.name[1:].split(".0-")[0]] = json.loads(text)["$defs"]
    return found


@cache
def custom_schemas() -> dict[str, dict[str, Any]]:
    """Return kind -> schema, from the CustomResourceDefinitions in PARC_CONFORMANCE_CRDS."""
    import yaml

    folder, found = os.environ.get("PARC_CONFORMANCE_CRDS"), {}
    for path in sorted(Path(folder).glob("*.yaml")) if folder else ():
        spec = yaml.safe_load(path.read_text())["spec"]
        (version,) = [one for one in spec["versions"] if one["storage"]]
        found[spec["names"]["kind"]] = closed(version["schema"]["openAPIV3Schema"])
    return found


def closed(schema: Any) -> Any:
    """Return a structural schema without unknown keys, in the terms of JSON Schema."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


def against_model(manifest: dict[str, Any], name: str, where: str) -> list[str]:
    """Return the keys that the model drops; the model raises for other errors."""
    model = getattr(import_module("kubeflow_trainer_api.models"), name)
    return dropped(manifest, model.from_dict(manifest).to_dict(), where)


def dropped(given: Any, kept: Any, where: str) -> list[str]:
    """Return the paths that are in ``given`` and not in ``kept``."""
    if isinstance(given, dict) and isinstance(kept, dict):
        found = [f"{where}.{key}".strip(".") for key in given if key not in kept]
        both = [key for key in given if key in kept]
        return found + [p for key in both for p in dropped(given[key], kept[key], f"{where}.{key}")]
    if isinstance(given, list) and isinstance(kept, list):
        pairs = enumerate(zip(given, kept, strict=False))
        return [path for index, (g, k) in pairs for path in dropped(g, k, f"{where}[{index}]")]
    return []


def main() -> int:
    import_before_forks("jsonschema", "kubeflow_trainer_api.models", "yaml")
    custom_schemas()
    releases()
    return answer_cases(check)


if __name__ == "__main__":
    sys.exit(main())
