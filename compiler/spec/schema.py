"""JSON Schema of the spec for editors, and table of its fields for ``parc explain``.

The docstrings of the fields are read from the source code on demand. pydantic could read them when
it builds the models, but that would slow down the start of all commands, and only the schema and
``parc explain`` need them.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from textwrap import dedent
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from parc.compiler.spec.annotations import branches, expected, model_of
from parc.compiler.spec.service_spec import ServingSpec
from parc.compiler.spec.spec import Spec


@cache
def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Return field -> docstring, including inherited fields, for all fields that have one."""
    docs: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            docs.update(_own(owner))
    return {name: docs[name] for name in model.model_fields if name in docs}


def _own(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield (field, docstring): a string literal after an annotated name documents that field."""
    (body,) = ast.parse(dedent(getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    for pair in pairwise(body.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                yield name, cleandoc(text)


DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class FieldDoc:
    """Documentation of a spec field."""

    path: str
    """Path such as ``cluster.racks[].nodes``, with brackets for list entries."""
    type: str
    """Description of the accepted values."""
    required: bool
    default: Any
    """JSON value; None if the field is required, or if its default is a whole section."""
    description: str


def spec_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a spec, with a description for each property.

    ``job.kind`` selects the schema of training jobs or of serving jobs.
    """
    train, serve = Spec.model_json_schema(), ServingSpec.model_json_schema()
    definitions = {**train.pop("$defs"), **serve.pop("$defs")}
    definitions |= {"Spec": train, "ServingSpec": serve}
    _describe(definitions)
    _tidy(definitions)
    serves = {"properties": {"kind": {"const": "serve"}}, "required": ["kind"]}
    return {
        "$schema": DRAFT,
        "title": "PARC spec, version 1",
        "if": {"properties": {"job": serves}, "required": ["job"]},
        "then": {"$ref": "#/$defs/ServingSpec"},
        "else": {"$ref": "#/$defs/Spec"},
        "$defs": definitions,
    }


def _describe(definitions: dict[str, Any]) -> None:
    """Set the description of each property to the docstring of its field."""
    for model in {*_models(Spec), *_models(ServingSpec)}:
        properties = definitions[model.__name__]["properties"]
        for name, text in field_docs(model).items():
            properties[name]["description"] = text


def _models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield the model and the models of its fields, recursively."""
    yield model
    for info in model.model_fields.values():
        inner, _ = _inner(info.rebuild_annotation())
        if inner is not None:
            yield from _models(inner)


def schema_text() -> str:
    """Return the text of schemas/spec.schema.json: sorted keys, LF, final newline."""
    return json.dumps(spec_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _tidy(node: Any) -> None:
    """Remove titles that pydantic generates (``Tp``) and defaults that are whole sections."""
    if isinstance(node, list):
        for item in node:
            _tidy(item)
    if not isinstance(node, dict):
        return
    if isinstance(node.get("title"), str):
        del node["title"]
    if isinstance(node.get("default"), dict):
        del node["default"]
    for key, value in node.items():
        if key != "properties":
            _tidy(value)
            continue
        for prop in value.values():
            _tidy(prop)


@cache
def fields() -> Mapping[str, FieldDoc]:
    """Return all fields by path, parents first. Training fields win over equal serving fields."""
    return MappingProxyType({**serving_fields(), **training_fields()})


@cache
def training_fields() -> Mapping[str, FieldDoc]:
    """Return all fields of a training spec by path."""
    return MappingProxyType({doc.path: doc for doc in _walk(Spec, "")})


@cache
def serving_fields() -> Mapping[str, FieldDoc]:
    """Return all fields of a serving spec by path."""
    return MappingProxyType({doc.path: doc for doc in _walk(ServingSpec, "")})


def _walk(model: type[BaseModel], above: str) -> Iterator[FieldDoc]:
    for name, info in model.model_fields.items():
        path = f"{above}.{name}" if above else name
        annotation = info.rebuild_annotation()
        yield FieldDoc(
            path=path,
            type=expected(annotation),
            required=info.is_required(),
            default=_default(info),
            description=field_docs(model).get(name, ""),
        )
        inner, suffix = _inner(annotation)
        if inner is not None:
            yield from _walk(inner, path + suffix)


def _default(info: FieldInfo) -> Any:
    if info.is_required():
        return None
    default = info.get_default(call_default_factory=True)
    if isinstance(default, BaseModel | dict):
        return None
    return list(default) if isinstance(default, tuple) else default


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """Return the model of a field, or None, and ``[]`` if the field is a list of that model."""
    model = model_of(annotation)
    if model is not None:
        return model, ""
    for branch in branches(annotation):
        for arg in getattr(branch, "__args__", ()):
            if isinstance(arg, type) and issubclass(arg, BaseModel):
                return arg, "[]"
    return None, ""


if __name__ == "__main__":
    sys.stdout.write(schema_text())
