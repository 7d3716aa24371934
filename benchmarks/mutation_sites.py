"""Places in Python source where one small edit changes the behavior, and the edits.

A site is an index into ``ast.walk`` of a module plus the name of an edit, so that the same source
always has the same sites. Texts are left out (docstrings, annotations, messages of findings and
exceptions), and edits that cannot change a result, such as ``max(b, a)`` for ``max(a, b)``.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

TEXT_FUNCTIONS = re.compile(r"__(repr|str)__|_?(explain|describe|suggest)_\w+|\w+_finding")
"""Names of functions that only build texts for people."""
TEXT_CALLS = {"Cause", "Diagnostic", "Finding", "TypeVar", "report", "warn", "debug", "info"}
SYMMETRIC = {"gcd", "isclose", "isinstance", "issubclass", "lcm", "max", "min"}
"""Functions whose arguments can be swapped, or whose swapped arguments fail at once."""
TEXT_KEYWORDS = {"encoding", "help", "label", "maxsize", "message", "strict", "title"}
"""Keyword arguments that change a text or a check of PARC itself, not a result."""
COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
KINDS = {
    "compare": "compare",
    "and/or": "boolean",
    "drop": "drop",
    "plus": "constant",
    "minus": "constant",
    "negative": "constant",
    "flip": "constant",
    "swap": "swap",
    "negate": "negate",
    "remove": "remove",
    "return": "return",
}
"""Kind by the first word of an edit; all other edits change an arithmetic operator."""
Edit = Callable[[Any], None]
"""Change of an AST node in place."""


@dataclass(frozen=True)
class Site:
    """Place in a file for one edit. ``function`` is "" for code that runs at import."""

    path: str
    index: int
    edit: str
    line: int
    function: str

    @property
    def kind(self) -> str:
        """Kind of the edit; a sample contains as many sites of each kind as possible."""
        first = self.edit.split()[0]
        return KINDS.get(first, "arithmetic")


@dataclass(frozen=True)
class Mutant:
    """A site, the texts of its node before and after the edit, and the tree with the edit."""

    site: Site
    before: str
    after: str
    tree: ast.Module


def sites_of(path: Path, name: str) -> list[Site]:
    """Return the sites of the file ``path`` in source order, with ``name`` as their path."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    index = {id(node): number for number, node in enumerate(ast.walk(tree))}
    unordered = {
        id(side)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn)
        for side in node.comparators
    }
    sites = []
    line = 1
    for node, function in _behavior(tree, ""):
        line = getattr(node, "lineno", line)  # a comprehension has no line: that of its neighbor
        for edit in edits_of(node):
            type_union = edit == "bitor" and not function
            if not type_union and not (id(node) in unordered and edit.startswith("swap")):
                sites.append(Site(name, index[id(node)], edit, line, function))
    return sorted(sites, key=lambda site: (site.line, site.index, site.edit))


def mutate(source: str, site: Site) -> Mutant:
    """Return the mutant of ``source`` at ``site``."""
    tree = ast.parse(source)
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == site.index)
    before = ast.unparse(node)
    edits_of(node)[site.edit](node)
    ast.fix_missing_locations(tree)
    return Mutant(site, before, ast.unparse(node), tree)


