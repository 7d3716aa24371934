"""``parc import``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parc.compiler.cli import options, session

if TYPE_CHECKING:
    from parc.compiler.diagnostics import Sink

MOST_BYTES = 64 * 1024 * 1024
"""The node list of 16,384 hosts has some 40 MB."""
KINDS = (
    "auto",
    "slurm-topology",
    "scontrol-nodes",
    "nvidia-smi-topo",
    "topograph",
    "k8s-nodes",
    "aws",
    "gcp",
    "oci",
    "lambda",
    "ibnetdiscover",
    "nccl-tests",
    "hf-config",
    "deepspeed-json",
    "sbatch",
    "megatron-args",
    "vllm-args",
)


@click.command("import")
@click.argument("kind", metavar="KIND", type=click.Choice(KINDS))
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the fragment to FILE.",
)
@options.format_option("yaml", "json")
def command(kind: str, files: tuple[str, ...], output: Path | None, style: str) -> None:
    """Print a spec fragment made from files of other tools.

    KIND is auto (seen from the content), or one of slurm-topology, scontrol-nodes,
    nvidia-smi-topo, topograph, k8s-nodes, aws, gcp, oci, lambda, ibnetdiscover (clusters),
    nccl-tests (a calibration), hf-config (a model), megatron-args, deepspeed-json, vllm-args,
    sbatch (a layout and a job). Several files of one kind become one fragment; - is standard
    input. What has no field in a spec is named, at its line. docs/import.md has the details.
    """
    from parc.compiler.diagnostics import Positions, Sink
    from parc.compiler.importers.fragment_text import fragment_json, fragment_yaml
    from parc.compiler.importers.registry import read_files
    from parc.compiler.report.numbers import json_text
    from parc.compiler.spec.source import read_source

    sources = [read_source(name, MOST_BYTES) for name in files]
    texts = [(source.text, source.name) for source in sources]
    lines = {name: tuple(text.splitlines()) for text, name in texts}
    sink = Sink(Positions(files[0], lines=lines))
    chosen = _kind(kind, texts, sink)
    fragment = read_files(chosen, texts, sink) if chosen else None
    if fragment is None:
        session.fail((sink,), "text")
    assert fragment is not None
    assert chosen is not None
    text = (
        fragment_yaml(fragment, chosen, sink)
        if style == "yaml"
        else json_text(fragment_json(fragment, sink))
    )
    if sink.failed():
        session.fail((sink,), "text")
    session.show((sink,), "text", sys.stderr)
    _out(text, output)


def _kind(kind: str, texts: list[tuple[str, str]], sink: Sink) -> str | None:
    """The kind of all files; I06 for one that is too large, I05 for one of no known kind."""
    from parc.compiler.diagnostics import Finding, Span
    from parc.compiler.importers.registry import KINDS as READERS
    from parc.compiler.topology.readers.registry import sniff

    found = set()
    for text, name in texts:
        if len(text) > MOST_BYTES:
            finding = Finding(f"{name} has more than {MOST_BYTES} bytes")
            sink.report("I06", finding, span=Span(name, 1, 1))
        own = kind if kind != "auto" else sniff(text, READERS)
        if own is None:
            help_ = f"parc import KIND: {', '.join(READERS)}"
            finding = Finding(f"nothing shows what wrote {name}", help=help_)
            sink.report("I05", finding, span=Span(name, 1, 1))
        found.add(own)
    if len(found) > 1 and not sink.failed():
        names = ", ".join(sorted(str(one) for one in found))
        finding = Finding(f"the files are of several kinds: {names}", help="import them one by one")
        sink.report("I05", finding, span=Span(texts[0][1], 1, 1))
    return None if sink.failed() else found.pop()


def _out(text: str, output: Path | None) -> None:
    from parc.compiler.calibration.write_file import write_file

    if output is None:
        click.echo(text, nl=False)
        return
    head = "# parc import " if text.startswith("#") else '{\n  "format": 1,\n  "notes"'
    write_file(output, text, head, by="parc import")
    click.echo(f"wrote {output}")
