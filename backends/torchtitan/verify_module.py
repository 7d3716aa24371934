"""Reader of ``torchtitan/parc_titan.py``: its settings, and its code without the settings.

The module is parsed, never executed. Its settings are the keywords of the calls ``SIZES = dict()``,
``ROPE = dict()`` and ``Trainer.Config()``, and the model that the function ``run`` uses. All other
code is the same in every module that PARC emits, up to four variants.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parc.compiler.verify.emitted_settings import EmittedSettings
from parc.compiler.verify.program_code import parse_program
from parc.compiler.verify.read_emitted import MalformedFileError

MODULE = "torchtitan/parc_titan.py"
STAGES = "parallelism.module_fqns_per_model_part"
"""Setting with the modules of each pipeline stage."""
CALLED = "called"
"""Name of the setting that contains the function or class of a call."""
_TABLES = {"SIZES": "model", "ROPE": "rope"}
"""Variable of the module -> section of the settings."""
_REGISTRY = "model_registry"
_MODELS = "torchtitan.models."


@dataclass(frozen=True, slots=True)
class CodeExpression:
    """Value that is an expression, not a literal."""

    source: str

    def __repr__(self) -> str:
        """Return the Python source of the expression, as findings show it."""
        return self.source


@dataclass(frozen=True, slots=True)
class TitanModule:
    """Content of the emitted module."""

    settings: EmittedSettings
    code: ast.Module
    """The module with None in the place of each setting."""

    @property
    def variant(self) -> str:
        """Name of the code that a module with these settings must have.

        The code depends on whether the model is registered and whether there are pipeline stages.
        """
        registered = f"spec.{CALLED}" in self.settings and "spec.flavor" in self.settings
        kind = "registry" if registered else "sizes"
        return f"{MODULE} {kind}{' stages' if STAGES in self.settings else ''}"


def read_module(text: str) -> TitanModule:
    """Return the content of the emitted module: its settings, and its code without the settings.

    Raises:
        MalformedFileError: the text is not a Python module with a function run that returns a call.
    """
    module = parse_program(MODULE, text)
    lines: dict[str, int] = {}
    try:
        tree = dict(_take_settings(module, lines))
    except (RecursionError, MemoryError):
        raise MalformedFileError(MODULE, 1, "the code is nested too deeply") from None
    if "config" not in tree:
        raise MalformedFileError(MODULE, 1, "no function run returns a Trainer.Config")
    config = tree.pop("config")
    tree |= config if isinstance(config, dict) else {"config": config}
    return TitanModule(EmittedSettings(MODULE, tree, lines), module)


def _take_settings(module: ast.Module, lines: dict[str, int]) -> Iterator[tuple[str, Any]]:
    """Yield (section, settings of this section), and replace these settings in ``module`` by None.

    The line of each setting is stored in ``lines``.
    """
    for node in module.body:
        name = _assigned_name(node)
        if name in _TABLES and isinstance(node, ast.Assign):
            yield _TABLES[name], _parse_setting(node.value, _TABLES[name], lines)
            node.value = _ast_of_none()
        elif isinstance(node, ast.ImportFrom) and _imports_registry(node):
            lines["registry"] = node.lineno
            yield "registry", (node.module or "").removeprefix(_MODELS)
            node.module = _MODELS
        elif isinstance(node, ast.FunctionDef) and node.name == "run":
            yield from _take_run_settings(node, lines)


def _take_run_settings(
    function: ast.FunctionDef, lines: dict[str, int]
) -> Iterator[tuple[str, Any]]:
    for node in function.body:
        if isinstance(node, ast.Assign) and _assigned_name(node) == "spec":
            lines["spec"] = node.lineno
            yield "spec", _model_and_flavor(node.value)
            node.value = _ast_of_none()
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            # A keyword that is also a section would hide it, but Trainer.Config has none.
            yield "config", _parse_setting(node.value, "", lines)
            node.value = _ast_of_none()


def _model_and_flavor(node: ast.expr) -> dict[str, Any]:
    """Return the name of the function that provides the model, and its argument, as settings.

    The argument is the name of the model in torchtitan's registry; models built from sizes have
    none.
    """
    if isinstance(node, ast.Call) and not node.keywords:
        called = {CALLED: CodeExpression(ast.unparse(node.func))}
        if len(node.args) == 1:
            return called | {"flavor": _parse_literal(node.args[0])}
        if not node.args:
            return called
    return {CALLED: CodeExpression(ast.unparse(node))}


def _parse_setting(node: ast.expr, path: str, lines: dict[str, int]) -> Any:
    """Return the value of the expression ``node``.

    A literal has its own value. A call becomes a mapping of its function and its arguments. Any
    other expression is returned as its source code. The line of each setting is stored in
    ``lines``.
    """
    lines.setdefault(path, node.lineno)
    if not isinstance(node, ast.Call) or ast.unparse(node) == "float('inf')":
        return _parse_literal(node)
    names = [word.arg for word in node.keywords]
    if None in names or len(set(names)) != len(names):
        return CodeExpression(ast.unparse(node))
    found: dict[str, Any] = {CALLED: CodeExpression(ast.unparse(node.func))}
    for number, argument in enumerate(node.args):
        found[str(number)] = _parse_literal(argument)
    for word in node.keywords:
        place = f"{path}.{word.arg}".lstrip(".")
        lines[place] = word.value.lineno
        found[str(word.arg)] = _parse_setting(word.value, place, lines)
    return found


def _parse_literal(node: ast.expr) -> Any:
    if ast.unparse(node) == "float('inf')":
        return float("inf")
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return CodeExpression(ast.unparse(node))
    # A display such as {"a": 1} would be flattened like a section.
    return CodeExpression(ast.unparse(node)) if isinstance(value, dict | set) else value


def _assigned_name(node: ast.stmt) -> str:
    targets = node.targets if isinstance(node, ast.Assign) else []
    one = targets[0] if len(targets) == 1 else None
    return one.id if isinstance(one, ast.Name) else ""


def _imports_registry(node: ast.ImportFrom) -> bool:
    return [one.name for one in node.names] == [_REGISTRY]


def _ast_of_none() -> ast.expr:
    return ast.Constant(value=None, lineno=1, col_offset=0)
