"""Convert the flags of a launch to fields of the spec; report flags without a field (I04).

The table is ``flags.yaml`` in the package of a backend, from which PARC also writes the flags. The
keys of a row that matter here:

- ``import``: the spec field that the flag sets, such as ``layout.tp`` for an integer. For any other
  type it is ``{field: type}``. The type is ``float``, ``positive``, ``text``, ``texts`` (a list),
  ``{set: constant}``, or ``{words: {value of the flag: value of the field}}``.
- ``import: implied``: the flag follows from other fields, so that PARC does not need to read it.
- ``spec``: the field that the flag sets, if PARC does not import the flag.

The section ``imported`` lists the flags that PARC reads but never writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import chain, groupby, pairwise
from typing import Any, Literal, get_args

from parc.backends.registry import all_declarations
from parc.compiler.diagnostics import Finding
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.service_spec import ServiceSpec
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.topology.readers.reader_state import LONGEST_TEXT, Reading

TORCHRUN = {
    *("--nnodes", "--nproc-per-node", "--node-rank", "--master-addr", "--master-port"),
    *("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--standalone"),
    *("--max-restarts", "--monitor-interval", "--start-method", "--event-log-handler", "--role"),
    *("--module", "--no-python", "--run-path", "--log-dir", "--redirects", "--tee"),
    *("--local-ranks-filter", "--duplicate-stdout-filters", "--duplicate-stderr-filters"),
    *("--local-addr", "--logs-specs", "--numa-binding", "--signals-to-handle"),
    *("--shutdown-timeout", "--virtual-local-rank"),
}
"""All flags of torchrun in torch 2.13 (torch/distributed/run.py, get_args_parser), with dashes."""
SRUN = {
    *("--ntasks-per-node", "--ntasks", "--kill-on-bad-exit", "--mpi", "--label", "--nodes"),
    *("--distribution", "--cpu-bind"),
}
"""Flags of srun(1) that often precede a launch command on the same line."""
LAUNCHER = TORCHRUN | SRUN
_GAP = re.compile(r"[$`<>]")
"""Matches a character of a value that only the shell knows, or of a gap such as ``<mounts>``."""
_VARIABLE = re.compile(r"[ \t=]*[\"']?\$")
"""Matches the text between a flag and its value that starts with a variable."""
_ARGUMENTS = re.compile(r"\w+\+?=|\S+\.py")
"""Matches the first word of an array assignment, or a program."""


def job_size_flags() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags of all launchers with the numbers of hosts, and of processes per host.

    Each flag is listed with dashes and with underscores, because launchers accept both.
    """
    pairs = [one.size_flags for one in all_declarations() if one.size_flags]

    def spellings(flag: str) -> Iterator[str]:
        name = flag.removeprefix("--")
        yield from dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name.replace('-', '_')}"))

    hosts, processes = zip(*pairs, strict=True)
    return tuple(chain.from_iterable(map(spellings, hosts))), tuple(
        chain.from_iterable(map(spellings, processes))
    )


Kind = Literal["int", "float", "positive", "text", "texts", "set"]
"""How to read the value of a flag; ``set``: the flag has no value and sets a constant."""


@frozen
class FlagField:
    """Spec field that one flag sets, and the type of the flag's value."""

    path: str
    """Spec field: ``layout.tp``."""
    kind: Kind = "int"
    value: Any = None
    """For ``set``: the constant."""
    words: Mapping[str, Any] | None = None
    """For ``text``: value of the flag -> value of the field."""


@frozen
class LaunchFlag:
    """Flag of a launch command, with the words between it and the next flag."""

    name: str
    word: Word
    values: tuple[Word, ...]

    @property
    def value(self) -> str:
        """First value; empty if the flag has none."""
        return self.values[0].text if self.values else ""


def precedes_command(flag: LaunchFlag, starts: Mapping[int, Word]) -> bool:
    """Return True if the flag comes before the command of its statement.

    Such a flag belongs to a launcher, such as srun. ``starts`` maps the number of each statement
    with the command to the word that starts it.
    """
    start = starts.get(flag.word.statement)
    return start is not None and flag.word.span < start.span


def flags_in_statements(
    words: list[Word], known: Iterable[str], whole: bool = False
) -> list[LaunchFlag]:
    """Return the flags of the statements that contain flags of a framework.

    These are the statements that contain a flag in ``known``, and the statements that start with a
    flag, such as a file that contains only arguments. If ``whole`` is True, arrays of arguments and
    the last command that starts a program are included even without a flag in ``known``. Earlier
    commands without such a flag start other programs, such as a preparation of the data.
    """
    names = set(known)
    found: list[LaunchFlag] = []
    written = [list(group) for _, group in groupby(words, key=lambda word: word.statement)]
    programs = [one[0] for one in written if one[0].text.endswith(".py")]
    for statement in written:
        named = any(word.text.partition("=")[0] in names for word in statement)
        start = statement[0]
        other = start.text.endswith(".py") and start is not programs[-1]
        if named or start.is_flag or (whole and not other and _ARGUMENTS.fullmatch(start.text)):
            found += split_flags(statement)
    return found


