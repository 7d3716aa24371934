"""Command ``parc init``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from parc.compiler.cli import command_steps, options

if TYPE_CHECKING:
    from parc.compiler.diagnostics import Sink
    from parc.compiler.tools.starter.cluster import StarterCluster
    from parc.compiler.tools.starter.starter_spec import Kind

MODELS = {"train": "llama-3-8b", "finetune": "llama-3-8b", "serve": "llama-3.1-70b"}
"""Kind of job -> model if none is given."""
GPU = "h100-sxm-80gb"
RUN_TOOLS = ""
"""Value of --from-slurm and --from-kubernetes without FILE."""
COMMANDS = {
    # Text, because 22.05 and installations without a serializer plugin have no --json.
    "slurm": (("scontrol", "show", "nodes"), ("scontrol", "show", "topology")),
    "kubernetes": (("kubectl", "get", "nodes", "-o", "json"),),
}
"""Scheduler -> commands that list its nodes. The first one is required."""
TOOL_SECONDS = 60


def _file_option(name: str, tool: str) -> options.Decorator:
    return click.option(
        f"--from-{name}",
        metavar="[FILE]",
        is_flag=False,
        flag_value=RUN_TOOLS,
        default=None,
        multiple=True,
        help=f"Read the hosts from the output of {tool}, or run it if FILE is absent. Can be "
        "repeated.",
    )


@click.command("init")
@click.option(
    "--kind",
    type=click.Choice(["train", "finetune", "serve"]),
    help="Kind of the job; the default is train.",
)
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=options.complete_entry("models"),
    help="Name of parc catalog models, path of a config.json, or hub id.",
)
@click.option(
    "--gpu",
    metavar="TYPE",
    shell_complete=options.complete_entry("gpus"),
    help=f"GPU type, such as h100; the default is {GPU}.",
)
@click.option("--gpus", metavar="N", type=click.IntRange(1, 131_072), help="Number of GPUs.")
@_file_option("slurm", "scontrol show nodes or sinfo")
@_file_option("kubernetes", "kubectl get nodes -o json")
@click.option(
    "--partition", metavar="NAME", help="Partition of Slurm: only its hosts of the list are used."
)
@click.option(
    "--preset",
    metavar="NAME",
    shell_complete=options.complete_entry("sites"),
    help="Settings of a platform: a name of parc catalog sites, or the path of your site file.",
)
@click.option("--image", metavar="IMAGE", help="Container image with the framework or engine.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="New file.")
def command(output: Path | None, **given: Any) -> None:
    """Print a starter spec.

    The spec compiles as it is: PARC chooses a framework that supports the model. Without --gpus and
    without a list of hosts, it also chooses the smallest number of hosts that the job fits on. On
    a terminal and without options, PARC asks for model, GPUs and kind.

    Usage: parc init --model qwen3-8b --gpu h100 --gpus 64 > spec.yaml, then parc compile spec.yaml.
    """
    from parc.compiler.diagnostics import Sink
    from parc.compiler.tools.starter.choose_gpu import StarterError
    from parc.compiler.tools.starter.failures import is_oversized
    from parc.compiler.tools.starter.starter_spec import StarterRequest, write_starter

    if output is not None and output.exists():
        raise click.UsageError(f"{output} exists and is not overwritten")
    if not any(given.values()) and sys.stdin.isatty() and sys.stderr.isatty():
        given |= _prompt_for_options()
    kind: Kind = given["kind"] or "train"
    sink = Sink()
    folder = output.parent if output else Path()
    try:
        cluster = _requested_cluster(sink, folder, **given)
    except StarterError as error:
        raise click.UsageError(str(error)) from error
    text = None
    if cluster is not None:
        model, image = given["model"] or MODELS[kind], given["image"] or ""
        request = StarterRequest(kind, model, cluster, image, given["preset"] or "")
        text = write_starter(request, folder, sink)
    if text is None:
        if given["gpus"] and is_oversized(sink):
            listed = given["from_slurm"] or given["from_kubernetes"]
            used = "all hosts of the list" if listed else "as many GPUs as the job needs"
            click.echo(f"parc: without --gpus, parc init uses {used}", err=True)
        command_steps.exit_with_findings((sink,), "text")
    command_steps.show_findings((sink,), "text", sys.stderr)
    assert text is not None
    if cluster is not None and cluster.choice is not None and cluster.choice.note:
        click.echo(f"parc: {cluster.choice.note}", err=True)
    if output is None:
        click.echo(text, nl=False)
        return
    from parc.compiler.writer import write_file

    write_file(output, text, text, by="parc init")
    click.echo(f"wrote {output}; next: parc compile {output}")


def _prompt_for_options() -> dict[str, Any]:
    """Return the options that the user types; standard output stays free for the spec."""
    from parc.compiler.catalog.find_hardware import find_gpus

    kinds = click.Choice(["train", "finetune", "serve"])
    kind = click.prompt("Kind of job", type=kinds, default="train", err=True)
    model = click.prompt(
        "Model (catalog name, config.json or Hugging Face id)", default=MODELS[kind], err=True
    )
    gpu = click.prompt("GPU type", default=GPU, err=True)
    variants = find_gpus(gpu)
    if len(variants) > 1:
        which = f"Several GPUs are called {gpu}; which one"
        gpu = click.prompt(which, type=click.Choice(variants), default=variants[0], err=True)
    gpus = click.prompt("Number of GPUs (0: as few as possible)", type=int, default=0, err=True)
    return {"kind": kind, "model": model, "gpu": gpu, "gpus": gpus or None}


def _requested_cluster(
    sink: Sink, folder: Path, gpu: str | None, gpus: int | None, **given: Any
) -> StarterCluster | None:
    """Return the cluster that the options describe; None after an error in a file."""
    from parc.compiler.catalog.library import Library, is_user_file_path
    from parc.compiler.diagnostics import SpecPositions
    from parc.compiler.resolve.apply_site import read_site
    from parc.compiler.tools.starter.choose_gpu import StarterError
    from parc.compiler.tools.starter.cluster import (
        HostRequest,
        cluster_of_files,
        cluster_of_gpus,
        resolve_hosts,
    )
    from parc.compiler.tools.starter.failures import OUTSIDE_FOLDER

    from_slurm, from_kubernetes = given["from_slurm"], given["from_kubernetes"]
    if from_slurm and from_kubernetes:
        raise click.UsageError("--from-slurm and --from-kubernetes cannot be combined")
    preset = given["preset"]
    names = Library().names("sites")
    if preset and preset not in names and not is_user_file_path(preset):
        raise StarterError(f"the catalog has no site {preset!r}; valid names: {', '.join(names)}")
    library = Library(folder, folder, OUTSIDE_FOLDER)
    site = read_site(preset, library, sink) if preset else None
    if site is not None:
        sink.positions = replace(sink.positions, values=site.values, keys=site.keys)
    settings = site.value if site else {}
    hosts = resolve_hosts({}, settings, library, sink)
    if sink.failed():
        return None
    without_type = "" if preset or from_slurm or from_kubernetes else GPU
    partition = given["partition"] or ""
    request = HostRequest(gpu or without_type, gpus, settings, hosts, library, partition)
    if not from_slurm and not from_kubernetes:
        found = cluster_of_gpus(request, sink)
        return replace(found, partition=partition) if found else None
    scheduler = "slurm" if from_slurm else "kubernetes"
    files = _read_node_lists(scheduler, from_slurm or from_kubernetes)
    lines = {name: tuple(text.splitlines()) for text, name in files}
    sink.positions = SpecPositions(files[0][1], lines=lines, word_only=frozenset(lines))
    return cluster_of_files(files, request, sink)


def _read_node_lists(scheduler: str, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (text, name) of each file, or of the output of each tool of the scheduler."""
    from parc.compiler.spec.reading.source import read_source
    from parc.compiler.tools.importers.import_files import MOST_BYTES

    found = []
    for name in names:
        if name != RUN_TOOLS:
            source = read_source(name, MOST_BYTES)
            found.append((source.text, source.name))
            continue
        for index, words in enumerate(COMMANDS[scheduler]):
            text = _run_tool(words, required=index == 0)
            if text:
                found.append((text, " ".join(words)))
    return found


def _run_tool(words: tuple[str, ...], *, required: bool) -> str:
    """Return the output of a tool; empty if it fails and is not required."""
    if shutil.which(words[0]) is None:
        raise click.UsageError(
            f"{words[0]} is not installed here: run `{' '.join(words)}` on a host that has it, and "
            "pass the output as FILE"
        )
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise click.UsageError(f"`{' '.join(words)}` took more than {TOOL_SECONDS} s") from error
    if done.returncode == 0:
        return done.stdout
    if required:
        reason = done.stderr.strip().partition("\n")[0]
        raise click.UsageError(f"`{' '.join(words)}` failed: {reason}")
    return ""
