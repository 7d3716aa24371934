"""Verifier of ``minserve/serve.sh``: the ranks that Minserve starts, by its own arithmetic.

It imports nothing of this package, so that a mistake in ``script.py`` cannot hide itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from parc.backends.verifier import (
    DerivedRank,
    DerivedSetting,
    EngineVerifier,
    FileDependencies,
    JobShape,
)
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.read_emitted import LARGEST, MalformedFileError

SCRIPT = "minserve/serve.sh"
HOSTS = re.compile(r"^hosts=\((.*)\)$", re.MULTILINE)
COMMON = re.compile(r"^common=\(\n(.*?)^\)$", re.MULTILINE | re.DOTALL)
BRANCH = re.compile(r"^  (\d{1,7})\)\n((?:    start .*\n)*)    ;;$", re.MULTILINE)
SETTINGS = {
    "--model": "problem.service.checkpoint",
    "--weights": "problem.service.setup.weights",
    "--cache": "problem.service.setup.kv",
    "--max-length": "limits.max_model_len",
    "--max-requests": "limits.max_num_seqs",
    "--max-step-tokens": "limits.max_num_batched_tokens",
    "--block-tokens": "limits.block_tokens",
    "--memory-share": "limits.gpu_memory_utilization",
}
"""Flag of Minserve, which requires all of them -> path in ``plan.json``."""
HEAD = re.compile(r'"\$\{hosts\[(\d{1,7})\]\}"')


@dataclass(frozen=True, slots=True)
class Process:
    """Single process of the script: its host, GPUs and flags."""

    node: int
    gpus: list[int]
    flags: dict[str, str]

    def number(self, flag: str) -> int:
        """Return the value of ``flag``; MalformedFileError if it is not a plausible count."""
        return read_number(self.flags.get(flag, ""))


def read_words(text: str) -> list[str]:
    """Return the words of shell text; MalformedFileError if quotes are not closed."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise MalformedFileError(SCRIPT, 1, f"not shell words: {error}") from None


def read_match(pattern: re.Pattern[str], text: str, what: str) -> str:
    """Return the first group of ``pattern``; MalformedFileError without a match."""
    found = pattern.search(text)
    if found is None:
        raise MalformedFileError(SCRIPT, 1, f"it has no {what}")
    return found[1]


def read_flags(words: list[str]) -> dict[str, str]:
    """Return flag -> value; the last one of equal flags wins."""
    return dict(zip(words[::2], words[1::2], strict=False))


def read_number(text: str) -> int:
    """Return a count; MalformedFileError if ``text`` is not a plausible one."""
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise MalformedFileError(SCRIPT, 1, f"{text!r:.40} is not a number")
    return int(text)


def read_processes(text: str) -> Iterator[Process]:
    """Yield the processes in the order of the script, with the shared flags."""
    shared = read_flags(read_words(read_match(COMMON, text, "array common")))
    for node, lines in BRANCH.findall(text):
        for line in lines.splitlines():
            words = read_words(HEAD.sub(r"\1", line))
            gpus = [read_number(gpu) for gpu in "".join(words[1:2]).split(",")]
            yield Process(int(node), gpus, shared | read_flags(words[2:]))


class MinserveVerifier(EngineVerifier):
    """Derives hosts and ranks from the processes of the script."""

    file = SCRIPT
    builder = "Minserve"
    health_path = "/ready"
    axes = ("replica", "dp", "tp")
    shared_axes: Mapping[str, tuple[str, ...]] = {}
    files = FileDependencies(always_serving=(SCRIPT,), references={SCRIPT: f"$PARC_DIR/{SCRIPT}"})

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
        """Yield the settings in the flags that all processes share."""
        if SCRIPT not in artifacts:
            return
        flags = read_flags(read_words(read_match(COMMON, artifacts[SCRIPT], "array common")))
        for flag, path in SETTINGS.items():
            text = flags.get(flag, "")
            value = float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) else text
            yield DerivedSetting(path, value, SCRIPT, setting=f"{flag} {text}" if text else "")

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report A02 for other hosts than those of the rank map."""
        if SCRIPT not in artifacts:
            return
        hosts = read_words(read_match(HOSTS, artifacts[SCRIPT], "array hosts"))
        if hosts and hosts != job.hosts:
            message = f"hosts are {' '.join(hosts)} in {SCRIPT}, the rank map has"
            sink.report("A02", f"{message} {' '.join(job.hosts)}", span=Span(SCRIPT, 1, 1))

    def api_ports(self, artifacts: Mapping[str, str]) -> list[tuple[int, int]] | None:
        """Return (node rank, port) of the first process of each engine, its API server."""
        if SCRIPT not in artifacts:
            return None
        return [
            (one.node, one.number("--port"))
            for one in read_processes(artifacts[SCRIPT])
            if one.number("--first-rank") == 0
        ]

    def derive_ranks(
        self, artifacts: Mapping[str, str], sink: Sink
    ) -> dict[tuple[int, int], DerivedRank]:
        """Return (node rank, GPU) -> rank; report A07 for engines with other ranks than theirs."""
        found: dict[tuple[int, int], DerivedRank] = {}
        engines: dict[tuple[str, int], list[int]] = {}
        world = 1
        for one in read_processes(artifacts[SCRIPT]):
            tp, dp = one.number("--tensor-parallel"), one.number("--data-parallel")
            world = tp * dp
            if not 0 < world <= LARGEST:
                raise MalformedFileError(SCRIPT, 1, f"tp {tp} x dp {dp} is not a number of ranks")
            # Processes of an engine meet at one port of its first host.
            key = (one.flags.get("--head", ""), one.number("--port"))
            ranks = engines.setdefault(key, [])
            replica = list(engines).index(key)
            for rank, gpu in enumerate(one.gpus, one.number("--first-rank")):
                ranks.append(rank)
                place = (replica, rank // tp, rank % tp)
                found[one.node, gpu] = DerivedRank(replica * world + rank, place)
        for replica, ranks in enumerate(engines.values()):
            if sorted(ranks) != list(range(len(ranks))) or len(ranks) != world:
                message = f"engine {replica} of {SCRIPT} starts {len(ranks)} ranks, must start"
                sink.report("A07", f"{message} each of 0 to {world - 1}", span=Span(SCRIPT, 1, 1))
        return found


VERIFIER = MinserveVerifier()
