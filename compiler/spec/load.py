"""Load a spec: parse and validate its text, and report all mistakes in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from parc.compiler.diagnostics import Finding, Sink, Span, SpecPositions
from parc.compiler.spec.override import apply_overrides, positions_with_overrides, replace_values
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.spec.reading.yaml_tree import SpecTree, read_tree, split_lines
from parc.compiler.spec.spec import Spec, TaskSpec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def load_spec(source: SpecSource, overrides: Sequence[str], sink: Sink) -> TaskSpec | None:
    """Return the validated spec with ``overrides`` applied; None if the spec has a mistake.

    All mistakes are reported in one run, unless the text is not valid YAML. ``sink.positions`` is
    set, so that later passes can report findings at spec paths.
    """
    tree = read_spec_tree(source, overrides, sink)
    return None if tree is None else validate_spec_tree(tree, sink)


def read_spec_tree(
    source: SpecSource, overrides: Sequence[str], sink: Sink
) -> dict[str, Any] | None:
    """Return the text of a spec as a plain tree with ``overrides`` applied.

    Returns None if the text is not valid YAML or not a mapping. ``sink.positions`` is set.
    """
    # Set before parsing, so that syntax errors can show their lines too.
    sink.positions = SpecPositions(source.name, lines={source.name: split_lines(source.text)})
    tree = read_tree(source.text, source.name, sink)
    if tree is None or _report_non_mapping(tree, source.name, sink):
        return None
    tree = apply_overrides(tree, overrides, sink)
    sink.positions = positions_with_overrides(sink.positions, tree, overrides)
    value: dict[str, Any] = tree.value
    return value


def _report_non_mapping(tree: SpecTree, file: str, sink: Sink) -> bool:
    if isinstance(tree.value, dict):
        return False
    what = "is empty" if tree.value is None else "is not a mapping of keys to values"
    finding = Finding(
        f"the spec {what}", help="a spec starts with `parc: 1`; `parc init` writes an example"
    )
    sink.report("X06", finding, span=tree.values.get("") or Span(file, 1, 1))
    return True


def validate_spec_tree(tree: dict[str, Any], sink: Sink) -> TaskSpec | None:
    """Return the spec of a plain tree; None after reporting all mistakes in it."""
    from pydantic import ValidationError

    root = _root_model(tree)
    try:
        # From JSON, because pydantic in strict mode rejects a Python list for a tuple field.
        spec = root.model_validate_json(json.dumps(tree))
        return None if sink.failed() else spec
    except ValidationError as invalid:
        from parc.compiler.spec.mistakes import (
            report_mistakes,
            report_renamed_sections,
            unquoted_texts,
        )

        errors = invalid.errors(include_url=False, include_input=False)
        root, tree, errors = _as_service_without_kind(root, tree, errors, sink)
        if texts := unquoted_texts(root, tree, errors, sink):
            return validate_spec_tree(replace_values(tree, texts), sink)
        renamed = report_renamed_sections(root, tree, errors, sink)
        if renamed is not None:
            return validate_spec_tree(renamed, sink)
        report_mistakes(root, tree, errors, sink)
        return None


def _root_model(tree: dict[str, Any]) -> type[TaskSpec]:
    """Return the pydantic model of the whole spec, for a serving job or for a training job."""
    job = tree.get("job")
    if not isinstance(job, dict) or job.get("kind") != "serve":
        return Spec
    # Imported here, because pydantic builds the models of serving on import.
    from parc.compiler.spec.service_spec import ServingSpec

    return ServingSpec


def _as_service_without_kind(
    root: type[TaskSpec], tree: dict[str, Any], errors: list[ErrorDetails], sink: Sink
) -> tuple[type[TaskSpec], dict[str, Any], list[ErrorDetails]]:
    """Return model, tree and errors of an invalid spec; those of a service if it describes one.

    A spec without ``job.kind`` describes a service if it has keys that only a service has, and
    fewer errors as one. The missing kind is then reported here, instead of an error for each of
    these keys.
    """
    job = tree.get("job", {})
    if not isinstance(job, dict) or "kind" in job:
        return root, tree, errors
    from pydantic import ValidationError

    from parc.compiler.spec.schema import serving_fields

    unknown = [error["loc"] for error in errors if error["type"] == "extra_forbidden"]
    if not any(".".join(map(str, path)) in serving_fields() for path in unknown):
        return root, tree, errors
    service = {**tree, "job": {**job, "kind": "serve"}}
    other = _root_model(service)
    left: list[ErrorDetails] = []
    try:
        other.model_validate_json(json.dumps(service))
    except ValidationError as invalid:
        left = invalid.errors(include_url=False, include_input=False)
    if len(left) >= len(errors):
        return root, tree, errors
    finding = Finding(
        "kind is missing in job",
        label="the spec has keys that only a service has; without kind, a job is a training run",
        fix="job.kind: serve",
    )
    values = sink.positions.values
    sink.report("X08", finding, at="job.kind", span=values.get("job") or values.get(""))
    return other, service, left


def salvage_sections(tree: dict[str, Any]) -> dict[str, Any]:
    """Return those of the sections ``model`` and ``cluster`` of an invalid spec that are valid.

    The caller resolves these sections, so that the same run also reports mistakes that only the
    catalog shows. This function reports no findings.
    """
    from pydantic import TypeAdapter, ValidationError

    sections = {}
    for name in ("model", "cluster"):
        kind: TypeAdapter[Any] = TypeAdapter(cast(Any, TaskSpec.model_fields[name].annotation))
        with suppress(ValidationError):
            sections[name] = kind.validate_json(json.dumps(tree.get(name)))
    return sections
