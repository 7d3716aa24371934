"""Comparison of a launch file that PARC did not write with the files of an output folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from parc.compiler.ir.frozen import frozen
from parc.compiler.report.diff.plan_fields import FieldChange
from parc.compiler.report.diff.text import DiffSection, setting_changes_section
from parc.compiler.tools.importers.flags import is_equal_value
from parc.compiler.tools.importers.formats import FrameworkSettings, importers_by_backend
from parc.compiler.tools.importers.import_files import import_formats
from parc.compiler.tools.importers.launch_commands import srun_flags
from parc.compiler.tools.importers.script_commands import (
    exported_variables,
    is_script_from_parc,
    starts_program,
    unlaunched_commands,
)
from parc.compiler.tools.importers.setup_commands import SET_BY_LAUNCHERS, is_inherited_assignment
from parc.compiler.tools.importers.shell_words import shell_words
from parc.compiler.tools.lint.launch_lines import directive_options
from parc.compiler.tools.lint.script import read_script
from parc.compiler.topology.readers.registry import detect_format

_SPEC = re.compile(r"""^["']?parc["']?[ \t]*:|^[ \t]*\{[\s\S]{0,2000}?"parc"[ \t]*:""", re.M)
_LONG = {
    **{"-p": "--partition", "-A": "--account", "-q": "--qos", "-t": "--time", "-J": "--job-name"},
    **{"-w": "--nodelist", "-x": "--exclude", "-C": "--constraint", "-o": "--output"},
    **{"-e": "--error"},
}
_INHERITED = re.compile(r'^for name in ([^\n;]+); do\n +export "\$\{name\?\}"$', re.M)
"""Matches the loop of a launch script over the variables that it takes from its environment."""
_LAUNCH_FILES = (".sh", ".sbatch", ".json", ".yaml")
"""Endings of emitted files that a launch uses."""


@frozen
class LaunchDiff:
    """Differences between a launch file and an output, from the point of view of the file."""

    old: str
    new: str
    framework: str
    """Framework whose settings are compared; empty if the file starts none that PARC knows."""
    arguments: tuple[FieldChange, ...]
    environment: tuple[FieldChange, ...]
    directives: tuple[FieldChange, ...]
    commands: tuple[str, ...]
    """Commands of the launch file that the output does not run, with their lines."""

    @property
    def has_changes(self) -> bool:
        """True if the launch file and the output folder differ in any setting or command."""
        return any((self.arguments, self.environment, self.directives, self.commands))

    def sections(self) -> tuple[DiffSection, ...]:
        """Return the sections for the text and Markdown output."""
        found = (
            setting_changes_section("launch arguments", self.arguments),
            setting_changes_section("environment", self.environment),
            setting_changes_section("Slurm directives and container", self.directives),
            DiffSection("commands that the output does not run", notes=self.commands),
        )
        return tuple(section for section in found if section.rows or section.notes)

    def headline(self) -> str:
        """Return a one-line summary with the number of differences."""
        if not self.has_changes:
            return "no changes"
        counts = {
            "launch argument": len(self.arguments),
            "variable": len(self.environment),
            "directive": len(self.directives),
            "command": len(self.commands),
        }
        parts = (f"{n} {what}{'s' * (n > 1)}" for what, n in counts.items() if n)
        return f"the output differs in {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """Return the diff as JSON types."""
        rows = {
            name: [{"name": one.name, "old": one.old, "new": one.new} for one in changes]
            for name, changes in (
                ("arguments", self.arguments),
                ("environment", self.environment),
                ("directives", self.directives),
            )
        }
        head = {"format": 1, "changed": self.has_changes, "old": self.old, "new": self.new}
        return {**head, "framework": self.framework, **rows, "commands": list(self.commands)}


def is_launch(text: str) -> bool:
    """Return True if ``text`` is a launch script or a configuration file of a framework."""
    if _SPEC.search(text):
        return False
    kind = detect_format(text, import_formats())
    kinds = {
        name for one in importers_by_backend() if one.settings is not None for name in one.formats
    }
    return kind in kinds | {"sbatch"} or text.startswith("#!")


def diff_launch(old: str, text: str, new: str, files: Mapping[str, str]) -> LaunchDiff:
    """Return the differences between a launch file and an output folder.

    Args:
        old: name of the launch file.
        text: content of the launch file.
        new: name of the output folder.
        files: text of each file in the output folder, by path.
    """
    found = next(_settings_of_frameworks(text, old), None)
    name, settings, theirs = found if found is not None else ("", None, {})
    ours: dict[str, str] = {}
    files = {path: one for path, one in files.items() if _is_launch_file(path)}
    for path, content in files.items():
        for _, _, values in _settings_of_frameworks(content, path, only=name):
            ours |= values
    scripts = {
        path: content for path, content in files.items() if content.startswith("#!/bin/bash")
    }
    # A file of arguments only, or a config, does not set the environment.
    runs = starts_program(shell_words(text, old)) and not is_script_from_parc(text)
    whole = runs and not text.lstrip().startswith("{")
    launched = _exported_environment(text, old)
    emitted = {
        key: value
        for path in scripts
        for key, value in _exported_environment(scripts[path], path).items()
    }
    for script in scripts.values():
        for names in _INHERITED.findall(script):
            emitted |= {name: f"${name}" for name in names.split()}
    requested = _sbatch_directives(text, old)
    written = {
        key: value
        for path in scripts
        for key, value in _sbatch_directives(scripts[path], path).items()
    }
    lines = {line for script in scripts.values() for line in script.split("\n")}
    defaults = settings.defaults if settings is not None else {}
    return LaunchDiff(
        old=old,
        new=new,
        framework=name,
        arguments=tuple(_changed_settings(theirs, ours, defaults)) if settings is not None else (),
        environment=tuple(_changed_settings(launched, emitted, {})) if whole else (),
        # A file without directives, such as a script or a config, requests nothing.
        directives=tuple(_changed_settings(requested, written, {})) if requested else (),
        commands=tuple(
            f"line {line}: {command}" for line, command in unlaunched_commands(text, old, lines)
        ),
    )


def _is_launch_file(path: str) -> bool:
    # Files at the top level are reports and tables.
    return "/" in path and path.endswith(_LAUNCH_FILES)


def _settings_of_frameworks(
    text: str, name: str, only: str | None = None
) -> Iterator[tuple[str, FrameworkSettings, Mapping[str, str]]]:
    """Yield (framework, settings table, values) for each framework that ``text`` configures.

    With ``only``, other frameworks are left out.
    """
    for one in importers_by_backend():
        if one.settings is None or only not in (None, one.settings.framework):
            continue
        values = one.settings.read(text, name)
        if values:
            yield one.settings.framework, one.settings, values


def _changed_settings(
    old: Mapping[str, str], new: Mapping[str, str], defaults: Mapping[str, str]
) -> Iterator[FieldChange]:
    """Yield the settings that differ between ``old`` and ``new``.

    A setting that is absent on one side has its value in ``defaults``.
    """
    for name in sorted(old.keys() | new.keys()):
        default = defaults.get(name)
        before, after = old.get(name, default), new.get(name, default)
        if before is not None and after is not None and is_equal_value(before, after):
            continue
        shown = (
            f"{default} (default)" if name not in side and default is not None else side.get(name)
            for side in (old, new)
        )
        yield FieldChange(name, *shown)


def _exported_environment(text: str, name: str) -> dict[str, str]:
    return {
        key: f"${key}" if is_inherited_assignment(word) else word.text.partition("=")[2]
        for key, word in exported_variables(shell_words(text, name), text).items()
        if not SET_BY_LAUNCHERS.fullmatch(key) and not re.search(r"\$[0-9]", word.text)
    }


def _sbatch_directives(text: str, name: str) -> dict[str, str]:
    """Return the values of the ``#SBATCH`` directives and of the container flags of srun."""
    script = read_script(text, name)
    found = {_LONG.get(one.name, one.name): one.value for one in directive_options(script)}
    gpus = re.fullmatch(r"gpu:(?:\S+:)?([0-9]+)", found.get("--gres", ""))
    if gpus is not None:  # the same request as --gpus-per-node
        del found["--gres"]
        found["--gpus-per-node"] = gpus[1]
    for flag in srun_flags(list(script.words)):
        if flag.name in ("--container-image", "--container-mounts") and flag.values:
            mounts = flag.values[0].text.split(",")
            # The batch script of PARC mounts the output folder in addition.
            found[flag.name] = ",".join(one for one in mounts if "PARC_DIR" not in one)
    return found
