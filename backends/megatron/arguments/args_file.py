"""Writer of ``megatron/args.sh``: a bash array with one flag per line and quoted words."""

from __future__ import annotations

from itertools import groupby

from parc.backends.megatron.arguments.arguments import Argument, planned_arguments
from parc.backends.shared.extra_arguments import ExtraArgument, parse_extra_arguments
from parc.backends.shared.render import render
from parc.compiler.ir import Artifact, Plan

PATH = "megatron/args.sh"


def args_file(plan: Plan) -> Artifact:
    """Return the file ``megatron/args.sh``, which ends with the user's extra arguments."""
    problem = plan.problem
    values = {
        "version": problem.version("megatron"),
        "groups": _lines_by_group(planned_arguments(problem, plan.layout), problem.launch.args),
    }
    return Artifact(PATH, render("megatron", "args.sh.j2", values))


def _lines_by_group(
    planned: tuple[Argument, ...], extra: tuple[str, ...]
) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Return (header, lines) for each group of flags in ``args.sh``.

    A line is a tuple of words: a flag and its values. Flags in ``extra`` replace planned flags of
    the same name.
    """
    extras, stray = parse_extra_arguments(extra)
    # argparse lets the last value win; the replaced line is left out so that the file shows what
    # takes effect.
    given = {item.flag for item in extras}
    kept = (argument for argument in planned if argument.flag not in given)
    groups = [
        (group, [(argument.flag, *argument.values) for argument in rows])
        for group, rows in groupby(kept, key=lambda argument: argument.group)
    ]
    lines: list[tuple[str, ...]] = [(word,) for word in stray]
    lines += [_command_line_words(item) for item in extras]
    return [*groups, ("extra", lines)] if lines else groups


def _command_line_words(extra: ExtraArgument) -> tuple[str, ...]:
    """Return the command-line words of ``extra``: the flag and its values.

    A value with a leading dash is joined to the flag by ``=``.
    """
    # argparse reads a separate word with a leading dash as another flag.
    if len(extra.values) == 1 and extra.values[0].startswith("-"):
        return (f"{extra.flag}={extra.values[0]}",)
    return (extra.flag, *extra.values)
