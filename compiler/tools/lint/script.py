"""Launch scripts as ``parc lint`` reads them, and a sink for findings about their flags.

One script can describe several launches: it sets a variable twice, has a flag in a branch, or takes
arguments from another file. A flag is *sure* if its value is the same in every launch. A command
line is *open* if it may get more flags at run time. Values that are not sure, and flags that are
missing from an open command line, cause no findings.

``ScriptSink`` turns findings about a spec into findings about the flags of the script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from parc.compiler.diagnostics import Cause, Finding, Sink, Span, SpecPositions
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.exported_variables import ARRAY
from parc.compiler.tools.importers.flags import LaunchFlag, flags_in_statements
from parc.compiler.tools.importers.manifests import Manifest, read_manifest
from parc.compiler.tools.importers.script_branches import Branches
from parc.compiler.tools.importers.service_files import read_service_file
from parc.compiler.tools.importers.shell_words import (
    Word,
    shell_assignments,
    shell_words,
    split_quoted_flag,
)
from parc.compiler.tools.lint.script_variables import VARIABLE, ScriptVariables
from parc.compiler.tools.shell.code_blocks import keep_shell_blocks

_OF_THE_JOB = re.compile(r"\$\{(\w*(?:NODE|WORLD)\w*):?-")
"""Matches ``${NNODES:-4}`` and similar defaults, which users override when they submit a job."""
_PATH = re.compile(r"\$(?:\w+|\{\w+\})/")
"""Matches a path in a folder that is a variable: ``${DIR}/pretrain_gpt.py``."""
_EXPANSION = re.compile(r"\$\{?(\w+|[@*])")


_MANIFEST = re.compile(r"^[ \t]*(?:apiVersion|kind):\s", re.M)
"""Matches a key that every Kubernetes object has."""


@frozen(slots=False)  # without slots, so that facts about the whole script can be cached
class LintedScript:
    """Launch script as words, with the parts that only some runs execute."""

    name: str
    text: str
    words: tuple[Word, ...]
    branches: Branches
    """Parts of the script inside branches and loops."""
    arrays: frozenset[str]
    """Names of the arrays that the script assigns."""
    manifest: Manifest | None = None
    """Containers of a YAML file; ``text`` then contains only their commands."""

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Lines of the text."""
        return tuple(self.text.splitlines())

    @cached_property
    def has_srun(self) -> bool:
        """True if the script starts a command with srun."""
        return any(word.text == "srun" for word in self.words)

    @cached_property
    def is_manifest(self) -> bool:
        """True for a manifest of Kubernetes, whose operators set variables."""
        return self.manifest is not None or _MANIFEST.search(self.text) is not None

    @cached_property
    def _variables(self) -> ScriptVariables:
        return ScriptVariables(self.text)

    def may_be_overridden(self, value: Word) -> bool:
        """Return True if a user can set ``value`` when the script starts.

        Such a value comes from a variable with a default: ``N=${N:-8}``.
        """
        line = self.lines[value.span.line - 1][value.span.column - 1 :]
        return self._variables.may_be_set(VARIABLE.findall(re.split(r"\s", line, maxsplit=1)[0]))

    def with_one_command(self, start: Word, others: Collection[Word]) -> LintedScript:
        """Return the script without the commands that contain the words ``others``.

        The command of ``start`` then counts as executed in every run, because only its own runs
        matter; the values of its variables may still depend on branches.
        """
        left_out = {one.statement for one in others} - {start.statement}
        words = tuple(word for word in self.words if word.statement not in left_out)
        own = {word.span for word in words if word.statement == start.statement}
        return replace(self, words=words, branches=self.branches.without(own))

    def flags(self, known: Iterable[str]) -> list[LaunchFlag]:
        """Return all flags of each statement that contains a flag in ``known``."""
        return flags_in_statements(list(self.words), known)

    def sure_flags(self, flags: list[LaunchFlag]) -> list[LaunchFlag]:
        """Return the flags that have the same value in every run of the script.

        Such a flag is not inside a branch, and the script does not set it to a second value.
        """
        values: dict[str, set[tuple[str, ...]]] = {}
        for flag in flags:
            values.setdefault(flag.name, set()).add(tuple(word.text for word in flag.values))
        return [
            flag
            for flag in flags
            if len(values[flag.name]) == 1 and flag.word.span not in self.branches
        ]

    def is_open(
        self,
        flags: list[LaunchFlag],
        value_count: Callable[[str], int | None],
        starts: Collection[int] = (),
    ) -> bool:
        """Return True if a variable in the statements of ``flags`` might add flags at run time.

        Two kinds of variables are ignored: single values of a flag, and variables before the
        program, which can contain only flags of launchers.

        Args:
            flags: flags of the framework.
            value_count: function that returns the number of values of a flag, or None if the number
                varies.
            starts: numbers of further statements that start the framework, for example without any
                flag.
        """
        statements = {*starts, *(flag.word.statement for flag in flags)}
        programs: dict[int, Span] = {}
        for word in self.words:
            if word.text.endswith(".py") and not word.is_flag:
                programs.setdefault(word.statement, word.span)
        after: set[int] = set()
        for flag in flags:
            count = value_count(flag.name)
            after |= {
                id(word) for word in flag.values[: len(flag.values) if count is None else count]
            }
        return any(
            word.dynamic
            and (id(word) not in after or word.text.endswith(("[@]}", "$@")))
            and self._can_expand_to_flags(word)
            for word in self.words
            if word.statement in statements
            and not _is_before(word.span, programs.get(word.statement))
        )

    def _can_expand_to_flags(self, word: Word) -> bool:
        """Return True if ``word`` is a variable that might contain flags (``$ARGS``, ``$@``).

        Arrays that the script itself assigns are excluded, because their flags are known. A part
        of a template (``{{- if .Values.x }}``) might add flags, too.
        """
        if "{{" in word.text:
            return True
        if "=" in word.text.partition("$")[0] or _PATH.match(word.text):
            return False
        names = _EXPANSION.findall(word.text)
        return word.text.startswith("$") and not set(names) <= self.arrays


