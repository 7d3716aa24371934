"""Read the command ``apptainer exec`` (``singularity exec``) of a launch script."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.tools.importers.flags import (
    LaunchFlag,
    has_gap,
    known_mounts,
    set_spec_field,
)
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.topology.readers.reader_state import Reading

_PROGRAMS = ("apptainer", "singularity")
_ACTIONS = ("exec", "run")
_SHORT = {"-B": "--bind", "-H": "--home", "-S": "--scratch", "-W": "--workdir", "-o": "--overlay"}
_WITH_VALUE = frozenset(
    (
        *("--add-caps", "--app", "--apply-cgroups", "--bind", "--blkio-weight", "--containlibs"),
        *("--cpu-shares", "--cpus", "--cpuset-cpus", "--cpuset-mems", "--cwd", "--dns", "--env"),
        *("--docker-host", "--drop-caps", "--env-file", "--fusemount", "--home", "--hostname"),
        *("--memory", "--memory-reservation", "--memory-swap", "--mount", "--netns-path"),
        *("--network", "--network-args", "--overlay", "--pem-path", "--pids-limit", "--pwd"),
        *("--scratch", "--security", "--workdir"),
    )
)
"""Flags of ``apptainer exec`` with a value (apptainer, cmd/internal/cli/action_flags.go)."""
_SET = frozenset(("--nv", "--rocm", "--cwd", "--pwd"))
"""Flags that PARC's batch script sets itself."""
_OWN_MOUNTS = ("$PARC_DIR", "$SLURM_SUBMIT_DIR", "$PWD")
"""Mounts of PARC's batch script: the output folder, and the folder of the job."""


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """Command that starts a container in which the other words of a statement run."""

    flags: tuple[LaunchFlag, ...]
    image: Word
    end: int
    """Index of the first word of the statement that runs in the container."""


def container_command(statement: list[Word]) -> ContainerCommand | None:
    """Return the command in ``statement`` that starts a container; None if there is none."""
    names = [word.text.rpartition("/")[2] for word in statement]
    start = next((at for at, name in enumerate(names[:-1]) if name in _PROGRAMS), None)
    if start is None or names[start + 1] not in _ACTIONS:
        return None
    at, flags = start + 2, []
    while at < len(statement) and statement[at].is_flag:
        word = statement[at]
        name, equals, rest = word.text.partition("=")
        name = _SHORT.get(name, name)
        values: tuple[Word, ...] = (Word(rest, word.span, word.statement),) if equals else ()
        at += 1
        if not equals and name in _WITH_VALUE and at < len(statement):
            values = (statement[at],)
            at += 1
        flags.append(LaunchFlag(name, word, values))
    return ContainerCommand(tuple(flags), statement[at], at + 1) if at < len(statement) else None


def read_container_command(command: ContainerCommand, reading: Reading) -> None:
    """Set the image, the mounts and the program that starts the container; report other flags."""
    at = LaunchFlag("", command.image, ())
    reading.account(command.image.span)
    if has_gap(command.image.text):
        reading.leave_out(f"the image {command.image.text}", command.image.span)
    else:
        set_spec_field(reading, "launch.slurm.container_image", command.image.text, at)
        set_spec_field(reading, "launch.slurm.container_runtime", "apptainer", at)
    mounts = []
    for flag in command.flags:
        value = flag.values[0].text if flag.values else ""
        reading.account(flag.word.span)
        if flag.name == "--bind":
            mounts += known_mounts(flag, value, _OWN_MOUNTS.__contains__, reading)
        elif flag.name not in _SET:
            reading.leave_out(f"apptainer {flag.name} {value}".rstrip(), flag.word.span)
    if mounts:
        set_spec_field(reading, "launch.slurm.container_mounts", mounts, at)
