"""``parc init``."""

from __future__ import annotations

import click

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
  global_batch: 448                # sequences a step, or {tokens: 4M}
  precision: bf16
goals:
  maximize: throughput
  memory_headroom: 8%
layout:                            # pins; what is absent or auto is decided
  tp: auto
  pp: auto
emit: [megatron, rankmap, slurm, torchrun]
"""


@click.command("init")
def command() -> None:
    """Print a starter spec.

    parc init > spec.yaml, edit it, then parc check spec.yaml.
    """
    click.echo(STARTER, nl=False)
