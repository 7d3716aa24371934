"""docs/spec.md describes every field of the spec, with an example that is valid."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from ruamel.yaml import YAML

from parc.compiler.report.text.explain import example_patterns, example_value
from parc.compiler.report.text.spec_page import spec_page
from parc.compiler.spec.schema import all_fields, serving_fields, training_fields
from parc.compiler.spec.service_spec import ServingSpec
from parc.compiler.spec.spec import Spec
from tests.laws.field_pairs import fields_of
from tests.project_files import ROOT

SECTIONS = ("a mapping", "a list of mappings")


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "spec.md").read_text("utf-8") == spec_page(), "run make docs"


def test_the_page_describes_every_field_of_both_kinds_of_job() -> None:
    training, _, serving = spec_page().partition("\n## Serving jobs\n")
    described = documented_paths(training)
    assert described == set(training_fields())
    assert described | documented_paths(serving) == set(all_fields())
    missing = {path for path, doc in serving_fields().items() if training_fields().get(path) != doc}
    assert documented_paths(serving) == missing


def test_every_field_has_a_meaning_and_every_value_an_example() -> None:
    fields = [*training_fields().values(), *serving_fields().values()]
    assert [field.path for field in fields if not field.description] == []
    without = [one.path for one in fields if not example_value(one) and one.type not in SECTIONS]
    assert not without, "add an example to compiler/report/text/field_examples.yaml"


@pytest.mark.parametrize(
    ("model", "fields"), [(Spec, training_fields()), (ServingSpec, serving_fields())]
)
def test_every_example_is_a_valid_value_of_its_field(model: Any, fields: Any) -> None:
    yaml = YAML(typ="safe", pure=True)
    invalid = []
    for path, annotation in fields_of(model):
        example = example_value(fields[path])
        try:
            if example:
                _adapter(annotation).validate_python(_as_tuples(yaml.load(example)))
        except ValidationError as error:
            invalid.append(f"{path}: {example}: {error.errors()[0]['msg']}")
    assert not invalid


def test_every_pattern_of_an_example_matches_a_field() -> None:
    fields = all_fields()
    for pattern in example_patterns():
        assert any(re.fullmatch(pattern, path) for path in fields), pattern


def documented_paths(page: str) -> set[str]:
    """Return the spec paths that ``page`` describes, read from its headings and tables."""
    paths: set[str] = set()
    sections = [""]
    for line in page.splitlines():
        if line.startswith("### "):
            sections = re.findall(r"`([^`]+)`", line) or [""]
        elif line.startswith("| `"):
            name = line.split("`")[1]
            paths |= {f"{section}.{name}" if section else name for section in sections}
    return paths


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=ConfigDict(strict=True))
    except PydanticUserError:  # the annotation is a model, which is strict itself
        return TypeAdapter(annotation)


def _as_tuples(value: Any) -> Any:
    """Return a value of YAML as the loader of specs gives it to the models."""
    if isinstance(value, dict):
        return {key: _as_tuples(one) for key, one in value.items()}
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
