"""Text of a starter spec, chosen so that it compiles without an edit."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from parc.backends.registry import built_in_backends, engine, framework
from parc.compiler.catalog.find_model import find_checkpoint_precision
from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts.params import total_params
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.diagnostics.flow_yaml import scalar_text
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.model import Model
from parc.compiler.pipeline import check_spec
from parc.compiler.resolve.resolve_checkpoint import unplanned_format_finding
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.tools.importers.format_fragment import block_lines
from parc.compiler.tools.starter.cluster import StarterCluster
from parc.compiler.tools.starter.failures import OUTSIDE_FOLDER, is_oversized, main_failure

Kind = Literal["train", "finetune", "serve"]
_REMOTE_CODE, _ARGS_FIX = "PARC-V31", "launch.args: "
"""Code of the finding that an engine cannot load the model, and the field that its fix sets."""
MOST_HOSTS = 1024
"""Largest number of hosts that is tried for a job without --gpus."""
BYTES_PER_PARAM = {"train": 18, "finetune": 18, "serve": 2}
"""Device memory per parameter below which no number of hosts is tried: weights, gradients and
optimizer state for training; bf16 weights for serving."""
_CHECKPOINT_PRECISIONS = ("bf16", "fp8", "mxfp4", "int4", "fp16")
"""Number formats of checkpoints to serve, in the order in which they are tried. Some models are
published only with quantized weights."""
_TRAINING_SEQUENCES = 256
"""Smallest global batch. With 8,192 tokens per sequence, it has 2 M tokens."""
_SEQUENCE_LENGTHS = (8192, 4096, 2048)
"""Tokens per sequence, in the order in which they are tried. The logits of a long sequence
may not fit on a device with little memory, on any number of hosts."""
_HEAD = """\
# yaml-language-server: $schema=spec.schema.json
# The line above lets an editor complete and check this file: parc schema spec > spec.schema.json
# Next: parc compile THIS_FILE, then {start}
parc: 1
name: {name}
model: {model}   # a name of parc catalog models, a path to a config.json, or a Hugging Face id
"""
_TRAIN = """\
job:
  kind: {kind}
  sequence_length: {sequence}
  global_batch: {batch}   # sequences per step, or {{tokens: 4M}}
  precision: {precision}
  # Without data, the program trains on mock data. Before a real run, set these fields:
  # data: [/data/corpus]   # paths in the notation of the framework; parc explain job.data
  # tokenizer_model: /data/tokenizer
  # checkpoint_dir: /checkpoints/{name}   # a job saves here, and the next job resumes from here
  # tokens: 1T   # length of the run; without it, 1,000 steps
{load}goals:
  maximize: throughput
"""
_LOAD = "  load_dir: /checkpoints/base   # checkpoint from which the run starts: edit this path\n"
_SERVE = """\
job:
  kind: serve
  # The traffic of all engines together; request_rate: 4 instead of concurrency sets a rate.
  traffic: {{input_tokens: {input}, output_tokens: {output}, concurrency: {concurrency}}}
  precision: {precision}   # of the checkpoint: bf16, fp16, fp8, int4, nvfp4, mxfp4
{checkpoint}  max_model_len: auto   # the context of the model, or less if it does not fit
goals:
  maximize: throughput   # throughput, latency, fewest-gpus
  # ttft: 5s   # limits on the latency of a request
  # tpot: 100ms
