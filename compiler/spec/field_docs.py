"""Docstrings of fields, read from the source when they are asked for.

pydantic can read them while it makes the models, which every command would pay for at its start;
only the schema and ``parc explain`` need them.
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
    """Field -> its docstring, inherited fields among them; those without one are left out."""
    docs: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            docs.update(_own(owner))
    return {name: docs[name] for name in model.model_fields if name in docs}


def _own(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """A string that follows an annotated name in the body of the class says what it is."""
    (body,) = ast.parse(dedent(getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    for pair in pairwise(body.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                yield name, cleandoc(text)