def split_flags(statement: list[Word]) -> list[LaunchFlag]:
    """Return the flags of a statement, each with all words before the next flag."""
    starts = [index for index, word in enumerate(statement) if word.is_flag]
    flags = []
    for start, end in pairwise([*starts, len(statement)]):
        word = statement[start]
        name, equals, rest = word.text.partition("=")
        values = statement[start + 1 : end]
        if equals:  # --flag=value: the first value is a part of the word of the flag
            values = [Word(rest, word.span, word.statement), *values]
        flags.append(LaunchFlag(name, word, tuple(values)))
    return flags


def split_option(text: str) -> tuple[str, str, str]:
    """Return (name, separator, value) of an option of Slurm: ``--nodes=8``, ``-N=8`` or ``-N8``.

    For an option whose value, if any, is the next word, separator and value are empty.
    """
    match = re.fullmatch(r"(-[A-Za-z])([^=-].*)", text)
    if match is not None and not text.startswith("--"):
        return match[1], "=", match[2]
    return text.partition("=")


def take_flags(
    flags: list[LaunchFlag], table: Mapping[str, FlagField], reading: Reading
) -> list[LaunchFlag]:
    """Set the spec fields of all flags in ``table``; return the flags that are not in ``table``."""
    unknown = []
    for flag in flags:
        row = table.get(flag.name)
        if row is None:
            unknown.append(flag)
        elif row.kind == "set":
            set_spec_field(reading, row.path, row.value, flag)
        else:
            _set_field_of_flag(flag, row, reading)
    return unknown


def _set_field_of_flag(flag: LaunchFlag, row: FlagField, reading: Reading) -> None:
    if not flag.values and _VARIABLE.match(_text_after(flag.word, reading)):
        # Options of the script may set the variable before the command.
        reading.leave_out(
            flag.name, flag.word.span, f"its variable is empty: set {row.path} in the spec"
        )
        return
    if not flag.values:
        finding = Finding(f"{flag.name} has no value", "expected a value after this flag")
        reading.report_error("I02", finding, flag.word.span)
        return
    values = flag.values[: None if row.kind == "texts" else 1]
    dynamic = next((word.text for word in values if word.dynamic), None)
    if dynamic is not None:
        is_gap = not re.search(r"[$`]|\{\{", dynamic)
        reason = "a placeholder" if is_gap else "computed at run time"
        message = f"{flag.name} {dynamic[:40]} is {reason}"
        note_flag_not_imported(flag, reading)
        reading.report(
            "I04", Finding(message, help=f"set {row.path} in the spec"), flag.values[0].span
        )
        return
    if row.kind == "texts":
        set_spec_field(reading, row.path, [word.text for word in flag.values], flag)
        return
    value = _parse_value(flag.values[0].text, row)
    if value is None and row.words is not None:
        note_flag_not_imported(flag, reading)
        message = f"not carried over: {flag.name} {flag.values[0].text[:40]}"
        # Several texts can have the same value.
        valid = ", ".join(dict.fromkeys(map(str, row.words.values())))
        finding = Finding(message, help=f"valid values of {row.path}: {valid}")
        reading.report("I04", finding, flag.values[0].span)
        return
    if value is None and re.search(r"\s|,", flag.values[0].text.strip()):
        reading.leave_out(
            f"{flag.name} {flag.values[0].text}",
            flag.values[0].span,
            f"{row.path} is a single number",
        )
        return
    if value is None:
        wanted = "a whole number" if row.kind == "int" else "a number"
        message = f"{flag.name} is {flag.values[0].text[:40]!r}, expected {wanted}"
        reading.report_error("I02", message, flag.values[0].span)
        return
    set_spec_field(reading, row.path, value, flag)


def _text_after(word: Word, reading: Reading) -> str:
    """Return the text after ``word`` on its line of the file."""
    line = reading.text.splitlines()[word.span.line - 1]
    return line[word.span.column - 1 + len(word.text) :]


def note_flag_not_imported(flag: LaunchFlag, reading: Reading) -> None:
    """Add a note that ``flag`` was not imported.

    The caller reports the reason as a finding.
    """
    values = " ".join(value.text for value in flag.values)[:LONGEST_TEXT]
    reading.notes.append(f"not carried over, line {flag.word.span.line}: {flag.name} {values}")


