"""Check launches on several hosts: node ranks, rendezvous, and the GPUs that a task can see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.tools.importers.flags import whole_number
from parc.compiler.tools.importers.script_branches import Branches
from parc.compiler.tools.importers.shell_words import Word, statements
from parc.compiler.tools.lint.launch_tasks import SlurmOption, gpus_per_host
from parc.compiler.tools.lint.script import LintedScript

_NODE_RANK = re.compile(r"--node[-_]rank[= ]+[\"']?(\d+)\b")
_PROCESSES = re.compile(r"--nproc[-_]per[-_]node[= ]+[\"']?(\d+)\b")
_HOSTS = re.compile(r"--nnodes[= ]+[\"']?(\d+)\b")
_STANDALONE = re.compile(r"--standalone\b")
_ONE_HOST = re.compile(r"(^| )(-w|--nodelist|-N ?1|--nodes[= ]1)\b")
"""Matches options with which srun starts tasks on chosen hosts only."""


def lint_hosts(
    script: LintedScript, options: Mapping[str, SlurmOption], nodes: int | None, sink: Sink
) -> None:
    """Report launches that cannot work on several hosts or with the GPUs of a task.

    Findings: the same node rank on all hosts (L08), a rendezvous that other hosts cannot join
    (L09), and more processes than visible GPUs (L34).

    Args:
        script: the script.
        options: options of the ``#SBATCH`` lines under their long names.
        nodes: number of hosts of the job; None if unknown.
        sink: receives the findings.
    """
    launches = [
        (words, " ".join(word.text for word in words)) for words in statements(script.words)
    ]
    if nodes is not None and nodes > 1:
        _check_node_rank(launches, nodes, script.branches, sink)
    visible = {
        count: one.span
        for one in options.values()
        if (count := visible_gpus(one.name, one.value)) is not None
    }
    gpus = gpus_per_host({name: one.value for name, one in options.items()}, 1)
    shared = options.get("--gpus-per-node") or options.get("--gres")
    for words, text in launches:
        _check_standalone(words, text, sink)
        limits = {**visible, **_limits_of_srun(words)}
        if not visible and gpus is not None and shared is not None:
            _check_gpus_of_host(words, text, gpus, shared.span, sink)
        if any(word.text == "srun" for word in words):
            for count, span in limits.items():
                _check_visible_gpus(text, words, count, span, sink)


def _check_node_rank(
    launches: list[tuple[list[Word], str]], nodes: int, branches: Branches, sink: Sink
) -> None:
    """Report a node rank that is a number, although srun starts the line on all hosts (L08)."""
    ranks = [match[1] for _, text in launches for match in _NODE_RANK.finditer(text)]
    if len(ranks) != 1:
        return
    for words, text in launches:
        match = _NODE_RANK.search(text)
        starts = any(word.text == "srun" for word in words)
        if match is None or not starts or _ONE_HOST.search(text):
            continue
        word = next(one for one in words if "node" in one.text and "rank" in one.text)
        if word.span in branches:
            continue
        finding = Finding(
            f"node rank {match[1]} is the same on all {nodes} hosts that srun starts",
            label="every host must have its own node rank",
            fix="--node-rank \"$SLURM_NODEID\" inside srun bash -c '...'",
        )
        sink.report("L08", finding, span=word.span)


def _check_standalone(words: list[Word], text: str, sink: Sink) -> None:
    """Report ``torchrun --standalone`` on several hosts (L09)."""
    hosts = _HOSTS.search(text)
    if hosts is None or not _STANDALONE.search(text) or int(hosts[1]) < 2:
        return
    word = next(one for one in words if "--standalone" in one.text)
    finding = Finding(
        f"--standalone waits for {hosts[1]} hosts at a rendezvous on localhost",
        label="with this flag, torchrun replaces the rendezvous by one that only its host reaches",
        fix="remove --standalone",
    )
    sink.report("L09", finding, span=word.span)


def visible_gpus(option: str, value: str) -> int | None:
    """Return the number of GPUs that an option of Slurm lets a task see; None if it sees all.

    Source: srun(1), --gpus-per-task and --gpu-bind. ``single:2`` gives two tasks the same GPU.
    """
    if option == "--gpu-bind" and value.startswith("single:"):
        return 1
    bound = option == "--gpu-bind" and value.startswith("per_task:")
    counts = bound or option == "--gpus-per-task"
    return (whole_number(value.rpartition(":")[2]) or None) if counts else None


def _limits_of_srun(words: list[Word]) -> dict[int, Span]:
    """Return (number of GPUs that a task can see -> its option) for the options of one srun."""
    found = {}
    texts = [word.text for word in words]
    start = texts.index("srun") if "srun" in texts else len(texts)
    for word, after in pairwise([*words[start:], *words[-1:]]):
        name, equals, value = word.text.partition("=")
        count = visible_gpus(name, value if equals else after.text)
        if count is not None:
            found[count] = word.span
    return found


def _check_gpus_of_host(words: list[Word], text: str, gpus: int, span: Span, sink: Sink) -> None:
    """Report a launcher that starts more processes than the job has GPUs per host (L34)."""
    processes = _PROCESSES.search(text)
    if processes is None or int(processes[1]) <= gpus:
        return
    finding = Finding(
        f"the job has {gpus} GPUs per host, but its launcher starts {processes[1]} processes per "
        "host",
        label="Slurm hides all other GPUs of the host from the job",
        help=f"or start {gpus} processes per host: --nproc-per-node {gpus}",
        fix=f"--gpus-per-node={processes[1]}",
        causes=(Cause("", "started here", words[0].span),),
    )
    sink.report("L34", finding, span=span)


def _check_visible_gpus(text: str, words: list[Word], visible: int, span: Span, sink: Sink) -> None:
    """Report a launcher that starts more processes than its task can see GPUs (L34)."""
    processes = _PROCESSES.search(text)
    if processes is None or int(processes[1]) <= visible:
        return
    finding = Finding(
        f"a task sees {visible} GPUs, but its launcher starts {processes[1]} processes",
        label="Slurm hides all other GPUs of the host from the task",
        fix=f"--gpus-per-node={processes[1]}" if visible == 1 else f"--nproc-per-node {visible}",
        causes=(Cause("", "started here", words[0].span),),
    )
    sink.report("L34", finding, span=span)
