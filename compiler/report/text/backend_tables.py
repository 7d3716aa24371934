"""Tables of ``parc backends``: the list of backends, and the strategies of each target.

The list also reports defects of installed plugins. The second table shows how each framework and
engine expresses each parallelism strategy.

``python -m parc.compiler.report.text.backend_tables docs/strategies.md`` rewrites the table on that
page.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from parc.backends.built_in import BUILT_IN
from parc.backends.declaration import Declaration
from parc.backends.plugins import shadowed_plugins
from parc.backends.registry import (
    all_backend_names,
    backend_has_role,
    built_in_backends,
    engine,
    find_backend_declaration,
    framework,
    installed_backends,
    supported_versions,
    wrapped_framework,
)
from parc.backends.shared.strategies import STRATEGIES
from parc.compiler.check_plugins import check_engine_members, check_plugins, check_tables
from parc.compiler.diagnostics import Sink
from parc.compiler.plugin_errors import ReportPluginErrors, plugins_among
from parc.compiler.report.formatting import table


def backend_records(sink: Sink) -> list[dict[str, Any]]:
    """Return one record per usable backend: its name, description, versions and job types.

    Records are sorted by name. A plugin that cannot be used is reported (X23).
    """
    records = []
    for name in all_backend_names():
        found = find_backend_declaration(name)
        if isinstance(found, Declaration):
            records.append(_backend_record(found))
            if plugins_among((name,)):
                _check_plugin(found, sink)
        elif found is not None:
            sink.report("X23", found.finding())
    # A plugin with the name of a built-in backend is never loaded, so all_backend_names() lists the
    # built-in one.
    for problem in shadowed_plugins(tuple(one.name for one in BUILT_IN)):
        sink.report("X23", problem.finding())
    return records


def backend_text(sink: Sink) -> str:
    """Return the table of backends for a terminal. Report plugins that cannot be used (X23)."""
    rows = [
        (
            one["name"],
            ", ".join(one["versions"]),
            one["default_version"],
            ", ".join(one["jobs"]),
            one["about"],
        )
        for one in backend_records(sink)
    ]
    return table(("name", "versions", "default", "jobs", "emits"), rows, left=5)


def _check_plugin(declared: Declaration, sink: Sink) -> None:
    """Report the defects of a plugin that show without a spec (X23, V32, V33)."""
    with ReportPluginErrors(sink, (declared.name,)):
        check_tables(declared.name, sink)
        if check_plugins((declared.name,), sink) and declared.is_engine:
            check_engine_members(declared.name, sink)


def _backend_record(declaration: Declaration) -> dict[str, Any]:
    versions, default = supported_versions(declaration.name)
    about = (import_module(declaration.package).__doc__ or "").strip().partition(": ")[2]
    return {
        "name": declaration.name,
        "about": about,
        "versions": list(versions),
        "default_version": default,
        "framework": declaration.binds_layout,
        "jobs": [kind for kind in ("train", "serve") if backend_has_role(declaration, kind)],
    }


BEGIN = "<!-- strategies: made by make docs -->"
END = "<!-- end of strategies -->"
CODE_WORD = re.compile(
    r"(?<!\S)(?:--[\w-]+|\w*(?:_|[a-z]\.?[A-Z])[\w.*]*(?:\([^)]*\))?|\w+\.\w[\w.]*)"
)
"""Matches a flag, a name with an underscore or a capital inside, or a dotted name."""


def strategies_by_target(plugins: bool = False) -> dict[str, dict[str, str]]:
    """Return target -> strategy -> the setting that expresses the strategy in that target.

    A target is a framework, an engine, or a launcher together with the framework that it starts,
    such as accelerate with deepspeed. Strategies that a target does not support are omitted. If
    ``plugins`` is True, targets of installed plugins are included. The table in docs/strategies.md
    does not include them, because its text must be the same everywhere.
    """
    declared = installed_backends if plugins else built_in_backends
    frameworks = declared("framework")
    pairs = (
        (one.name, wrapped.framework) for one in frameworks for wrapped in one.wrapped_frameworks
    )
    targets = [framework(one.name) for one in frameworks]
    targets += [wrapped_framework(*pair) for pair in pairs]
    found = {target.name: dict(target.strategies) for target in targets}
    return found | {one.name: dict(engine(one.name).strategies) for one in declared("engine")}


def strategy_matrix_text() -> str:
    """Return the table of strategies and targets for a terminal.

    Each strategy has one row; ``yes`` means that the target supports it.
    """
    columns = strategies_by_target(plugins=True)
    rows = [
        (one.title, *("yes" if one.name in columns[name] else "-" for name in columns))
        for one in STRATEGIES
    ]
    return table(("strategy", *columns), rows, left=1 + len(columns))


def strategy_matrix_markdown() -> str:
    """Return the table of strategies and targets for docs/strategies.md.

    Each strategy has one row with the setting that each target uses.
    """
    columns = strategies_by_target()
    head = ["strategy", *columns]
    rows = [
        [one.title, *(_markdown_cell(columns[name].get(one.name)) for name in columns)]
        for one in STRATEGIES
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _markdown_cell(setting: str | None) -> str:
    """Return a table cell: flags and keys as code, other words as text, empty for None."""
    if setting is None:
        return ""
    if " " not in setting or (setting.startswith("-") and not re.search("[,;]", setting)):
        return f"`{setting}`"
    return CODE_WORD.sub(r"`\g<0>`", setting)


def replace_strategy_matrix(text: str) -> str:
    """Return ``text`` with the table between BEGIN and END replaced by the current one.

    Raise ValueError if ``text`` does not contain both markers.
    """
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"the text does not contain the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{strategy_matrix_markdown()}{END}{after}"


def main() -> None:
    """Rewrite the table of strategies in the file that the command line names."""
    path = Path(sys.argv[1])
    # newline="\n" keeps the file identical on Windows.
    path.write_text(
        replace_strategy_matrix(path.read_text("utf-8")), encoding="utf-8", newline="\n"
    )


if __name__ == "__main__":
    main()