"""
_OTHER_NODE = """\
# No node type of the catalog has this GPU. Links and NICs are copied from a similar host:
# adjust them if they differ, for example with node: {base: NAME, nics: 2, nic_speed: 100}.
"""
_OTHER_SIZE = """\
# {base} has {gpus} GPUs and {nics} NICs. The NICs are kept: if your hosts have fewer, set them,
# for example with node: {{base: {base}, gpus_per_node: {own}, nics: 2, nic_speed: 100}}.
"""
_TEXT_DECODER = "# The config describes several models. The plan covers only the text decoder.\n"
_CHECKPOINT = "  checkpoint: {path}   # folder of the weights: edit this path\n"
_MORE_SLURM = "# More keys of launch.slurm: account, qos, time_limit (parc explain launch.slurm).\n"
_NO_IMAGE = """\
# The mounts of the site need a container, but launch.slurm.container_image is not set.
"""
_OWN_PROGRAM = "train.py"
"""Training program of the user, for models for which no framework has one."""
_LAYOUT = """\
# layout: {tp: auto}   # fixed values, such as tp: 8; PARC chooses all others
"""
_SLURM = """\
# launch:
#   slurm: {partition: gpu, account: my-account, time_limit: 1-00:00:00}
"""


@frozen
class StarterRequest:
    """Model, cluster and kind of job for which a starter spec is written."""

    kind: Kind
    model: str
    cluster: StarterCluster
    image: str = ""
    """Container image; empty for none."""
    site: str = ""
    """Site of the catalog, or path of a site file; empty for none."""


@frozen
class Attempt:
    """Values of a starter spec that are tried in turn."""

    target: str
    """Framework or engine."""
    precision: str
    hosts: int
    sequence_length: int
    """Tokens per sequence; for a service, without effect."""
    own_files: bool
    """True if the user must write the training program, because no framework has one for the model,
    or must name the checkpoint to serve, because the catalog has none."""
    permission: Finding | None = None
    """Finding whose fix sets ``launch.args`` to a flag that permits code from the checkpoint, which
    the engine needs for this model; None if it needs no such code."""


def _published_format(request: StarterRequest, library: Library, sink: Sink) -> str:
    """Return the format of quantized weights that a config.json states; empty if it is unknown.

    A format that no service of PARC can have is reported to ``sink``.
    """
    stated = find_checkpoint_precision(request.model, library)
    if stated is None:
        return ""
    if not stated.precision and request.kind == "serve":
        sink.report("X08", unplanned_format_finding(stated), at="model")
    return stated.precision


def write_starter(request: StarterRequest, folder: Path, sink: Sink) -> str | None:
    """Return the text of a spec that compiles; None after an error.

    The frameworks are tried in their order with several precisions, then with a program of the
    user, and then with permission to run code from the checkpoint. Without a number of hosts, it is
    doubled until the job fits in memory; if it never does, shorter sequences are tried. If nothing
    compiles, ``sink`` gets the findings of the first framework.

    Args:
        request: the job.
        folder: folder of the spec, to which a path of a model is relative.
        sink: receives the findings if no text is returned.
    """
    library = Library(folder, folder, OUTSIDE_FOLDER)
    found = Sink(sink.positions)
    model = resolve_model(request.model, library, found)
    if model is None and (decoder := _text_decoder(request.model, library)) is not None:
        request, model, found = replace(request, model=decoder[0]), decoder[1], Sink()
    published = _published_format(request, library, found)
    if model is None or found.failed():
        sink.extend(found)
        return None
    shown, serves = None, request.kind == "serve"
    sizes = product(_sequence_lengths(request, model), _host_counts(request, model))
    for length, hosts in sizes:
        failed: list[Sink] = []
        attempts = list(_attempts(request, hosts, length, published))
        for attempt in attempts:  # grows: attempts that need a permission come last
            text = starter_text(request, attempt, model)
            found = Sink()
            check_spec(SpecSource("<parc init>", text, folder), (), found)
            if not found.failed():
                return text
            failed.append(found)
            if attempt.permission is None and (permission := _needed_permission(found)):
                attempts.append(replace(attempt, permission=permission))
            # A quantized checkpoint may fit; for training, only more hosts help.
            if is_oversized(found) and (not serves or request.cluster.hosts is None):
                break
        shown = main_failure(failed, [one.own_files for one in attempts])
        if not any(map(is_oversized, failed)):  # more hosts would not help
            break
    if shown is not None:
        sink.positions = shown.positions
        sink.extend(shown)
    return None


def _text_decoder(name: str, library: Library) -> tuple[str, Model] | None:
    """Return (name, model) of the text decoder in a config of several models; None without one."""
    from parc.compiler.catalog.huggingface.config import TEXT_PARTS

    for part in () if "#" in name else TEXT_PARTS:
        decoder = f"{name}#{part}"
        model = resolve_model(decoder, library, Sink())
        if model is not None:
            return decoder, model
    return None


def _needed_permission(sink: Sink) -> Finding | None:
    """Return the finding that the engine needs a flag to run code from the checkpoint."""
    findings = (one.finding for one in sink.diagnostics if one.code == _REMOTE_CODE)
    return next((one for one in findings if one.fix.startswith(_ARGS_FIX)), None)


def _host_counts(request: StarterRequest, model: Model) -> Iterator[int]:
    """Yield the numbers of hosts to try, the smallest first."""
    if request.cluster.hosts is not None:
        yield request.cluster.hosts
        return
    cluster = request.cluster
    needed = BYTES_PER_PARAM[request.kind] * total_params(model)
    least = needed / (cluster.gpu.memory_bytes * cluster.gpus_per_node)
    hosts: int = 2 ** max(0, math.ceil(math.log2(least)))
    while hosts <= MOST_HOSTS:
        yield hosts
        hosts *= 2


def _sequence_lengths(request: StarterRequest, model: Model) -> tuple[int, ...]:
    """Return the numbers of tokens per sequence to try, the largest first."""
    limited = dict.fromkeys(min(one, model.position.max_positions) for one in _SEQUENCE_LENGTHS)
    return tuple(limited)[:1] if request.kind == "serve" else tuple(limited)


def _attempts(
    request: StarterRequest, hosts: int, length: int, published: str
) -> Iterator[Attempt]:
    """Yield the attempts in order; ``published`` is the precision of the checkpoint, if known."""
    role: Literal["engine", "framework"] = "engine" if request.kind == "serve" else "framework"
    targets = [one.name for one in built_in_backends(role)]
    if request.kind == "serve":
        precisions = (published,) if published else _CHECKPOINT_PRECISIONS
        for own, precision, target in product((False, True), precisions, targets):
            yield Attempt(target, precision, hosts, length, own)
        return
    # fp16 is for GPUs before Ampere, which have no bf16.
    for own, precision, target in product((False, True), ("bf16", "fp16"), targets):
        yield Attempt(target, precision, hosts, length, own)


def starter_text(request: StarterRequest, attempt: Attempt, model: Model) -> str:
    """Return the text of a starter spec for ``request`` with the values of ``attempt``."""
    cluster = request.cluster
    section = (
        dict(cluster.section) if cluster.has_names else {**cluster.section, "nodes": attempt.hosts}
    )
    name = re.sub(r"[^A-Za-z0-9._-]", "-", model.name).lstrip("._-")[:128] or "my-run"
    gpus = attempt.hosts * cluster.gpus_per_node
    context = model.position.max_positions
    values = {
        "name": f"{name}-serve" if request.kind == "serve" else name,
        "precision": attempt.precision,
        "kind": "finetune" if request.kind == "finetune" else "pretrain",
        "checkpoint": _CHECKPOINT.format(path=f"/models/{name}") if attempt.own_files else "",
        "load": _LOAD if request.kind == "finetune" else "",
        "sequence": attempt.sequence_length,
        # With a power of two per GPU, every small micro-batch size divides the batch.
        "batch": gpus << (math.ceil(_TRAINING_SEQUENCES / gpus) - 1).bit_length(),
        "input": min(2000, context * 3 // 5),
        "output": min(500, context // 5),
        "concurrency": max(64, 8 * gpus),
    }
    parts = [
        _HEAD.format(
            model=scalar_text(request.model),
            name=values["name"],
            start=_start_text(request, attempt, str(values["name"]), model),
        ),
        _TEXT_DECODER if "#" in request.model else "",
        *([f"site: {request.site}\n"] if request.site else []),
        _OTHER_NODE if cluster.has_similar_node else "",
        _gpu_comment(cluster),
        _size_comment(cluster, attempt.hosts),
        "\n".join(block_lines({"cluster": section}, "")) + "\n",
        (_SERVE if request.kind == "serve" else _TRAIN).format(**values),
        _LAYOUT,
        _launch_text(request, attempt),
        f"emit: [{', '.join(_emitted_targets(request, attempt.target))}]\n",
    ]
    return "".join(parts)


def _gpu_comment(cluster: StarterCluster) -> str:
    """Return the comment above section ``cluster`` about the choice of the GPU; empty for none."""
    note = cluster.choice.note if cluster.choice else ""
    lines = textwrap.wrap(note[:1].upper() + note[1:] + " to parc init.", 97) if note else []
    return "".join(f"# {line}\n" for line in lines)


def _size_comment(cluster: StarterCluster, hosts: int) -> str:
    """Return the comment about hosts with another number of GPUs than their node type.

    It is empty for a single host, whose NICs have no effect, and for hosts that the site describes.
    """
    node = cluster.section.get("node")
    base = node.get("base") if isinstance(node, dict) else None
    if hosts == 1 or base is None or cluster.has_similar_node:
        return ""
    facts = Library().entry("nodes", base)
    if facts["gpus_per_node"] == cluster.gpus_per_node or not facts["nics"]:
        return ""
    return _OTHER_SIZE.format(
        base=base, gpus=facts["gpus_per_node"], nics=facts["nics"], own=cluster.gpus_per_node
    )


def _launch_text(request: StarterRequest, attempt: Attempt) -> str:
    """Return section ``launch`` of a starter spec, commented out if it needs no key."""
    launch: dict[str, Any] = {}
    keys: dict[str, Any] = {}
    hints: list[str] = []
    if attempt.own_files and request.kind != "serve":
        launch["program"] = _OWN_PROGRAM
        hints.append(f"# {attempt.target} has no program for this model: write it.\n")
    if attempt.permission is not None:
        launch["args"] = attempt.permission.fix.removeprefix(_ARGS_FIX).strip("[]").split(", ")
        help_text = attempt.permission.help
        hints.append(f"# {help_text[:1].upper()}{help_text[1:]}.\n")
    scheduler = request.cluster.scheduler
    of_site = request.cluster.site.get("launch", {}).get(scheduler, {})
    if scheduler == "kubernetes":
        image = request.image
        if not image and not of_site.get("image"):
            image = _engine_image(request, attempt)
        if not image and not of_site.get("image"):
            image = f"registry.example.com/{attempt.target}:latest"
            hints.append(f"# Edit the image: the name of yours, with {attempt.target}.\n")
        keys["image"] = image
        if attempt.hosts > 1 and not of_site.get("resources"):
            keys["resources"] = dict(request.cluster.pod_resources)
    else:
        partition = "" if of_site.get("partition") else request.cluster.partition
        keys = {"partition": partition, "container_image": request.image}
        if any(keys.values()):
            hints.append(_MORE_SLURM)
        if of_site.get("container_mounts") and not (
            request.image or of_site.get("container_image")
        ):
            hints.append(_NO_IMAGE)
    if any(keys.values()):
        launch[scheduler] = {key: value for key, value in keys.items() if value}
    lines = block_lines({"launch": launch}, "") if launch else []
    return "".join(hints) + ("".join(f"{line}\n" for line in lines) or _SLURM)


def _engine_image(request: StarterRequest, attempt: Attempt) -> str:
    """Return the official container image of the engine of a service; empty if there is none."""
    if request.kind != "serve":
        return ""
    target = engine(attempt.target)
    return target.image(target.default_version, request.cluster.gpu.vendor)


def _start_text(request: StarterRequest, attempt: Attempt, name: str, model: Model) -> str:
    """Return the command that starts the compiled job, and the folder in which it is run."""
    if request.cluster.scheduler == "kubernetes":
        return f"kubectl apply -f build/{name}/kubernetes"
    submit = f"sbatch build/{name}/slurm/job.sbatch"
    if request.kind == "serve":
        return submit
    target = framework(attempt.target)
    program = target.default_program(model, target.default_version)
    if attempt.own_files:
        program = _OWN_PROGRAM
    return f"{submit} in the folder of {program}" if program else submit


def _emitted_targets(request: StarterRequest, target: str) -> list[str]:
    """Return the backends that emit files, sorted."""
    starters = {"rankmap", request.cluster.scheduler}
    if request.cluster.scheduler == "slurm" and request.kind != "serve":
        # As in a spec without emit: the ranks are checked before the program starts.
        starters |= {"preflight", "torchrun"}
    return sorted({target, *starters})
