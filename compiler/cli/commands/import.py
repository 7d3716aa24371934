"""Command ``parc import``."""

from __future__ import annotations

import sys
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from parc.compiler.cli import command_steps, options
from parc.compiler.tools.importers.import_files import OF_CLUSTERS, import_formats

if TYPE_CHECKING:
    from parc.compiler.diagnostics import Sink

FORMATS = import_formats()
# Plugins add formats, so this is not a literal list. Only ``parc import`` loads this module.
KINDS = ("auto", *FORMATS)
"""Valid values of KIND, including the formats of installed plugins."""
_CLUSTERS = ", ".join(kind for kind in FORMATS if kind in OF_CLUSTERS)
_OTHERS = ", ".join(kind for kind in FORMATS if kind not in OF_CLUSTERS)
_DETAILS = f"""\
KIND is the name of a format, or auto; without it, PARC detects the format. Formats with hosts of a
cluster or job: {_CLUSTERS}. Formats with a calibration, a model, or a layout and a job: {_OTHERS}.
Several files of one format, or about one cluster, become one fragment; - is standard input.
Settings without a field in the spec are reported with their line. See docs/import.md."""
_PARAGRAPH = fill(_DETAILS, 99, break_on_hyphens=False)
HELP = f"Print a spec fragment made from files of other tools.\n\n{_PARAGRAPH}\n"


def _complete_word(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a format, which is the first word, or a file path."""
    kinds = () if context.params.get("words") else KINDS
    found = [CompletionItem(kind) for kind in kinds if kind.startswith(incomplete)]
    return [*found, *options.complete_path(context, parameter, incomplete)]


@click.command("import", help=HELP)
@click.argument(
    "words", metavar="[KIND] FILE...", nargs=-1, required=True, shell_complete=_complete_word
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the fragment to FILE instead of standard output.",
)
@click.option(
    "--site",
    is_flag=True,
    help="Print a site file: only the settings that other jobs share, without values of secrets.",
)
@options.format_option("yaml", "json")
def command(words: tuple[str, ...], output: Path | None, *, site: bool, style: str) -> None:
    """Print the spec fragment that is read from files, or write it to the file ``output``."""
    from parc.compiler.catalog.huggingface.config import split_config_path
    from parc.compiler.diagnostics import Sink, SpecPositions
    from parc.compiler.report.formatting import json_text
    from parc.compiler.spec.reading.source import read_source
    from parc.compiler.tools.importers.format_fragment import fragment_json, fragment_yaml
    from parc.compiler.tools.importers.import_files import MOST_BYTES, import_files

    kind, files = _kind_and_files(words)
    sink = Sink()
    parts = [split_config_path(_plan_of_folder(name, sink)) for name in files]
    sources = [read_source(path, MOST_BYTES) for path, _ in parts]
    texts = [
        (source.text, f"{source.name}#{part}" if part else source.name)
        for source, (_, part) in zip(sources, parts, strict=True)
    ]
    lines = {name: tuple(text.splitlines()) for text, name in texts}
    # As for the files of a spec, findings show only words: the output may go to a public log.
    sink.positions = SpecPositions(files[0], lines=lines, word_only=frozenset(lines))
    found = import_files(kind, texts, sink)
    if found is not None and site:
        from parc.compiler.tools.importers.site_fragment import site_of_fragment

        found = replace(found, fragment=site_of_fragment(found.fragment))
    text = ""
    if found is not None and style == "yaml":
        text = fragment_yaml(found.fragment, found.kinds, sink)
    elif found is not None:
        text = json_text(fragment_json(found.fragment, sink))
    if sink.failed():
        command_steps.exit_with_findings((sink,), "text")
    command_steps.show_findings((sink,), "text", sys.stderr)
    _print_or_write(text, output)


def _kind_and_files(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the format and the files that the command line names; UsageError without files.

    The format is ``auto`` if the first word is a file, even if a format has the same name.
    """
    from parc.compiler.catalog.huggingface.config import split_config_path

    first, *rest = words
    if first in KINDS and (rest or not Path(first).exists()):
        if not rest:
            raise click.UsageError(f"no file after KIND, which is {first}")
        return first, tuple(rest)
    if first != "-" and not Path(split_config_path(first)[0]).exists():
        near = get_close_matches(first, KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the kinds are {', '.join(KINDS)}"
        raise click.UsageError(f"{first!r} is neither a KIND nor a file; {hint}")
    return "auto", words


def _plan_of_folder(name: str, sink: Sink) -> str:
    """Return the path of plan.json if ``name`` is an output folder of PARC; otherwise ``name``.

    Files in the folder that were edited after the compile are reported (I08).
    """
    folder = Path(name)
    if name == "-" or not folder.is_dir():
        return name
    from parc.compiler.report.json.output_directory import read_locked_files
    from parc.compiler.report.json.plan_json import PLAN_PATH
    from parc.compiler.tools.importers.parc_plan import report_changed_files

    if not (folder / PLAN_PATH).is_file():
        raise click.UsageError(f"{name} is a folder without {PLAN_PATH}")
    report_changed_files(read_locked_files(folder), name, sink)
    return str(folder / PLAN_PATH)


def _print_or_write(text: str, output: Path | None) -> None:
    from parc.compiler.writer import write_file

    if output is None:
        click.echo(text, nl=False)
        return
    head = "# parc import " if text.startswith("#") else '{\n  "format": 1,\n  "notes"'
    write_file(output, text, head, by="parc import")
    click.echo(f"wrote {output}")
