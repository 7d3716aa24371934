"""Names of the frameworks that support a setting which the framework of a spec rejects.

The names follow from the rules of the installed frameworks, so that no text has to list them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from parc.backends.base import Framework
from parc.backends.registry import (
    fields_without_effect,
    framework,
    installed_backends,
    supported_versions,
)
from parc.backends.shared.strategies import strategy_rules
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem

UNSUPPORTED = ("E08", "E11")
"""Codes of findings on settings that a framework does not support but another one may."""


def name_other_frameworks(
    finding: Finding, at: tuple[str, str], problem: Problem, layout: Layout
) -> Finding:
    """Return ``finding`` whose help also names the frameworks that support the rejected setting.

    ``at`` is (code, spec path) of the finding. Other findings are returned as they are.
    """
    code, path = at
    names = tuple(_supporting(problem, layout, path)) if code in UNSUPPORTED else ()
    if not names:
        return finding
    text = f"frameworks that support this: {', '.join(names)}"
    return replace(finding, help=f"{finding.help}; {text}" if finding.help else text)


def _supporting(problem: Problem, layout: Layout, path: str) -> Iterator[str]:
    """Yield the other installed frameworks that accept the value of the spec field ``path``."""
    accepts = _accepts_stages if path in ("layout.pp", "layout.vpp") else _accepts_field(path)
    for name in (one.name for one in installed_backends("framework")):
        version = supported_versions(name)[1]
        versions = tuple(sorted({**dict(problem.versions), name: version}.items()))
        moved = replace(problem, framework=name, versions=versions)
        is_other = name != problem.framework and path not in fields_without_effect(name)
        if is_other and accepts(framework(name), moved, layout):
            yield name


def _accepts_stages(found: Framework, problem: Problem, layout: Layout) -> bool:
    return found.find_split(problem, layout.pp, layout.vpp) is not None


def _accepts_field(path: str) -> Callable[[Framework, Problem, Layout], bool]:
    def accepts(found: Framework, problem: Problem, layout: Layout) -> bool:
        rules = (*strategy_rules(found.name, found.strategies), *found.rules(problem))
        at_path = (one for one in rules if one.code in UNSUPPORTED and path in one.fields)
        return not any(rule.broken(problem, layout) for rule in at_path)

    return accepts
