"""Read the launchers of a script: torchrun, srun and ``apptainer exec`` (``singularity exec``).

Settings that a spec cannot contain are reported (I04).
"""

from __future__ import annotations

from collections.abc import Callable

from parc.backends.registry import all_declarations
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import (
    LAUNCHER,
    LaunchFlag,
    has_gap,
    job_size_flags,
    known_mounts,
    set_spec_field,
    split_flags,
    split_option,
    whole_number,
)
from parc.compiler.tools.importers.gpu_types import read_gpu_type
from parc.compiler.tools.importers.shell_words import Word, split_quoted_flag, statements
from parc.compiler.topology.readers.reader_state import Reading

_TORCHRUN_SET = {
    *("--node-rank", "--master-addr", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"),
    *("--rdzv-conf", "--local-addr", "--standalone", "--module", "-m"),
}
"""Flags of torchrun without a field, because PARC's launch scripts set the rendezvous."""
_SRUN_SET = {
    *("--nodes", "--ntasks", "--ntasks-per-node", "--gpus-per-node", "--gpus", "--gres", "--label"),
    *("--kill-on-bad-exit", "--mpi", "--distribution", "--cpu-bind", "--wait", "--cpus-per-task"),
    *("--output", "--error", "--nodelist", "--job-name", "--unbuffered", "--exclusive", "--jobid"),
    *("--no-container-mount-home", "--container-writable", "--open-mode"),
}
"""Flags of srun that PARC's batch script sets itself, or that describe the same hosts and tasks."""
_BINDING = {
    **{"--mpi": ("none",), "--distribution": ("arbitrary",), "--cpu-bind": ("none",)},
    **{"--cpus-per-task": (), "--gpu-bind": ("none",), "--mem-bind": ("none",)},
}
"""Flags of srun that start MPI, or bind tasks to cores and GPUs -> values with which PARC's batch
script starts the ranks in the same way."""
_SRUN_SHORT = {
    **{"-N": "--nodes", "-n": "--ntasks", "-l": "--label", "-u": "--unbuffered"},
    **{"-w": "--nodelist", "-o": "--output", "-e": "--error", "-J": "--job-name"},
    **{"-c": "--cpus-per-task", "-G": "--gpus", "-m": "--distribution", "-K": "--kill-on-bad-exit"},
    **{"-D": "--chdir", "-p": "--partition", "-A": "--account", "-x": "--exclude", "-t": "--time"},
    **{"-W": "--wait"},
}
_SRUN_SWITCHES = {
    *("--label", "--unbuffered", "--exclusive", "--overlap", "--quiet", "--verbose", "--pty", "-v"),
    *("--no-container-mount-home", "--container-mount-home", "--container-writable", "-Q", "-O"),
    *("--container-remap-root", "--no-container-remap-root", "--container-readonly", "--no-kill"),
    *("--kill-on-bad-exit", "--contiguous", "--overcommit", "--oversubscribe", "-s", "-k", "-E"),
    *("--no-container-entrypoint", "--container-entrypoint", "--multi-prog", "--spread-job"),
}
"""Flags of srun (and of its plugin pyxis) without a separate word for a value (srun(1))."""
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


def is_python_program(word: Word) -> bool:
    """Return True if ``word`` names a Python program."""
    return word.text.endswith(".py") and not word.is_flag and "=" not in word.text


def program_position(statement: list[Word]) -> int:
    """Return the index of the word of a statement that names the program.

    If no word names a program, return the index of the module after ``-m``; 0 if there is none.
    """
    modules = (at + 1 for at, word in enumerate(statement[:-1]) if word.text in ("-m", "--module"))
    programs = (at for at, word in enumerate(statement) if is_python_program(word))
    return next(programs, next(modules, 0))


def framework_words(words: list[Word]) -> list[Word]:
    """Return ``words`` without launchers, such as srun and torchrun, and their flags.

    In a statement that starts a program, all words before the program are left out. In any other
    statement, all words up to the last flag of srun or the image of a container are left out.
    """
    kept: list[Word] = []
    for statement in statements(words):
        start = next((at for at, word in enumerate(statement) if is_python_program(word)), None)
        if start is None:
            start = _words_of_launchers(statement)
        kept += (part for word in statement[start:] for part in split_quoted_flag(word))
    return kept


def read_launchers(words: list[Word], launch: int, reading: Reading) -> None:
    """Set spec fields from the flags of srun and torchrun, and from the name of the program.

    Flags of srun and torchrun that no field supports are reported. ``launch`` is the number of the
    statement that starts the ranks.
    """
    programs = []
    in_variable = any(word.variable and is_python_program(word) for word in words)
    for written in statements(words):
        statement = [part for word in written for part in split_quoted_flag(word)]
        flags, after = _srun_flags(statement)
        container = container_command(statement)
        if container is not None:
            read_container_command(container, reading)
            after = container.end
        flags = flags or [one for one in split_flags(statement) if _is_container_flag(one)]
        ours = _own_srun_options(statement)
        for flag in flags:
            if f"{flag.name}={flag.value}" not in ours:
                read_srun_flag(flag, reading)
        if flags and (len(statement) > after + 1 or in_variable):
            _report_wrapper(statement[after:], reading)
        _report_launcher_flags(statement[after:], reading)
        _read_torchrun_flags(statement[after:], reading)
        programs += [
            word for word in statement[after:] if is_python_program(word) and not word.dynamic
        ]
    # A launch line may get its program from a variable that an earlier statement sets.
    known = [word.text.strip() for word in programs if word.statement <= launch]
    started = [word.text.strip() for word in programs if word.statement == launch]
    for name in (started or known[-1:])[:1]:
        reading.spec.setdefault("launch", {})["program"] = name


def _words_of_launchers(statement: list[Word]) -> int:
    """Return the number of words of srun and of the command that starts a container."""
    container = container_command(statement)
    return _srun_flags(statement)[1] if container is None else container.end


def _is_container_flag(flag: LaunchFlag) -> bool:
    """Return True for a flag of pyxis, the container plugin of srun.

    Scripts can assign these flags to an array that they later pass to srun.
    """
    return flag.name.startswith("--container-")


def _srun_flags(statement: list[Word]) -> tuple[list[LaunchFlag], int]:
    """Return (flags of srun, index of the first word after these flags).

    For a statement without srun, the result is an empty list and 0.
    """
    texts = [word.text.rpartition("/")[2] for word in statement]
    if "srun" not in texts:
        return [], 0
    at = texts.index("srun") + 1
    flags = []
    while at < len(statement) and (statement[at].text.startswith(("-", "$"))):
        word = statement[at]
        name, equals, rest = split_option(word.text)
        name = _SRUN_SHORT.get(name, name)
        at += 1
        values: tuple[Word, ...] = (Word(rest, word.span, word.statement),) if equals else ()
        plain = not equals and name not in _SRUN_SWITCHES and not word.text.startswith("$")
        if plain and at < len(statement) and not statement[at].text.startswith("-"):
            values = (statement[at],)
            at += 1
        flags.append(LaunchFlag(name, word, values))
    return flags, at


def read_srun_flag(flag: LaunchFlag, reading: Reading) -> None:
    """Set the container image or the container mounts from a flag of srun.

    Report a flag that neither a spec field nor PARC's own srun command sets.
    """
    value = flag.value
    reading.account(flag.word.span)
    if flag.name in ("--gres", "--gpus-per-node", "--gpus"):
        read_gpu_type(flag, value, reading)
    other = flag.name in _BINDING and value not in _BINDING[flag.name]
    if (flag.name in _SRUN_SET or flag.name.startswith("$")) and not other:
        return
    if flag.name == "--container-image" and value and not has_gap(value):
        set_spec_field(reading, "launch.slurm.container_image", value, flag)
    elif flag.name == "--container-mounts" and value:
        read_mounts(flag, value, reading)
    else:
        reading.leave_out(f"srun {_text_of_flag(flag)}", flag.word.span)


def read_mounts(flag: LaunchFlag, text: str, reading: Reading) -> None:
    """Set the container mounts from ``text``, a list that is separated by commas.

    Mounts whose paths are known only at run time are reported instead. The batch script of PARC
    mounts the output folder in addition to the user's folders.
    """
    known = known_mounts(flag, text, lambda mount: "PARC_DIR" in mount, reading)
    if known:
        set_spec_field(reading, "launch.slurm.container_mounts", known, flag)


def _text_of_flag(flag: LaunchFlag) -> str:
    inside = [value.span == flag.word.span for value in flag.values[:1]]  # as in -c56
    if "=" in flag.word.text or any(inside):
        return flag.word.text
    return " ".join([flag.word.text, *(value.text for value in flag.values[:4])])


def _report_wrapper(words: list[Word], reading: Reading) -> None:
    """Report a script between srun and the program: PARC's batch script starts no such script."""
    if words and words[0].text.endswith(".sh"):
        text = f"{words[0].text}, which srun starts with the program as its argument"
        reading.leave_out(text, words[0].span)


def _own_srun_options(statement: list[Word]) -> frozenset[str]:
    """Return the options with which PARC's scripts start the launchers in a statement by srun."""
    names = {word.text.rpartition("/")[2] for word in statement}
    declared = (one for one in all_declarations() if not names.isdisjoint(one.launchers))
    return frozenset(option for one in declared for option in one.srun_options)


_OF_PYTHON = ("-u", "-m", "-O", "-B", "-c", "-l", "-e")
"""Flags of the interpreter and of shells, which change nothing about the ranks."""


def _report_launcher_flags(words: list[Word], reading: Reading) -> None:
    """Report flags of launchers other than srun and torchrun, such as those of mpirun."""
    end = next((at for at, word in enumerate(words) if is_python_program(word)), 0)
    known = LAUNCHER.union(*job_size_flags())
    for at, word in enumerate(words[:end]):
        name = word.text.partition("=")[0].replace("_", "-")
        if word.is_flag and name not in known and name not in _OF_PYTHON:
            following = words[at + 1]
            value = "" if following.is_flag or at + 1 == end else f" {following.text}"
            reading.leave_out(f"{word.text}{value}", word.span)


def _read_torchrun_flags(words: list[Word], reading: Reading) -> None:
    """Read the flags of torchrun, up to the program."""
    known: dict[str, Callable[[LaunchFlag, str, Reading], None]] = {
        "--master-port": _read_port,
        "--max-restarts": _report_unless_zero,
    }
    hosts, processes = job_size_flags()
    known |= dict.fromkeys(hosts, _read_node_count)
    known |= dict.fromkeys(processes, _read_process_count)
    for at, word in enumerate(words):
        if is_python_program(word):
            return
        name, equals, value = word.text.partition("=")
        name = name.replace("_", "-")
        read = known.get(name)
        if read is None and word.is_flag and name in LAUNCHER - _TORCHRUN_SET - _SRUN_SET:
            read = _report_launcher_flag
        if read is None:
            continue
        following = words[at + 1 : at + 2]
        if not equals and following and not following[0].is_flag:
            value = following[0].text
        written = word.text.partition("=")[0]
        read(LaunchFlag(written, word, tuple(following)), value, reading)


def _read_process_count(flag: LaunchFlag, text: str, reading: Reading) -> None:
    number = whole_number(text)
    if number and number < 1000:
        set_spec_field(reading, "cluster.node.gpus_per_node", number, flag)
    else:
        reading.leave_out(f"{flag.name} {text}", flag.word.span, "set cluster.node.gpus_per_node")


def _read_node_count(flag: LaunchFlag, text: str, reading: Reading) -> None:
    number = whole_number(text)
    if reading.hosts or "nodes" in reading.spec.get("cluster", {}) or "SLURM" in text:
        return
    if number:
        set_spec_field(reading, "cluster.nodes", number, flag)
    else:
        reading.leave_out(f"{flag.name} {text}", flag.word.span, "set cluster.nodes")


def _read_port(flag: LaunchFlag, text: str, reading: Reading) -> None:
    number = whole_number(text)
    if number and number < 65536:
        set_spec_field(reading, "launch.master_port", number, flag)


def _report_launcher_flag(flag: LaunchFlag, text: str, reading: Reading) -> None:
    reading.leave_out(f"{flag.name} {text}".rstrip(), flag.word.span)


def _report_unless_zero(flag: LaunchFlag, text: str, reading: Reading) -> None:
    if text != "0":
        reading.leave_out(f"{flag.name} {text}", flag.word.span)


def srun_flags(words: list[Word]) -> list[LaunchFlag]:
    """Return the flags of all srun commands in ``words``."""
    return [flag for statement in statements(words) for flag in _srun_flags(statement)[0]]


@frozen
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
        value = flag.value
        reading.account(flag.word.span)
        if flag.name == "--bind":
            mounts += known_mounts(flag, value, _OWN_MOUNTS.__contains__, reading)
        elif flag.name not in _SET:
            reading.leave_out(f"apptainer {flag.name} {value}".rstrip(), flag.word.span)
    if mounts:
        set_spec_field(reading, "launch.slurm.container_mounts", mounts, at)
