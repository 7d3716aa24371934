"""Docstrings of the fields of spec models, read from the source code on demand.

pydantic could read them when it builds the models, but that would slow down the start of all
commands, and only the schema and ``parc explain`` need them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from textwrap import dedent

from pydantic import BaseModel


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
