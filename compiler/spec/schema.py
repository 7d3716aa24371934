"""JSON Schema of the spec for editors, and table of the spec fields for ``parc explain``.

The docstrings of the fields are read from the source code on demand. pydantic could read them when
it builds the models, but that would slow down the start of every command, although only the schema
and ``parc explain`` need them.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from textwrap import dedent
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.annotations import describe_expected, model_of, union_members
from parc.compiler.spec.launch_spec import SiteSpec
from parc.compiler.spec.service_spec import ServingSpec
from parc.compiler.spec.spec import Spec


@cache
def docstrings_of_fields(model: type[BaseModel]) -> dict[str, str]:
    """Return (field name -> docstring) of the fields of ``model``, including inherited fields.

    Fields without a docstring are left out.
    """
    docs: dict[str, str] = {}
    # Reversed, so that a subclass overrides the docstring of its base class.
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            docs.update(_declared_docs(owner))
    return {name: docs[name] for name in model.model_fields if name in docs}


def _declared_docs(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield (field, docstring) for the fields that ``model`` declares itself.

    A string literal directly after an annotated name is the docstring of that field.
    """
    (body,) = ast.parse(dedent(getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    for pair in pairwise(body.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                yield name, cleandoc(text)


DRAFT = "https://json-schema.org/draft/2020-12/schema"


@frozen
class FieldDoc:
    """Documentation of one field of the spec."""

    path: str
    """Spec path of the field; brackets mark list entries, as in ``cluster.racks[].nodes``."""
    type: str
    """Description of the accepted values in words."""
    required: bool
    default: Any
    """Default as a JSON value; None if the field is required, or if its default is a whole
    section."""
    description: str


def spec_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a spec, with a description of each property.

    The value of ``job.kind`` selects between the schemas of training and serving specs.
    """
    train, serve = Spec.model_json_schema(), ServingSpec.model_json_schema()
    # Sections that both kinds of job share have equal definitions in both schemas.
    definitions = {**train.pop("$defs"), **serve.pop("$defs")}
    definitions |= {"Spec": train, "ServingSpec": serve}
    _set_descriptions(definitions, Spec, ServingSpec)
    for root in (train, serve):
        # A list of clusters is replaced by one of its entries before the models validate a spec.
        one = root["properties"]["cluster"]["anyOf"]
        several = {"type": "array", "items": {"anyOf": list(one)}, "minItems": 1}
        one.append(several)
    _remove_titles_and_section_defaults(definitions)
    serves = {"properties": {"kind": {"const": "serve"}}, "required": ["kind"]}
    return {
        "$schema": DRAFT,
        "title": "PARC spec, version 1",
        "if": {"properties": {"job": serves}, "required": ["job"]},
        "then": {"$ref": "#/$defs/ServingSpec"},
        "else": {"$ref": "#/$defs/Spec"},
        "$defs": definitions,
    }


def site_schema_text() -> str:
    """Return the JSON Schema of a site file, with sorted keys and a final newline."""
    site = SiteSpec.model_json_schema()
    definitions = {**site.pop("$defs"), "SiteSpec": site}
    _set_descriptions(definitions, SiteSpec)
    _remove_titles_and_section_defaults(definitions)
    schema = {
        "$schema": DRAFT,
        "title": "PARC site file",
        "$ref": "#/$defs/SiteSpec",
        "$defs": definitions,
    }
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _set_descriptions(definitions: dict[str, Any], *roots: type[BaseModel]) -> None:
    """Set the description of each property in ``definitions`` to the docstring of its field.

    ``definitions`` has an entry for each of the models ``roots`` and of all models below them.
    """
    for model in {model for root in roots for model in _models_below(root)}:
        properties = definitions[model.__name__]["properties"]
        for name, text in docstrings_of_fields(model).items():
            properties[name]["description"] = text


def _models_below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield ``model`` and, recursively, the pydantic models of its fields."""
    yield model
    for info in model.model_fields.values():
        inner, _ = _model_of_field(info.rebuild_annotation())
        if inner is not None:
            yield from _models_below(inner)


def schema_text() -> str:
    """Return the text of schemas/spec.schema.json, with sorted keys and a final newline."""
    return json.dumps(spec_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _remove_titles_and_section_defaults(node: Any) -> None:
    """Remove needless titles and defaults from a JSON Schema.

    These are the titles that pydantic generates (``Tp``), and defaults that are whole sections.
    """
    if isinstance(node, list):
        for item in node:
            _remove_titles_and_section_defaults(item)
    if not isinstance(node, dict):
        return
    # A property called title would be a mapping, not text.
    if isinstance(node.get("title"), str):
        del node["title"]
    if isinstance(node.get("default"), dict):
        del node["default"]
    for key, value in node.items():
        # Below ``properties``, keys are names of fields and not keywords of JSON Schema.
        if key != "properties":
            _remove_titles_and_section_defaults(value)
            continue
        for prop in value.values():
            _remove_titles_and_section_defaults(prop)


@cache
def all_fields() -> Mapping[str, FieldDoc]:
    """Return (spec path -> documentation) of all spec fields, parents before children.

    If training specs and serving specs have different fields at the same path, the result contains
    the training field.
    """
    return MappingProxyType({**serving_fields(), **training_fields()})


@cache
def training_fields() -> Mapping[str, FieldDoc]:
    """Return (spec path -> documentation) of all fields of a training spec."""
    return MappingProxyType({doc.path: doc for doc in _field_docs_below(Spec, "")})


@cache
def serving_fields() -> Mapping[str, FieldDoc]:
    """Return (spec path -> documentation) of all fields of a serving spec."""
    return MappingProxyType({doc.path: doc for doc in _field_docs_below(ServingSpec, "")})


@cache
def site_fields() -> Mapping[str, FieldDoc]:
    """Return (path -> documentation) of the fields of a site file, with paths below ``site``.

    Fields of the sections that a site file shares with a spec are left out.
    """
    shared = tuple(f"site.{name}." for name in ("cluster", "launch"))
    found = {doc.path: doc for doc in _field_docs_below(SiteSpec, "site")}
    return MappingProxyType(
        {path: doc for path, doc in found.items() if not path.startswith(shared)}
    )


def _field_docs_below(model: type[BaseModel], above: str) -> Iterator[FieldDoc]:
    for name, info in model.model_fields.items():
        path = f"{above}.{name}" if above else name
        annotation = info.rebuild_annotation()
        yield FieldDoc(
            path=path,
            type=describe_expected(annotation),
            required=info.is_required(),
            default=_json_default(info),
            description=docstrings_of_fields(model).get(name, ""),
        )
        inner, suffix = _model_of_field(annotation)
        if inner is not None:
            yield from _field_docs_below(inner, path + suffix)


def _json_default(info: FieldInfo) -> Any:
    if info.is_required():
        return None
    default = info.get_default(call_default_factory=True)
    if isinstance(default, BaseModel | dict):
        return None
    return list(default) if isinstance(default, tuple) else default


def _model_of_field(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """Return (pydantic model of a field, suffix of the field's spec path).

    The suffix is ``[]`` if the field is a list of this model, and otherwise empty. The model is
    None if the field has a plain value.
    """
    model = model_of(annotation)
    if model is not None:
        return model, ""
    for branch in union_members(annotation):
        for arg in getattr(branch, "__args__", ()):
            if isinstance(arg, type) and issubclass(arg, BaseModel):
                return arg, "[]"
    return None, ""


if __name__ == "__main__":
    sys.stdout.write(schema_text())