def _behavior(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes below ``node`` that are not text, each with its innermost function."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "format_spec", "type_params"):
            continue
        inside = function
        if field == "body" and isinstance(node, ast.FunctionDef | ast.Lambda):
            inside = f"{function}.{getattr(node, 'name', '<lambda>')}".lstrip(".")
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_text(child):
                yield child, inside
                yield from _behavior(child, inside)


def _is_text(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Raise() | ast.Assert():
            return True
        case ast.FunctionDef(name=name):
            return bool(TEXT_FUNCTIONS.fullmatch(name))
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in TEXT_CALLS
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
            return True
        case ast.Subscript(value=ast.Name(id="Literal")):
            return True
    return False


def edits_of(node: ast.AST) -> dict[str, Edit]:
    """Return the edits of one node by name."""
    return _edits_of_expression(node) if isinstance(node, ast.expr) else _edits_of_statement(node)


def _edits_of_expression(node: ast.expr) -> dict[str, Edit]:
    match node:
        case ast.Compare():
            return {f"compare {at}": partial(_swap_operator, at=at) for at in range(len(node.ops))}
        case ast.BoolOp():
            operands = range(len(node.values))
            drop = {f"drop operand {at}": partial(_drop_operand, at=at) for at in operands}
            return {"and/or": _swap_boolean, **drop}
        case ast.BinOp():
            return _arithmetic_edits(node.op, [node.left, node.right])
        case ast.Constant():
            return _constant_edits(node.value)
        case ast.Tuple() | ast.List():
            return _swap_edits("swap elements", "elts", node.elts)
        case ast.Call():
            return _call_edits(node)
        case ast.IfExp():
            return {"negate": _negate}
    return {}


def _edits_of_statement(node: ast.AST) -> dict[str, Edit]:
    match node:
        case ast.Return(value=ast.expr() as value):
            none = ast.unparse(value) in ("None", "False", "()", "[]")
            return {} if none else {"return empty": _return_empty}
        case ast.If() | ast.While():
            return {"negate": _negate}
        case ast.comprehension() if node.ifs:
            return {"negate": _negate_filter, "drop filter": _drop_filter}
        case ast.AugAssign():
            return {"remove": _remove, **_arithmetic_edits(node.op, [node.value])}
        case ast.Expr() | ast.Continue() | ast.Break() | ast.Delete():
            return {"remove": _remove}
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return {"remove": _remove}
    return {}


def _arithmetic_edits(operator: ast.operator, sides: list[ast.expr]) -> dict[str, Edit]:
    # A difference or product of texts or lists is an error in any test.
    for side in sides:
        match side:
            case ast.JoinedStr() | ast.Tuple() | ast.List() | ast.Constant(value=str()):
                return {}
    name = type(operator).__name__.lower()
    return {name: _swap_arithmetic} if type(operator) in ARITHMETIC else {}


def _constant_edits(value: object) -> dict[str, Edit]:
    if isinstance(value, bool):
        return {"flip": partial(_set_constant, new=not value)}
    if not isinstance(value, int | float):
        return {}
    new = {"plus 1": value + 1, "minus 1": value - 1}
    if value not in (0, 1):
        new["negative"] = -value
    return {name: partial(_set_constant, new=number) for name, number in new.items()}


def _call_edits(node: ast.Call) -> dict[str, Edit]:
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    edits: dict[str, Edit] = {}
    if name not in SYMMETRIC and not any(isinstance(arg, ast.Starred) for arg in node.args):
        edits = _swap_edits("swap arguments", "args", node.args)
    for at, keyword in enumerate(node.keywords):
        if keyword.arg and keyword.arg not in TEXT_KEYWORDS:
            edits[f"drop {keyword.arg}"] = partial(_drop_keyword, at=at)
    return edits


def _swap_edits(name: str, field: str, values: list[ast.expr]) -> dict[str, Edit]:
    return {
        f"{name} {at}": partial(_swap_neighbors, field=field, at=at)
        for at, (left, right) in enumerate(itertools.pairwise(values))
        if ast.dump(left) != ast.dump(right)
    }


def _swap_neighbors(node: ast.AST, field: str, at: int) -> None:
    items = getattr(node, field)
    items[at], items[at + 1] = items[at + 1], items[at]


def _set_constant(node: ast.Constant, new: float) -> None:
    node.value = new


def _drop_keyword(node: ast.Call, at: int) -> None:
    del node.keywords[at]


def _swap_operator(node: ast.Compare, at: int) -> None:
    node.ops[at] = COMPARE[type(node.ops[at])]()


def _swap_boolean(node: ast.BoolOp) -> None:
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()


def _drop_operand(node: ast.BoolOp, at: int) -> None:
    del node.values[at]
    if len(node.values) == 1:  # the compiler wants two; `a and a` is `a`
        node.values *= 2


def _swap_arithmetic(node: ast.BinOp | ast.AugAssign) -> None:
    node.op = ARITHMETIC[type(node.op)]()


def _return_empty(node: ast.Return) -> None:
    empty = isinstance(node.value, ast.Tuple | ast.List | ast.ListComp | ast.GeneratorExp)
    node.value = ast.Tuple([], ast.Load()) if empty else ast.Constant(None)


def _negate(node: ast.If | ast.IfExp | ast.While) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _negate_filter(node: ast.comprehension) -> None:
    node.ifs[0] = ast.UnaryOp(ast.Not(), node.ifs[0])


def _drop_filter(node: ast.comprehension) -> None:
    del node.ifs[0]


def _remove(node: ast.stmt) -> None:
    node.__class__ = ast.Pass
