"""Distributions with backend plugins, written to a folder of ``sys.path`` by a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent

import pytest

from parc.backends import plugins

LAUNCHER = '''\
"""A launcher for training jobs."""

from parc.backends.declaration import Declaration
from parc.compiler.ir import Artifact

NAME = "{name}"


class Launcher:
    name = NAME
    versions = ("1", "2")

    def check(self, plan, sink):
        pass

    def emit(self, plan):
        return (Artifact(f"{{NAME}}/run.txt", f"{{plan.placement.dense.world}} ranks\\n"),)


BACKEND = Launcher()
DECLARATION = Declaration(name=NAME, package=__name__, training=__name__)
'''
"""Module of a working launcher; its docstring has no colon, so that it has no description."""


def write_distribution(folder: Path, name: str, code: str, *, dist: str = "") -> None:
    """Write a module with ``code`` and the metadata that registers its ``DECLARATION``."""
    dist = dist or f"parc-{name}"
    module = dist.replace("-", "_")
    (folder / f"{module}.py").write_text(code.format(name=name), encoding="utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    entry = f"[{plugins.GROUP}]\n{name} = {module}:DECLARATION\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")


@contextmanager
def scanned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put ``folder`` on ``sys.path``; afterwards forget its modules and the plugins found."""
    monkeypatch.syspath_prepend(str(folder))
    forget_plugins()
    yield
    monkeypatch.undo()
    forget_plugins()
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
            del sys.modules[name]


def forget_plugins() -> None:
    """Scan the installed distributions again on the next look-up."""
    plugins.plugin_entry_points.cache_clear()
    plugins.load_plugin.cache_clear()


DELEGATE = '''\
"""@NAME@: behaves like @BASE@, with the members below."""

from dataclasses import replace

from parc.backends import registry
from parc.backends.declaration import Declaration
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Artifact, GroupFamily, KernelStack, Mesh
from parc.compiler.ir.gpu_generation import Efficiency
from parc.compiler.ir.rule import Rule

NAME, FILE = "@NAME@", "@NAME@/settings.txt"
BASE = registry.@ROLE@("@BASE@")


class Backend:
    name = NAME
    host_script = FILE

    def emit(self, plan):
        return (Artifact(FILE, "tp\\n"),)

    def emit_serving(self, plan):
        return (Artifact(FILE, "tp\\n"),)

    def constants(self):
        return replace(BASE.constants(), name=NAME)

    def __getattr__(self, name):
        return getattr(BASE, name)
@MEMBERS@

BACKEND = Backend()
DECLARATION = Declaration(
    name=NAME, package=__name__, @MODULE@=__name__, binds_layout=True,
    spec_fields=("job", "layout", "model")@DECLARED@
)
'''
"""Module of a framework or engine that passes most members to a built-in one."""


def delegating_module(
    base: str, members: str = "", *, declared: str = "", serves: bool = False
) -> str:
    """Return the module of a backend that behaves like ``base``, for ``write_distribution``.

    ``members`` is code of further members, and ``declared`` further arguments of the declaration.
    """
    code = DELEGATE.replace("@ROLE@", "engine" if serves else "framework")
    code = code.replace("@MODULE@", "serving" if serves else "training")
    code = code.replace("@BASE@", base).replace("@DECLARED@", declared and f", {declared}")
    code = code.replace("@MEMBERS@", indent(members, "    "))
    return code.replace("{", "{{").replace("}", "}}").replace("@NAME@", "{name}")
