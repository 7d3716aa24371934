"""Writer of ``megatron/args.sh``: a bash array with one flag per line and quoted words."""

from __future__ import annotations

from itertools import groupby

from parc.backends.megatron.arguments.arguments import Argument, planned_arguments
from parc.backends.shared.extra_arguments import ExtraArgument, parse_extra_arguments
from parc.backends.shared.render import render, shell_word
from parc.compiler.ir import Artifact, Job, Plan

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


def resume_lines(job: Job) -> tuple[str, ...]:
    """Return the lines of a launch script that let a pretraining run resume from its own folder.

    ``--load`` names another folder until the run has saved a checkpoint: Megatron has no flag for a
    second folder that keeps the optimizer and the step. The last ``--load`` is valid.
    """
    own = job.checkpoint_dir
    if job.kind != "pretrain" or job.load_dir is None or own is None or own == job.load_dir:
        return ()
    newest = shell_word(f"{own.rstrip('/')}/latest_checkpointed_iteration.txt")
    return (
        "# After the first checkpoint of this run, continue from it instead of job.load_dir.",
        f"[[ ! -e {newest} ]] || MEGATRON_ARGS+=(--load {shell_word(own)})",
    )
