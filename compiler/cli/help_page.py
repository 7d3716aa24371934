"""Generate docs/cli.md from the help of the commands.

Run ``python -m parc.compiler.cli.help_page > docs/cli.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import cleandoc

import click

from parc.compiler.cli import COMMANDS

HEAD = """\
# Command line

`make docs` generates this page from the help of the commands. Results go to standard output and
diagnostics to standard error; for `parc check` and `parc verify`, the findings are the result.
Colors are used only on a terminal, and never if `NO_COLOR` is set.

| exit code | meaning |
| --- | --- |
| 0 | success |
| 1 | diagnostics at or above `--fail-on`; errors, for commands without that option |
| 2 | wrong usage, or a file that cannot be read or written |
| 3 | `parc diff --exit-code` found changes |
| 70 | bug in PARC; `PARC_DEBUG=1` shows the traceback |
| 130, 141 | interrupted, or the output pipe was closed |

| command | description |
| --- | --- |
"""


def reference_page() -> str:
    """Return the text of docs/cli.md: a table of the commands, then one section per command."""
    rows = (f"| [`parc {name}`](#parc-{name}) | {text} |\n" for name, text in COMMANDS.items())
    return HEAD + "".join(rows) + "".join(f"\n{_command_section(name)}" for name in COMMANDS)


def _command_section(name: str) -> str:
    command: click.Command = import_module(f"parc.compiler.cli.commands.{name}").command
    usage = [
        f"parc {name}",
        "[OPTIONS]" if _command_options(command) else "",
        *_argument_names(command),
    ]
    parts = [f"## parc {name}\n", f"    {' '.join(word for word in usage if word)}\n"]
    parts.append(cleandoc(command.help or "") + "\n")
    rows = [
        f"| `{_option_syntax(option)}` | {_option_help(option)} |\n"
        for option in _command_options(command)
    ]
    if rows:
        parts.append("| option | description |\n| --- | --- |\n" + "".join(rows))
    return "\n".join(parts)


def _command_options(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option)]


def _argument_names(command: click.Command) -> Iterator[str]:
    for argument in command.params:
        if isinstance(argument, click.Argument):
            yield argument.metavar or argument.name.upper() if argument.name else ""


def _option_syntax(option: click.Option) -> str:
    kind = option.type
    # Markdown would read an unescaped pipe as the end of the table cell.
    values = "\\|".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else ""
    value = "" if option.is_flag else f" {option.metavar or values}"
    return ", ".join(option.opts) + value


def _option_help(option: click.Option) -> str:
    text = option.help or ""
    return f"{text} Default: {option.default}." if option.show_default else text


if __name__ == "__main__":
    sys.stdout.write(reference_page())
