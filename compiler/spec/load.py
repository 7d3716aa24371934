"""Text of a spec -> ``Spec``, or every mistake in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from parc.compiler.diagnostics import Finding, Positions, Sink, Span
from parc.compiler.spec.override import apply_overrides, with_overrides
from parc.compiler.spec.reading.source import Source
from parc.compiler.spec.reading.yaml_tree import Tree, read_tree, split_lines
from parc.compiler.spec.spec import Spec, TaskSpec


def load_spec(source: Source, overrides: Sequence[str], sink: Sink) -> TaskSpec | None:
    """Read, override and check a spec; None after an error.

    Sets ``sink.positions``, so that later passes can report at spec paths. All mistakes are
    reported in one run; only a text that is no YAML hides the others.
    """
    sink.positions = Positions(source.name, lines={source.name: split_lines(source.text)})
    tree = read_tree(source.text, source.name, sink)
    if tree is None or _not_a_mapping(tree, source.name, sink):
        return None
    tree = apply_overrides(tree, overrides, sink)
    sink.positions = with_overrides(sink.positions, tree, overrides)
    spec = _checked(tree.value, sink)
    return None if sink.failed() else spec


def _not_a_mapping(tree: Tree, file: str, sink: Sink) -> bool:
    if isinstance(tree.value, dict):
        return False
    what = "is empty" if tree.value is None else "is not a mapping of keys to values"
    finding = Finding(
        f"the spec {what}", help="a spec starts with `parc: 1`; `parc init` writes one"
    )
    sink.report("X06", finding, span=tree.values.get("") or Span(file, 1, 1))
    return True


def _checked(tree: dict[str, Any], sink: Sink) -> TaskSpec | None:
    from pydantic import ValidationError

    root = _language(tree)
    try:
        # from JSON, because strict Python input would refuse a list where a tuple is declared
        return root.model_validate_json(json.dumps(tree))
    except ValidationError as invalid:
        from parc.compiler.spec.mistakes import report_mistakes

        errors = invalid.errors(include_url=False, include_input=False)
        report_mistakes(root, tree, errors, sink)
        return None


def _language(tree: dict[str, Any]) -> type[TaskSpec]:
    """That of serving where ``job.kind`` says so; its models are built on first use."""
    job = tree.get("job")
    if not isinstance(job, dict) or job.get("kind") != "serve":
        return Spec
    from parc.compiler.spec.service_spec import ServingSpec

    return ServingSpec


def salvage_sections(source: Source, overrides: Sequence[str]) -> dict[str, Any]:
    """``model`` and ``cluster`` of a spec that did not load, where these alone are sound.

    So that one run also reports what only a look into the catalog finds. Reports nothing.
    """
    from pydantic import TypeAdapter, ValidationError

    tree = read_tree(source.text, source.name, Sink())
    if tree is None or not isinstance(tree.value, dict):
        return {}
    value = apply_overrides(tree, overrides, Sink()).value
    sections = {}
    for name in ("model", "cluster"):
        kind: TypeAdapter[Any] = TypeAdapter(cast(Any, TaskSpec.model_fields[name].annotation))
        with suppress(ValidationError):
            sections[name] = kind.validate_json(json.dumps(value.get(name)))
    return sections
