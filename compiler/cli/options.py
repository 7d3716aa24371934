"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def complete_path(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return a completion item that tells the shell to complete ``incomplete`` as a file path."""
    return [CompletionItem(incomplete, type="file")]


def complete_entry(
    *kinds: str,
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a function that completes names of catalog entries of ``kinds``, and file paths."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from parc.compiler.catalog.library import Library

        names = [name for kind in kinds for name in Library().names(kind)]
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]

    return complete


spec_argument: Decorator = click.argument("spec", metavar="SPEC", shell_complete=complete_path)

set_option: Decorator = click.option(
    "--set",
    "overrides",
    metavar="PATH=VALUE",
    multiple=True,
    help="Set a field of the spec, such as --set layout.tp=4, or remove it, such as "
    "--set '~layout.tp'. Can be repeated.",
)

root_option: Decorator = click.option(
    "--root",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that must contain all files that the spec names; the default is the spec's own "
    "folder.",
)

fail_on_option: Decorator = click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "advice"]),
    default="error",
    show_default=True,
    help="Lowest severity of a diagnostic that makes the command exit with 1.",
)


def format_option(*names: str) -> Decorator:
    """Return the option ``--format`` with the choices ``names``; the first name is the default."""
    return click.option(
        "--format",
        "style",
        type=click.Choice(names),
        default=names[0],
        show_default=True,
        help="Output format.",
    )
