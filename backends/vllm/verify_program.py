"""Fixed lines of ``vllm/serve.sh``: the code around the settings of the plan.

The lines are written here a second time, because a verifier shares no code with the emitter. Lines
in angle brackets stand for settings, which ``verify_script`` reads; the reader removes ``-n`` from
tests, because bash ignores it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from parc.backends.shared.verify_launch_environment import MARKER

_HEAD = r"""
#!/bin/bash
set -euo pipefail
die() {
printf 'serve.sh: %s\n' "$*" >&2
exit 2
}
<export>
<nodes>
"""
_INHERITED = r"""
for name in {names}; do
export "$name"
[[ ${{!name:-}} ]] || die "$name is not set: launch.env takes its value from the environment"
done
"""
_SINGLE = "NODE_RANK=${NODE_RANK:-0}"
_NAMED = r"""
<hosts>
[[ -z ${PARC_HOSTS:-} ]] || read -ra hosts <<< "$PARC_HOSTS"
find_node_rank() {
local short full rank hits=0 found=
short=$(hostname -s 2>/dev/null || hostname)
full=$(hostname -f 2>/dev/null || hostname)
for rank in "${!hosts[@]}"; do
if [[ ${hosts[rank]} == "$full" ]]; then
printf '%s\n' "$rank"
return
fi
if [[ ${hosts[rank]} == "$short" || ${hosts[rank]%%.*} == "$short" ]]; then
found=$rank
hits=$((hits + 1))
fi
done
[[ $hits -eq 1 ]] && printf '%s\n' "$found"
}
named_rank=$(find_node_rank) || named_rank=
NODE_RANK=${NODE_RANK:-$named_rank}
[[ $NODE_RANK ]] ||
die "$(hostname) is not in ${hosts[*]}, or not unique: set NODE_RANK"
[[ -z $named_rank || $NODE_RANK == "$named_rank" ]] ||
die "NODE_RANK is '$NODE_RANK', but $(hostname) has node rank $named_rank in ${hosts[*]}"
"""
_NAMELESS = r"""
[[ ${NODE_RANK:-} ]] || die "the plan names no hosts: set NODE_RANK, 0 to $((nodes - 1))"
[[ ${PARC_HOSTS:-} ]] || die "the plan names no hosts: set PARC_HOSTS to the hosts by node rank"
read -ra hosts <<< "$PARC_HOSTS"
"""
_COUNT = '[[ ${#hosts[@]} -eq $nodes ]] || die "PARC_HOSTS has ${#hosts[@]} hosts, must be $nodes"'
_RANGE = r"""
[[ $NODE_RANK =~ ^(0|[1-9][0-9]{0,6})$ && $NODE_RANK -lt $nodes ]] ||
die "NODE_RANK is '$NODE_RANK', must be 0 to $((nodes - 1))"
"""
_INTERFACE = r"""
<interface>
address=$(ip -o -4 address show dev "$interface" | awk '{ sub("/.*", "", $4); print $4; exit }') ||
die "no interface $interface"
[[ $address ]] || die "interface $interface has no IPv4 address"
export VLLM_HOST_IP=$address
"""
_START = r"""
<common>
pids=()
start() {
local devices=$1
shift
<start>
pids+=("$!")
}
<case>
stop() {
trap - TERM INT
kill -TERM "${pids[@]}" 2>/dev/null || true
}
trap stop TERM INT
status=0
wait -n "${pids[@]}" || status=$?
stop
wait "${pids[@]}" || true
exit "$status"
"""


def program_lines(*, nodes: int, named: bool, interface: bool, variables: list[str]) -> list[str]:
    """Return the lines that the script must have, in order.

    Args:
        nodes: number of hosts.
        named: True if the script lists the names of its hosts.
        interface: True if the script looks up the address of a network interface.
        variables: lines that set variables, from ``variable_lines``.
    """
    hosts = _SINGLE if nodes == 1 else f"{_NAMED if named else _NAMELESS}{_COUNT}"
    texts = (_HEAD, hosts, _RANGE, _INTERFACE if interface else "", _START)
    lines = [line for text in texts for line in text.split("\n") if line]
    at = lines.index("<export>")
    return [*lines[:at], *variables, *lines[at + 1 :]]


def variable_lines(exports: int, *, setup: bool, inherited: Sequence[str]) -> list[str]:
    """Return the lines of a script with commands of ``launch.setup`` and variables.

    The script exports ``exports`` values, and takes ``inherited`` from its environment.
    """
    own = _INHERITED.format(names=shlex.join(inherited)).split("\n") if inherited else ()
    lines = [*([MARKER] if setup else ()), *["<export>"] * exports, *own]
    return [line for line in lines if line]
