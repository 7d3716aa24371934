"""Names of the frameworks that support a setting which the framework of a spec rejects.

The names follow from the rules of the installed frameworks, so that no text has to list them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from parc.backends.base import Framework
from parc.backends.plugin_error import PluginError
from parc.backends.registry import (
    backend_declaration,
    fields_without_effect,
    framework,
    installed_backends,
    supported_versions,
)
from parc.backends.shared.strategies import strategy_rules
from parc.backends.spec_fields import uses_spec_field
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem

_EMIT = re.compile(r"emit: \[([\w, -]+)\]")
"""Matches a fix that sets ``emit``; the group is the list of targets."""
UNSUPPORTED = ("E08", "E11")
"""Codes of findings on settings that a framework does not support but another one may."""


def name_other_frameworks(
    finding: Finding, at: tuple[str, str], problem: Problem, layout: Layout
) -> Finding:
    """Return ``finding`` whose help also names the frameworks that support the rejected setting.

    A fix that sets ``emit`` to another framework keeps the other targets of the spec. ``at`` is
    (code, spec path) of the finding.
    """
    code, path = at
    if found := _EMIT.fullmatch(finding.fix):
        finding = replace(finding, fix=_with_other_targets(found[1].split(", "), problem.emit))
    names = tuple(_supporting(problem, layout, path)) if code in UNSUPPORTED else ()
    return with_frameworks_in_help(finding, names)


def with_frameworks_in_help(finding: Finding, names: Sequence[str]) -> Finding:
    """Return ``finding`` whose help also names the frameworks ``names``, if there are any."""
    if not names:
        return finding
    text = f"frameworks that support this: {', '.join(names)}"
    return replace(finding, help=f"{finding.help}; {text}" if finding.help else text)


def _with_other_targets(names: Sequence[str], emit: Sequence[str]) -> str:
    """Return the edit that sets ``emit`` to ``names`` and to the targets that are not frameworks.

    A launcher in ``names`` is left out if ``emit`` has one already.
    """
    kept = [name for name in emit if not backend_declaration(name).is_framework]
    if any(backend_declaration(name).needs_framework for name in kept):
        names = [name for name in names if not backend_declaration(name).needs_framework]
    return f"emit: [{', '.join(sorted({*names, *kept}))}]"


def _supporting(problem: Problem, layout: Layout, path: str) -> Iterator[str]:
    """Yield the other installed frameworks that accept the value of the spec field ``path``."""
    accepts = _accepts_stages if path in ("layout.pp", "layout.vpp") else _accepts_field(path)

    def supports(found: Framework, moved: Problem) -> bool:
        name = found.name
        used = path not in fields_without_effect(name) and _is_declared(name, path)
        return used and accepts(found, moved, layout)

    return frameworks_that(supports, problem)


def frameworks_that(
    supports: Callable[[Framework, Problem], bool], problem: Problem
) -> Iterator[str]:
    """Yield the other installed frameworks for which ``supports`` returns True.

    Its arguments are the framework, and ``problem`` moved to the framework's default version.
    """
    for name in (one.name for one in installed_backends("framework")):
        if name == problem.framework:
            continue
        version = supported_versions(name)[1]
        versions = tuple(sorted({**dict(problem.versions), name: version}.items()))
        try:
            if supports(framework(name), replace(problem, framework=name, versions=versions)):
                yield name
        except PluginError:
            continue  # a plugin that the spec does not name must not hide the finding


def _is_declared(name: str, path: str) -> bool:
    """Return True if the framework ``name`` uses the spec field ``path``, as far as is known."""
    return not path.startswith(("job.", "model.")) or uses_spec_field(name, path)


def _accepts_stages(found: Framework, problem: Problem, layout: Layout) -> bool:
    return found.find_split(problem, layout.pp, layout.vpp) is not None


def _accepts_field(path: str) -> Callable[[Framework, Problem, Layout], bool]:
    def accepts(found: Framework, problem: Problem, layout: Layout) -> bool:
        rules = (*strategy_rules(found.name, found.strategies), *found.rules(problem))
        at_path = (one for one in rules if one.code in UNSUPPORTED and path in one.fields)
        return not any(rule.broken(problem, layout) for rule in at_path)

    return accepts
