"""The command line. ``parc --help`` imports click and nothing else: commands load on first use."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from parc import __version__

COMMANDS: dict[str, str] = {
    "compile": "Compile SPEC into launch files and a rank map.",
    "check": "Report everything that is wrong with each SPEC; write nothing.",
    "lint": "Check launch scripts that PARC did not write against the same rules.",
    "estimate": "Show memory, step time and traffic of SPEC, term by term.",
    "search": "List the layouts that fit SPEC, ranked, and what the others lost by.",
    "calibrate": "Fit the cost model to RUNS, a CSV of steps that you measured.",
    "replan": "Give the ranks of drained hosts to spare or idle ones; all others stay.",
    "import": "Print a spec fragment made from files of other tools.",
    "explain": "Explain a diagnostic code, a spec field, a cost term or a pass.",
    "diff": "Show what changes between two specs or two output directories.",
    "verify": "Check an output directory again, and find what was edited.",
    "catalog": "List what the catalog knows, or show one entry with its sources.",
    "backends": "List the backends: versions, and what each framework can express.",
    "schema": "Print a JSON Schema: spec, plan, rankmap or lock.",
    "init": "Print a starter spec.",
}
"""name -> the first line of its help; the command is ``command`` in the module of that name."""


GARBAGE_AFTER = 1_000_000
"""Objects that are made between two looks for garbage."""


class LazyGroup(click.Group):
    """Finds commands in COMMANDS and turns what they raise into exit codes."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run, with streams that print any character: one they cannot encode as its escape.

        A command is over soon and most of what it makes lives to its end, so that looking for
        garbage every 700 objects costs a tenth of its time and finds none.
        """
        gc.set_threshold(GARBAGE_AFTER)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load the module of the command; None for a name that is not one."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"parc.compiler.cli.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for a name that is not one names the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without loading one."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; whatever it raises that is not click's own becomes an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except (Exception, KeyboardInterrupt) as error:
            from parc.compiler.cli.failure import report

            ctx.exit(report(error))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="parc")
def main() -> None:
    """Compile a model, a cluster and a goal into launch files whose rank map is real.

    Exit codes: 0 fine, 1 diagnostics at or above --fail-on, 2 usage or a file that cannot be
    read, 3 diff --exit-code found changes, 70 a bug in PARC.
    """
