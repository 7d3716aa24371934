"""Parts of the import of a server's command that several engines share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    advise_removed_flag,
    find_value_fault,
    rows_of_known_flags,
)
from parc.backends.shared.serving.server_commands import (
    FindServer,
    is_manifest_text,
    server_starts,
)
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.diagnostics.secret_values import is_secret
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag, valid_block_tokens
from parc.compiler.tools.importers.script_commands import (
    launch_command,
    launch_words,
    read_environment,
    read_script,
    unlaunched_commands,
)
from parc.compiler.tools.importers.setup_commands import lines_inside_functions
from parc.compiler.tools.importers.shell_words import ASSIGNMENT, Word, statements
from parc.compiler.tools.importers.unread_parts import report_unread_parts
from parc.compiler.tools.lint.complete_facts import catalog_name
from parc.compiler.topology.readers.reader_state import Fragment, Reading


@frozen
class EngineCommand:
    """Command that starts an engine, in scripts of PARC and of other tools."""

    title: str
    """Name of the engine in messages."""
    example: str
    """Short command, as an example in a message."""
    starts: Callable[[list[Word]], bool]
    """Function that returns True if the words start the engine."""
    read_words: Callable[[list[Word], Reading], None]
    """Function that stores the model and the flags of the command."""
    find: FindServer
    """Function that returns the word of a statement that names the server."""
    partition: str = ""
    """Variable with the number of layers per pipeline stage; empty if the engine has none."""


def engines_line(title: str) -> re.Pattern[str]:
    """Return the pattern of the comment with the number of engines in a script of PARC."""
    line = rf"^# Serves .* with {re.escape(title)} [0-9.]+: (one|[0-9]+) engines? of"
    return re.compile(line, re.MULTILINE)


def read_engine_command(
    text: str, name: str, sink: Sink, command: EngineCommand
) -> Fragment | None:
    """Return the part of a spec that a file with a command of an engine describes.

    Arguments that have no spec field are reported (I04), and so is a file without such a command
    (I02).
    """
    reading = Reading(text, name, sink)
    words = launch_words(reading)
    if engines_line(command.title).search(text):
        # PARC sets all other variables itself, from other fields of the spec.
        name_of_stages = command.partition
        stages = {
            word.statement
            for word in words
            if name_of_stages and word.text.startswith(name_of_stages)
        }
        read_environment([word for word in words if word.statement in stages], reading)
    elif command.starts(words):
        before, later = _split_at_server(words, reading, command.find)
        read_script(before, reading)
        _report_later_commands(later, reading)
    command.read_words(words, reading)
    report_unread_parts(words, reading)
    if "layout" not in reading.spec and reading.is_valid:
        finding = Finding(
            f"this file contains no {command.title} command",
            help=f"expected, for example: {command.example}",
        )
        reading.report_error("I02", finding, reading.span())
    return reading.fragment()


def _split_at_server(
    words: list[Word], reading: Reading, find: FindServer
) -> tuple[list[Word], list[Word]]:
    """Return (words up to the command that starts the first server, words of later commands).

    All words belong to the first part if the server runs later than its words are written, in a
    variable or a function, and in files of YAML.
    """
    starts = server_starts(words, find)
    if not starts or is_manifest_text(words):
        return words, []
    first = starts[0]
    is_array = ASSIGNMENT.fullmatch(
        next(one for one in words if one.statement == first.statement).text
    )
    is_late = is_array is not None and is_array[2] == ""
    if is_late or first.variable or first.span.line in lines_inside_functions(reading.text):
        return words, []
    numbers = {one.statement for one in words if one.span <= first.span} | {first.statement}
    kept = [one for one in words if one.statement in numbers]
    return kept, [one for one in words if one.statement not in numbers]


def _report_later_commands(words: list[Word], reading: Reading) -> None:
    """Report the commands after the one that starts the server (I04)."""
    found = dict(unlaunched_commands(reading.text, reading.file))
    command, line = launch_command(reading.text, reading.file)
    groups = {one[0].span.line: one for one in reversed(statements(words))}
    for number, (first, *rest) in sorted(groups.items()):
        text = command if number == line else found.get(number)
        if first.text == "export":  # for programs that start later
            text = " ".join(word.text for word in (first, *rest))
        if text:
            reading.leave_out(text, first.span, "PARC's launch script starts only the server")


def read_catalog_model(reading: Reading) -> None:
    """Set the model of the spec, if the catalog contains the served checkpoint."""
    named = reading.spec.get("job", {}).get("checkpoint")
    if named is None:
        return
    model = catalog_name(named)
    if model is not None:
        reading.spec["model"] = model
    else:
        reading.notes.append(f"set model: the catalog has no entry for {named}")


def read_replicas(title: str, reading: Reading) -> None:
    """Set the number of engines that a script of PARC starts; other scripts start one."""
    engines = engines_line(title).search(reading.text)
    if engines is not None and engines[1] != "one":
        reading.spec.setdefault("layout", {})["replicas"] = int(engines[1])


def read_stage_layers(variable: str, reading: Reading) -> None:
    """Set the layers of each pipeline stage from the environment variable ``variable``."""
    launch = reading.spec.get("launch", {})
    stages = launch.get("env", {}).get(variable, "")
    if re.fullmatch(r"[0-9]{1,5}(,[0-9]{1,5})*", stages):
        reading.spec["layout"]["stage_layers"] = [int(part) for part in stages.split(",")]
        del launch["env"][variable]
        if not launch["env"]:
            del launch["env"]


def check_block_tokens(flags: Iterable[LaunchFlag], name: str, reading: Reading) -> None:
    """Report a size of cache blocks that a spec cannot contain, and leave it out (I04).

    ``name`` is the flag that sets the size.
    """
    job = reading.spec.get("job", {})
    valid = valid_block_tokens()
    if job.get("block_tokens", valid[0]) in valid:
        return
    number = job.pop("block_tokens")
    reading.spans.pop("job.block_tokens", None)
    for flag in flags:
        if flag.name == name:
            hint = f"valid values of job.block_tokens: {', '.join(map(str, valid))}"
            reading.leave_out(f"{name} {number}", flag.word.span, hint)


def finish_service(reading: Reading) -> None:
    """Turn the imported fields into a serving job."""
    # A server has no program; the launcher may still start one, such as a benchmark.
    program = reading.spec.get("launch", {}).pop("program", None)
    if program is not None:
        reading.notes.append(f"not carried over: {program}, because the job is a server")
    reading.spec["job"] = {"kind": "serve", **reading.spec.get("job", {})}
    reading.notes.append("a serving job also needs job.traffic, which no launch file contains")


OTHER_HINT = "set the matching field of the job, if any"
SECRET_HINT = "a file must not contain it: set launch.env.NAME: {from: environment}"
"""Advice about a value that looks like a secret."""


FindRow = Callable[[str], Mapping[str, Any] | None]
"""Function that returns the row of a flag; None if the engine has no such flag."""


def take_extra_arguments(
    flags: list[LaunchFlag],
    package: str,
    planned: Collection[str],
    reading: Reading,
    row_of: FindRow | None = None,
) -> None:
    """Move valid flags that a plan does not determine to ``launch.args``.

    All other flags are reported: unknown flags, flags that a plan determines, invalid values, and
    values that are known only at run time.

    Args:
        flags: flags that set no field of the spec.
        package: Python package of the engine.
        planned: flags that a plan determines.
        reading: the file, whose spec gets the arguments.
        row_of: returns the row of a flag in known_flags.json, if not that of its name.
    """
    words: dict[str, tuple[str, ...]] = {}
    row_of = row_of or rows_of_known_flags(package).get
    for flag in flags:
        row = row_of(flag.name)
        takes = row.get("takes", 1) if row is not None else 1
        # Arguments after the last flag, such as a redirection, are not values.
        many = takes if isinstance(takes, int) else 1 if takes == "?" else len(flag.values)
        values = tuple(word.text for word in flag.values[:many])
        dynamic = any("$" in value or "`" in value for value in values)
        argument = ExtraArgument(flag.name, values, 0)
        fault = None if row is None or dynamic else find_value_fault(argument, dict(row))
        secret = any(is_secret(flag.name, value) for value in values)
        means = str((row or {}).get("means", flag.name)).replace("--no-", "--", 1)
        if row is None or dynamic or means in planned or fault is not None or secret:
            text = " ".join((flag.name, *values))
            hint = advise_removed_flag(package, flag.name) if row is None else ""
            if fault is not None:
                hint = f"{fault.message}: {fault.label}"
            reading.leave_out(text, flag.word.span, SECRET_HINT if secret else hint or OTHER_HINT)
        else:
            words[flag.name] = values
    if words:
        reading.spec.setdefault("launch", {})["args"] = [
            word for name, values in words.items() for word in (name, *values)
        ]
