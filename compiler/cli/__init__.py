"""Command line of PARC. ``parc --help`` imports only click; a command is loaded on first use."""

from __future__ import annotations

import atexit
import gc
import os
import pathlib
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from parc import __version__

COMMANDS: dict[str, str] = {
    "compile": "Compile SPEC into launch files and a rank map.",
    "check": "Report all errors, warnings and advice for each SPEC; --fix corrects them.",
    "lint": "Apply the rules of PARC to launch scripts that PARC did not write.",
    "estimate": "Show memory, step time and traffic of SPEC, term by term.",
    "search": "Rank the layouts that fit SPEC and compare them with the chosen one.",
    "sweep": "Estimate SPEC for a grid or a list of field values, and find the best point.",
    "calibrate": "Fit the cost model to RUNS: measured steps, or results of a serving benchmark.",
    "replan": "Move the ranks of drained hosts to spare or idle hosts; other ranks stay.",
    "import": "Print a spec fragment made from files of other tools.",
    "explain": "Explain a diagnostic code, a spec field, or a term of an estimate.",
    "diff": "Compare two specs or two output folders.",
    "verify": "Verify an output folder again, and list edited or missing files.",
    "catalog": "List the entries of the catalog, or show one entry with its sources.",
    "backends": "List the backends, their versions, and the strategies that each supports.",
    "schema": "Print a JSON Schema: spec, site, plan, rankmap or lock.",
    "init": "Print a starter spec.",
    "mcp": "Serve check, estimate, search, explain and diff to AI assistants over MCP.",
}
"""Name of a command -> first line of its help. The module ``commands/<name>.py`` defines each
command as ``command``."""


GC_THRESHOLD = 1_000_000
"""Number of newly allocated objects that triggers a garbage collection."""


class LazyGroup(click.Group):
    """Click group that loads a command on first use and turns its exceptions into exit codes."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line. Characters that a stream cannot encode are printed as escapes."""
        # Most objects of a command live until its end, so collecting garbage frees little. With
        # Python's default threshold of 700, collections cost a tenth of the time.
        gc.set_threshold(GC_THRESHOLD)
        # At its end, the interpreter would search all objects for garbage three times.
        atexit.register(gc.freeze)
        # Otherwise pydantic reads the metadata of all installed packages to find its plugins.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
        _replace_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with the name ``cmd_name``; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"parc.compiler.cli.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return (command name, command, remaining arguments) for the command line ``args``.

        Raises:
            UsageError: no command has that name. The message suggests a similar name.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands for ``parc --help`` without loading any command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; turn exceptions other than click's into a message and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except (Exception, KeyboardInterrupt) as error:
            from parc.compiler.cli.exit_codes import report_exception

            ctx.exit(report_exception(error))


def _replace_closed_streams() -> None:
    """Send output to the null device if standard output or standard error is closed.

    Python replaces a closed stream by None, so printing would fail. With the null device, the
    command still runs, and its exit code shows the result.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, pathlib.Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="parc")
def main() -> None:
    """Compile a model, a cluster and a goal into launch files with a verified rank map.

    Exit codes: 0 success, 1 diagnostics at or above --fail-on, 2 wrong usage or unreadable file,
    3 changes found by diff --exit-code, 70 bug in PARC.
    """
