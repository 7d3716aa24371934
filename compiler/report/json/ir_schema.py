"""JSON Schema of the nouns: types from annotations, descriptions from the docstrings under them."""

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


def noun_schema(noun: type, definitions: Schema) -> Schema:
    """The schema of what ``as_json`` makes of an instance of the dataclass ``noun``.

    Nouns inside are references; ``definitions`` gets the schema of each, by class name.
    """
    hints, described = get_type_hints(noun), _descriptions(noun)
    properties = {}
    for name in field_names(noun):
        properties[name] = type_schema(hints[name], definitions)
        if name in described:
            properties[name]["description"] = described[name]
    title = (inspect.getdoc(noun) or "").split("\n\n")[0].replace("\n", " ")
    return closed(properties, title)


def closed(properties: Schema, description: str = "") -> Schema:
    """An object that has exactly ``properties``."""
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }
    return {**schema, "description": description} if description else schema


def type_schema(hint: Any, definitions: Schema) -> Schema:
    """The schema of one annotation."""
    if hint in PLAIN:
        return dict(PLAIN[hint])
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = noun_schema(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return {"anyOf": [type_schema(choice, definitions) for choice in arguments]}
    if origin is tuple:
        return _tuple(arguments, definitions)
    raise TypeError(f"no schema for {hint!r}")


def _tuple(arguments: tuple[Any, ...], definitions: Schema) -> Schema:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"type": "array", "items": type_schema(arguments[0], definitions)}
    return {
        "type": "array",
        "prefixItems": [type_schema(one, definitions) for one in arguments],
        "items": False,
        "minItems": len(arguments),
    }


@cache
def _descriptions(noun: type) -> dict[str, str]:
    """Field -> the string literal under it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(noun))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for above, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name):
            text = _string(below)
            if text is not None:
                found[above.target.id] = " ".join(text.split())
    return found


def _string(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else None
    return None