def _is_before(span: Span, program: Span | None) -> bool:
    """Return True if ``span`` is before ``program``; False if ``program`` is None."""
    return program is not None and (span.line, span.column) < (program.line, program.column)


def read_script(text: str, name: str) -> LintedScript:
    """Return the script in ``text``, with variables expanded if their values are certain.

    The value of a variable is certain if all assignments in the script agree and none of them is in
    a branch.
    """
    manifest = read_manifest(text, name) or read_service_file(text, name)
    text = keep_shell_blocks(text) if manifest is None else manifest.script
    branches = Branches(text)
    values: dict[str, set[str]] = {}
    unsure: set[str] = set()
    # The first pass collects all assigned values; the second one, below, expands the certain ones.
    before = ""
    for word in shell_words(text, name):
        for variable, value in shell_assignments([word]):
            values.setdefault(variable, set()).add(value)
            # Flags that a branch appends are unsure themselves; the earlier ones are not.
            appends = not value and before == f"{variable}+"
            if word.span in branches and not appends:
                unsure.add(variable)
        before = word.variable
    unsure |= {variable for variable, found in values.items() if len(found) > 1}
    unsure |= set(_OF_THE_JOB.findall(text))
    words = tuple(
        one for word in shell_words(text, name, unsure) for one in split_quoted_flag(word)
    )
    return LintedScript(name, text, words, branches, frozenset(ARRAY.findall(text)), manifest)


_EDIT = re.compile(r"((?:layout|job|model)\.[\w.]+): ([\w.+-]+)(?:\s|$)")

SECTIONS = {
    "model": "the model",
    "cluster": "the cluster",
    "versions": "the version (--version)",
}
"""Section of the spec -> its name in messages about a script."""


class ScriptSink(Sink):
    """Sink that replaces spec fields in findings by the flags of the script that set them."""

    def __init__(self, name: str, text: str) -> None:
        """Create a sink for the script ``text``; diagnostics show ``name`` as its file name."""
        super().__init__(SpecPositions(name, lines={name: tuple(text.splitlines())}))
        self.flags: Mapping[str, str] = {}
        """Spec field -> flag that sets it."""
        self.checked: set[str] = set()
        """Codes of the rules and checks that were evaluated."""
        self._first: Span | None = Span(name, 1, 1)

    def locate(self, spans: Mapping[str, Span], flags: Mapping[str, str], first: Span) -> None:
        """Record the positions and flags of spec fields, which later findings refer to.

        Args:
            spans: spec field -> position of its flag in the script.
            flags: spec field -> flag that sets it.
            first: position for findings about fields that no flag sets.
        """
        old = self.positions
        self.positions = replace(old, values={**old.values, **spans})
        self.flags = {**self.flags, **flags}
        self._first = first

    def report(
        self,
        code: str,
        finding: Finding | str,
        *,
        at: str = "",
        key: bool = False,
        span: Span | None = None,
    ) -> None:
        """Add a finding. Its spec path and its fix are translated to flags of the script.

        Args:
            code: code without prefix (``D01``).
            finding: the finding, or only its message.
            at: spec path of the problem.
            key: if True, point at the key of ``at`` instead of its value.
            span: position to use instead of the position of ``at``.
        """
        if isinstance(finding, str):
            finding = Finding(finding)
        place = span or self.positions.span_at(at, key=key) or self._first
        causes = tuple(map(self._name_cause_by_flag, finding.causes))
        shown = replace(finding, fix=self._suggested_script_fix(finding.fix), causes=causes)
        super().report(code, shown, at=self.flags.get(at, ""), span=place)

    def _name_cause_by_flag(self, cause: Cause) -> Cause:
        """Return ``cause`` with its spec path replaced by the flag that sets this path.

        If no flag sets the path, a description of its section replaces the path. The path is kept
        if it has a position in the script.
        """
        section, _, rest = cause.path.partition(".")
        if not section or self.positions.span_at(cause.path) is not None:
            return cause
        words = self.flags.get(cause.path) or SECTIONS.get(section) or rest or section
        return replace(cause, path=words)

    def _suggested_script_fix(self, fix: str) -> str:
        """Translate a fix of a spec field into the flag that fixes the script.

        For example, ``layout.pp: 4`` becomes ``--pipeline-model-parallel-size 4``. The result is
        empty if no flag sets the field.
        """
        # Any other fix, such as an edit of the script or an environment variable, stays as it is.
        if not re.match(r"(remove )?(layout|job|model|cluster|launch|goals|versions)\b", fix):
            return fix
        if removed := re.match(r"remove ([\w.]+)", fix):
            given = removed[1] in self.flags and removed[1] in self.positions.values
            return f"remove {self.flags[removed[1]]}" if given else ""
        match = _EDIT.match(fix)
        flag = self.flags.get(match[1]) if match else None
        if match is None or flag is None:
            return ""
        if match[2] in ("true", "false"):
            return flag if match[2] == "true" else f"remove {flag}"
        return f"{flag} {match[2]}"
