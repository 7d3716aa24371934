"""``minserve/serve.sh``: the processes of each host, for the node rank in ``NODE_RANK``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from parc.backends.shared.field_table import flag_table, value_at_path
from parc.compiler.ir import Artifact, JobStart, ServingPlan

PATH = "minserve/serve.sh"
PROCESSES = "processes"
"""Group of ``flags.yaml`` with the flags that differ between processes."""
TEMPLATE = """\
#!/bin/bash
# Minserve {version}: {replicas} x (tp {tp} x dp {dp}). Rank map: rankmap.csv.
# Run it on each host, with the node rank of the host in NODE_RANK. Hosts that the plan does not
# name, or other names for them, are in PARC_HOSTS, by node rank and separated by spaces.
set -euo pipefail
{exports}
hosts=({hosts})
[[ -z ${{PARC_HOSTS:-}} ]] || read -ra hosts <<< "$PARC_HOSTS"
[[ ${{#hosts[@]}} -eq {nodes} ]] || {{ echo "PARC_HOSTS must have {nodes} names" >&2; exit 2; }}

common=(
{common}
)

# start GPUS ARGUMENT...: one process on some GPUs of this host
start() {{
  CUDA_VISIBLE_DEVICES=$1 minserve serve "${{common[@]}}" "${{@:2}}" &
}}

# A process that ends stops the script, and the script stops the other ones.
trap 'jobs -p | xargs -r kill' EXIT
case ${{NODE_RANK:?}} in
{branches}
  *)
    echo "NODE_RANK must be 0 to {last}" >&2
    exit 2
    ;;
esac
wait -n
"""


@dataclass(frozen=True, slots=True)
class Process:
    """Single ``minserve serve`` process: ranks of one engine on consecutive GPUs of a host."""

    node: int
    gpus: range
    first_rank: int
    """Rank of its first GPU within the engine; the other GPUs follow."""
    head: int
    """Node rank of the engine's first host, where its processes meet."""
    port: int


def processes(plan: ServingPlan) -> Iterator[Process]:
    """Yield the processes by host: a part of an engine, or one of several engines."""
    engine, host = plan.layout.engine_gpus, plan.placement.ranks_per_node
    local = min(engine, host)
    for rank in range(0, plan.layout.gpus, local):
        node, gpu = divmod(rank, host)
        first_rank = rank % engine
        port = plan.problem.endpoint.port + gpu // local
        yield Process(node, range(gpu, gpu + local), first_rank, (rank - first_rank) // host, port)


def flags(plan: ServingPlan) -> tuple[tuple[str, str], ...]:
    """Return (flag, value) per flag that all processes share, in the order of ``flags.yaml``."""
    rows = (row for row in flag_table(__package__ or "").rows if row.group != PROCESSES)
    return tuple((row.setting, str(value_at_path(plan, row.fields[0]))) for row in rows)


def serve_script(plan: ServingPlan, environment: tuple[tuple[str, str, str], ...]) -> Artifact:
    """Return the script; each value that comes from the spec is quoted for the shell."""
    layout, problem, hosts = plan.layout, plan.problem, plan.placement.hosts
    names = [host.name for host in hosts] if problem.cluster.named else []
    running = list(processes(plan))
    text = TEMPLATE.format(
        version=problem.version("minserve"),
        replicas=layout.replicas,
        tp=layout.tp,
        dp=layout.dp,
        exports="".join(
            f"export {shlex.join([name])}={shlex.quote(value)}\n" for name, value, _ in environment
        ),
        hosts=shlex.join(names),
        nodes=len(hosts),
        last=len(hosts) - 1,
        common="\n".join(f"  {shlex.join(flag)}" for flag in flags(plan)),
        branches="\n".join(_branch(node, running) for node in range(len(hosts))),
    )
    return Artifact(PATH, text, True, JobStart(hosts=len(hosts)))


def _branch(node: int, running: list[Process]) -> str:
    """Return the branch of a host: a line per process."""
    starts = (
        f"    start {','.join(map(str, one.gpus))} --port {one.port} "
        f'--first-rank {one.first_rank} --head "${{hosts[{one.head}]}}"\n'
        for one in running
        if one.node == node
    )
    return f"  {node})\n{''.join(starts)}    ;;"
