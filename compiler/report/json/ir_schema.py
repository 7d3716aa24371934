"""JSON Schemas of IR types, generated from type annotations and field docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from parc.compiler.ir.serialize import field_names

Schema = dict[str, Any]

PLAIN: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    NoneType: {"type": "null"},
}


def dataclass_schema(ir_type: type, definitions: Schema) -> Schema:
    """Return the JSON Schema of ``as_json(instance)`` for instances of the dataclass ``ir_type``.

    A field whose type is a dataclass becomes a reference; the schema of that dataclass is added to
    ``definitions`` under its class name.
    """
    hints, described = get_type_hints(ir_type), _field_descriptions(ir_type)
    properties = {}
    for name in field_names(ir_type):
        properties[name] = type_schema(hints[name], definitions)
        if name in described:
            properties[name]["description"] = described[name]
    title = (inspect.getdoc(ir_type) or "").split("\n\n")[0].replace("\n", " ")
    return closed_object(properties, title)


def closed_object(properties: Schema, description: str = "") -> Schema:
    """Return the JSON Schema of an object that has exactly ``properties``, all of them required."""
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }
    return {**schema, "description": description} if description else schema


def type_schema(hint: Any, definitions: Schema) -> Schema:
    """Return the JSON Schema of values with the type annotation ``hint``."""
    if hint in PLAIN:
        return dict(PLAIN[hint])
    if is_dataclass(hint) and isinstance(hint, type):
        # Each class is defined once and referenced, which keeps the schema small.
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = dataclass_schema(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return {"anyOf": [type_schema(choice, definitions) for choice in arguments]}
    if origin is tuple:
        return _tuple_schema(arguments, definitions)
    raise TypeError(f"the type annotation {hint!r} has no JSON Schema")


def _tuple_schema(arguments: tuple[Any, ...], definitions: Schema) -> Schema:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"type": "array", "items": type_schema(arguments[0], definitions)}
    return {
        "type": "array",
        "prefixItems": [type_schema(one, definitions) for one in arguments],
        "items": False,
        "minItems": len(arguments),
    }


@cache
def _field_descriptions(ir_type: type) -> dict[str, str]:
    """Return field name -> docstring, for the fields of a dataclass that have one."""
    # Attribute docstrings exist only in the source; Python does not keep them.
    tree = ast.parse(textwrap.dedent(inspect.getsource(ir_type))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for above, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name):
            text = _string_literal(below)
            if text is not None:
                found[above.target.id] = " ".join(text.split())
    return found


def _string_literal(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else None
    return None
