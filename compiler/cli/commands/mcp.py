"""Command ``parc mcp``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("mcp")
@click.option(
    "--root",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder that must contain all files that the tools read; the default is the current "
    "folder.",
)
def command(root: Path) -> None:
    """Serve check, estimate, search, explain and diff to AI assistants over MCP.

    The tools read only files below the root and cached Hugging Face configs, write nothing, and use
    no network. The command needs an extra: pip install 'parc-compiler[mcp]'. An assistant starts it
    with a configuration such as
    {"mcpServers": {"parc": {"command": "parc", "args": ["mcp", "--root", "specs"]}}}.
    """
    from parc.compiler.mcp_server import serve

    try:
        serve(root)
    except ImportError as error:
        # A package that is installed but cannot be imported is not a missing package.
        if not (error.name or "").startswith("mcp"):
            raise
        raise click.UsageError(
            f"parc mcp needs version 2 of the package mcp ({error.msg}). "
            "Install it: pip install 'parc-compiler[mcp]'"
        ) from None