def _parse_value(text: str, row: FlagField) -> Any:
    if row.kind == "int":
        return whole_number(text)
    if row.kind in ("float", "positive"):
        number = re.fullmatch(r"[0-9]{0,20}\.?[0-9]{1,20}(?:[eE][+-]?[0-9]{1,2})?", text)
        return float(text) if number else None
    return row.words.get(text) if row.words is not None else text


def has_gap(text: str) -> bool:
    """Return True if only the shell knows the value, or if it has a gap to fill: ``<mounts>``."""
    return bool(_GAP.search(text))


def known_mounts(
    flag: LaunchFlag, text: str, own: Callable[[str], bool], reading: Reading
) -> list[str]:
    """Return the mounts in ``text``, a list with commas, whose paths are known.

    Other mounts are reported, except those for which ``own`` returns True: PARC's batch script sets
    them itself.
    """
    mounts = [one for one in text.split(",") if one and not own(one)]
    for mount in filter(has_gap, mounts):
        reading.leave_out(f"{flag.name} {mount}", flag.word.span)
    return [mount for mount in mounts if not has_gap(mount)]


def is_equal_value(first: str, second: str) -> bool:
    """Return True for equal texts, and for texts with equal numbers, such as 1e-5 and 0.00001."""
    if first == second:
        return True
    try:
        return float(first) == float(second)
    except ValueError:
        return False


def whole_number(text: str) -> int | None:
    """Return the integer that ``text`` contains; None unless ``text`` has 1 to 12 digits only."""
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else None


def set_spec_field(reading: Reading, path: str, value: Any, flag: LaunchFlag) -> None:
    """Set field ``path`` of the spec fragment to ``value``, and record the position of ``flag``.

    If several flags set the same field, the last one counts, as in argparse.
    """
    *above, last = path.split(".")
    node = reading.spec
    for key in above:
        inner = node.setdefault(key, {})
        # An earlier flag may have set the section itself, such as ``model`` to a catalog name.
        if not isinstance(inner, dict):
            inner = node[key] = {}
        node = inner
    node[last] = value
    reading.spans[path] = flag.word.span
    reading.account(flag.word.span)


def valid_block_tokens() -> tuple[int, ...]:
    """Return the sizes of cache blocks that ``job.block_tokens`` can have."""
    return get_args(ServiceSpec.model_fields["block_tokens"].annotation)


IMPLIED = "implied"
IMPORT_ONLY = "imported"


@frozen
class ImportTable:
    """Columns of a backend's flag table that ``parc import`` needs."""

    rows: Mapping[str, FlagField]
    """Flag -> spec field and type, in the order of the table; flags that PARC only reads follow."""
    implied: frozenset[str]
    """Flags that follow from other fields, so that PARC does not need to read them."""
    fields: dict[str, str]
    """Flag -> the spec field that it sets, including flags that are not imported. Flags that set a
    whole section of the spec are left out."""

    def flag_by_spec_field(self) -> dict[str, str]:
        """Return (spec field -> flag that sets the field).

        If several flags set the same field, the first one in the table is returned.
        """
        # A later item of a dict overrides an earlier one, so the reversed order keeps the first.
        return {field: flag for flag, field in reversed(self.fields.items())}


@cache
def load_import_table(package: str) -> ImportTable:
    """Return the import table in the file ``flags.yaml`` of the Python package ``package``."""
    tree = parse_table((files(package) / "flags.yaml").read_text("utf-8"))
    entries = dict(_import_rows(tree))
    rows = {
        flag: _parse_row(entry["import"])
        for flag, entry in entries.items()
        if entry.get("import", IMPLIED) != IMPLIED
    }
    fields = {
        flag: rows[flag].path if flag in rows else entry["spec"]
        for flag, entry in entries.items()
        if "spec" in entry or (flag in rows and "." in rows[flag].path)
    }
    implied = (flag for flag, entry in entries.items() if entry.get("import") == IMPLIED)
    return ImportTable(rows, frozenset(implied), fields)


def _import_rows(tree: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (flag, row) for each flag of the table.

    A flag whose entry is a text instead of a row is skipped: the text explains why no spec field
    sets this flag.
    """
    for group, rows in tree.items():
        for flag, row in rows.items():
            if group == IMPORT_ONLY:
                yield flag, {"import": row}
            elif isinstance(row, Mapping):
                yield flag, row


def _parse_row(given: str | Mapping[str, Any]) -> FlagField:
    if isinstance(given, str):
        return FlagField(given)
    ((field, how),) = given.items()
    if isinstance(how, str):
        return FlagField(field, how)  # type: ignore[arg-type]  # one of Kind: a test reads every table
    if "words" in how:
        return FlagField(field, "text", words=how["words"])
    return FlagField(field, "set", how["set"])
