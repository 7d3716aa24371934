"""Report the parts of a launch script that no reader accounted for, and settings of some runs only.

Together with the readers, this keeps the law of import: each part of a launch file is in the
fragment, or listed with its line.
"""

from __future__ import annotations

from parc.compiler.diagnostics import Span
from parc.compiler.tools.importers.flags import LAUNCHER, split_flags
from parc.compiler.tools.importers.formats import importable_launches
from parc.compiler.tools.importers.launch_commands import program_position
from parc.compiler.tools.importers.script_branches import Branches
from parc.compiler.tools.importers.script_commands import (
    USED,
    is_script_from_parc,
    launch_statement,
)
from parc.compiler.tools.importers.setup_commands import SET_BY_LAUNCHERS
from parc.compiler.tools.importers.shell_words import (
    UNKNOWN_VALUE,
    Word,
    scan_script,
    statements,
)
from parc.compiler.tools.shell.scanned_script import Assignment, StrayLine
from parc.compiler.topology.readers.reader_state import Reading


def report_unread_parts(words: list[Word], reading: Reading, known: bool = True) -> None:
    """Report the parts of a script that the spec fragment does not represent.

    These are flags that were not read, and settings that apply only to some runs of the script. The
    launch command is reported too if ``known`` is False, that is, if no backend recognizes it.
    """
    if is_script_from_parc(reading.text):
        return
    launch = launch_statement(words)
    statement = [word for word in words if word.statement == launch]
    _report_unread_flags(words, reading)
    if statement and not known:
        end = program_position(statement)
        flags = (at for at, word in enumerate(statement) if at > end and word.is_flag)
        command = " ".join(word.text for word in statement[: next(flags, None)])
        reading.leave_out(command, statement[0].span, f"PARC can import {importable_launches()}")
    branches = Branches(reading.text)
    _report_alternative_values(reading)
    _report_stray_lines(reading)
    _note_conditional_flags(words, reading, branches)


def _report_unread_flags(words: list[Word], reading: Reading) -> None:
    """Report each flag of the script that was neither read nor reported before.

    Flags of a command that was itself reported are left out.
    """
    for statement in statements(words):
        first = statement[0]
        if (first.span.line, first.span.column) in reading.accounted:
            continue  # a command that was reported
        container = not {"docker", "podman"}.isdisjoint(word.text for word in statement)
        program = program_position(statement)
        for flag in split_flags(statement):
            name = flag.name.replace("_", "-")
            of_launcher = name in LAUNCHER and flag.word in statement[: program or None]
            read = (flag.word.span.line, flag.word.span.column) in reading.accounted
            if not read and (name.startswith("--") or container) and not of_launcher:
                text = " ".join((flag.name, *(value.text for value in flag.values)))
                reading.leave_out(text, flag.word.span)


def _report_alternative_values(reading: Reading) -> None:
    """Report variables that the script sets to several values, such as one per model size.

    Add a note on each variable whose value, the last one, is set only in a branch. If different
    runs use different values, none of them is imported.
    """
    script = scan_script(reading.text, reading.file)
    values: dict[str, list[Assignment]] = {}
    for one in script.assignments:
        if not UNKNOWN_VALUE.search(one.text) and one.text != "$OPTARG":
            values.setdefault(one.name, []).append(one)
    used = set(USED.findall(reading.text))
    for name, found in values.items():
        last = found[-1]
        if name not in used or SET_BY_LAUNCHERS.fullmatch(name):
            continue
        open_places = script.ambiguous.get(name, ())
        # A value that only the shell knows is reported where the script uses it.
        texts = {one.text for one in found if one.span in open_places}
        is_open = last.span in open_places and len(texts) > 1
        if last.text and not last.is_certain and not is_open:
            _note_branch(f"{name}={last.text}", last.span, reading)
        for one in found:
            if one.span in open_places and is_open:
                _report_value(one, "the value differs between the runs of the script", reading)
            elif one.text not in ("", last.text) and not (
                one.is_certain and one.span in script.used
            ):
                _report_value(one, f"PARC uses the last value, {last.text[:40]!r}", reading)


def _report_value(one: Assignment, hint: str, reading: Reading) -> None:
    if one.text:
        reading.leave_out(f"{one.name}={one.text}", one.span, hint)


def _report_stray_lines(reading: Reading) -> None:
    """Report lines of flags that bash does not pass to the command before."""
    for line in scan_script(reading.text, reading.file).stray:
        text = " ".join(word.text for word in line.words)
        reading.leave_out(text, line.words[0].span, explain_stray_line(line))


def explain_stray_line(line: StrayLine) -> str:
    """Return the reason why bash does not pass a line of flags to the command before."""
    if line.is_comment:
        return f"the comment in line {line.before.line} ends the command before this line"
    return f"line {line.before.line} does not end with a backslash"


def _note_conditional_flags(words: list[Word], reading: Reading, branches: Branches) -> None:
    """Add a note on each imported flag that the script sets only in a branch.

    The fragment contains such a flag as if every run of the script had it.
    """
    args = set(reading.spec.get("launch", {}).get("args", ()))
    set_at = {(span.line, span.column) for span in reading.spans.values()}
    conditional = scan_script(reading.text, reading.file).used_in_branches
    for word in words:
        place = (word.span.line, word.span.column)
        is_open = word.span in branches or word.variable.rstrip("+") in conditional
        if word.is_flag and is_open and (place in set_at or word.text in args):
            _note_branch(word.text, word.span, reading)


def _note_branch(text: str, place: Span, reading: Reading) -> None:
    note = f"in a branch of the script, line {place.line}: {text}"
    if note not in reading.notes:
        reading.notes.append(note)
