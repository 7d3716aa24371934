"""Command ``parc init``."""

from __future__ import annotations

import click

from parc.backends.registry import built_in_backends

STARTER = """\
# yaml-language-server: $schema=spec.schema.json
# The line above lets an editor complete and check this file: parc schema spec > spec.schema.json
parc: 1
name: my-run
model: llama-3-8b                  # parc catalog models, or a path to a config.json
cluster:
  node: dgx-h100                   # parc catalog nodes
  racks:
    - {name: r01, nodes: "r01n[01-04]"}
    - {name: r02, nodes: "r02n[01-04]"}
  spare: [r02n04]
job:
  kind: pretrain
  sequence_length: 8192
  global_batch: 448                # sequences per step, or {tokens: 4M}
  precision: bf16
goals:
  maximize: throughput
  memory_headroom: 8%
layout:                            # pins; PARC chooses values that are absent or auto
  tp: auto
  pp: auto
emit: [{emit}]
"""


SERVING = """\
# yaml-language-server: $schema=spec.schema.json
# The line above lets an editor complete and check this file: parc schema spec > spec.schema.json
parc: 1
name: my-service
model: llama-3.1-70b               # parc catalog models, or a path to a config.json
cluster:
  node: dgx-h100                   # parc catalog nodes
  racks:
    - {name: r01, nodes: "r01n[01-02]"}
job:
  kind: serve
  traffic: {input_tokens: 2000, output_tokens: 500, concurrency: 64}   # or request_rate: 4
  precision: bf16                  # of the checkpoint: bf16, fp16, fp8, int4, nvfp4, mxfp4
  max_model_len: auto              # the context of the model, or less if it does not fit
goals:
  maximize: throughput             # throughput, latency, fewest-gpus
  ttft: 5s                         # limits on latency
  tpot: 100ms
  memory_headroom: 8%
layout:                            # pins; PARC chooses values that are absent or auto
  tp: auto
  replicas: auto
emit: [{emit}]
"""


LAUNCHERS = {"train": ("rankmap", "slurm", "torchrun"), "serve": ("rankmap", "slurm")}
"""Targets of a starter spec besides the default framework or engine."""


@click.command("init")
@click.option(
    "--kind",
    type=click.Choice(["train", "serve"]),
    default="train",
    show_default=True,
    help="Type of the job: train a model or serve one.",
)
def command(kind: str) -> None:
    """Print a starter spec.

    Usage: parc init > spec.yaml, edit the file, then parc check spec.yaml.
    """
    serves = kind == "serve"
    (binding, *_), others = built_in_backends("engine" if serves else "framework"), LAUNCHERS[kind]
    emit = ", ".join(sorted((binding.name, *others)))
    click.echo((SERVING if serves else STARTER).replace("{emit}", emit), nl=False)
