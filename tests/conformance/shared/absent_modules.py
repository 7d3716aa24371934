"""Empty modules in place of those that a tool imports but never uses while it reads its config.

Runs under the Python of a tool; imports neither PARC nor pytest.
"""

from __future__ import annotations

import sys
import types
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any


class AbsentModules(MetaPathFinder, Loader):
    """Import hook that finds any module of the given packages; every name in such a module is a
    class that does nothing.
    """

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = packages

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        ours = any(name == p or name.startswith(p + ".") for p in self._packages)
        return ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        vars(module)["__getattr__"] = any_name
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def any_name(name: str) -> Any:
    """Return an empty class for an attribute of a module. Names with leading underscores raise
    AttributeError, because Python's import system looks them up itself.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {"__init__": lambda *_, **__: None})


def install_absent_modules(*packages: str) -> None:
    """Make imports from these packages succeed."""
    sys.meta_path.insert(0, AbsentModules(packages))
