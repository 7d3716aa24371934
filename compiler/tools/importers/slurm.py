"""Import of a Slurm batch script.

The directives of a batch script become the sections ``cluster`` and ``launch`` of the spec. The
launch line of a framework is read by the importer of that framework.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from parc.backends.plugin_error import first_recognizing
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.tools.importers.flags import (
    FlagField,
    LaunchFlag,
    set_spec_field,
    split_option,
    take_flags,
)
from parc.compiler.tools.importers.formats import (
    declared_importers,
    leave_framework_open,
    targets_of_launch,
)
from parc.compiler.tools.importers.gpu_types import read_gpu_type
from parc.compiler.tools.importers.launch_commands import (
    framework_words,
    read_mounts,
)
from parc.compiler.tools.importers.script_commands import (
    is_script_from_parc,
    launch_statement,
    launch_words,
    read_script,
)
from parc.compiler.tools.importers.shell_words import Word, shell_words
from parc.compiler.tools.importers.unread_parts import report_unread_parts
from parc.compiler.topology.readers.reader_state import (
    Fragment,
    InputLine,
    LocatedHost,
    Reading,
)

_DIRECTIVE = re.compile(r"#SBATCH\s+(.*)")
_SHORT = {
    **{"-N": "--nodes", "-w": "--nodelist", "-p": "--partition", "-A": "--account"},
    **{"-q": "--qos", "-t": "--time", "-J": "--job-name", "-x": "--exclude", "-n": "--ntasks"},
    **{"-o": "--output", "-e": "--error", "-C": "--constraint", "-c": "--cpus-per-task"},
    "-G": "--gpus",
}
TABLE: dict[str, FlagField] = {
    "--partition": FlagField("launch.slurm.partition", "text"),
    "--account": FlagField("launch.slurm.account", "text"),
    "--qos": FlagField("launch.slurm.qos", "text"),
    "--time": FlagField("launch.slurm.time_limit", "text"),
    "--reservation": FlagField("launch.slurm.reservation", "text"),
    "--container-image": FlagField("launch.slurm.container_image", "text"),
    "--constraint": FlagField("launch.slurm.constraint", "text"),
    "--exclude": FlagField("launch.slurm.exclude", "text"),
    "--array": FlagField("launch.slurm.array", "text"),
    "--comment": FlagField("launch.slurm.comment", "text"),
    "--mail-user": FlagField("launch.slurm.mail.user", "text"),
    "--mail-type": FlagField("launch.slurm.mail.type", "text"),
    "--requeue": FlagField("launch.slurm.requeue", "set", True),
    "--no-requeue": FlagField("launch.slurm.requeue", "set", False),
}
_WRITTEN = {
    "--ntasks-per-node": (),
    "--exclusive": (),
    "--mem": ("0",),
    "--output": ("%x.%j.out", "%x.%A_%a.out"),
    "--open-mode": ("append",),
}
"""Directives that PARC writes into each batch script, with PARC's values; empty: each value of the
directive has the same effect on the job."""
EXTRA = frozenset(
    (
        *("--acctg-freq", "--batch", "--bb", "--bbf", "--begin", "--chdir", "--cluster-constraint"),
        *("--contiguous", "--cpu-freq", "--deadline", "--delay-boot", "--dependency", "--error"),
        *("--gpu-freq", "--gres", "--hold", "--ignore-pbs", "--kill-on-invalid-dep", "--licenses"),
        *("--mcs-label", "--mincpus", "--network", "--nice", "--no-kill", "--power", "--prefer"),
        *("--priority", "--profile", "--propagate", "--reboot", "--tmp", "--wait-all-nodes"),
        *("--wckey", "--x11"),
    )
)
"""Directives for ``launch.slurm.extra``: no other field and no decision determines them."""
_SWITCHES = frozenset(
    ("--contiguous", "--hold", "--ignore-pbs", "--nice", "--no-kill", "--reboot", "--x11")
)
"""Directives in ``EXTRA`` that need no value."""
_PLACEHOLDER = re.compile(r"\{|<[A-Za-z][^<>]*>")
"""Matches a value that users replace before they submit the script."""
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def read_sbatch(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the spec fragment of a batch script; None after an error.

    Hosts and limits are read from the ``#SBATCH`` directives. Layout, job and model are read from
    the launch line, if a backend recognizes the line.
    """
    reading = Reading(text, name, sink)
    for line in reading.lines():
        match = _DIRECTIVE.match(line.text)
        if match:
            _read_directive(line, match.start(1), reading)
    mail = reading.spec.get("launch", {}).get("slurm", {}).get("mail", {})
    if mail:
        # Slurm sends no mail without --mail-type; the spec has another default.
        mail.setdefault("type", "NONE")
    words = launch_words(reading)
    read_script(words, reading)
    lines = [(one, of.launch_lines) for one, of in declared_importers() if of.launch_lines]
    tests = ((one, partial(one[1].recognizes, words)) for one in lines)
    backend, launch = first_recognizing(tests, sink) or (None, None)
    if backend is not None and launch is not None:
        launch.read(framework_words(words), reading)
        if targets := targets_of_launch(reading.spec, backend):
            reading.spec["emit"] = targets
    elif program := _started_program(words, reading):
        leave_framework_open(program, reading)
    report_unread_parts(words, reading, launch is not None)
    slurm = reading.spec.get("launch", {}).get("slurm", {})
    if "container_mounts" in slurm and "container_image" not in slurm:
        mounts = ",".join(slurm.pop("container_mounts"))
        span = reading.spans["launch.slurm.container_mounts"]
        reading.leave_out(f"--container-mounts {mounts}", span, "set launch.slurm.container_image")
    if not reading.spec and not reading.hosts and reading.is_valid:
        reading.report_error(
            "I02", "this file contains no #SBATCH line and no known launch line", reading.span()
        )
    return reading.fragment()


def _started_program(words: list[Word], reading: Reading) -> str:
    """Return the program that the script starts on the ranks.

    The result is empty if the script starts none, and for a batch script of PARC.
    """
    if is_script_from_parc(reading.text):
        return ""
    program = reading.spec.get("launch", {}).get("program")
    if program is not None:
        return str(program)
    launch = launch_statement(words)
    return " ".join([word.text for word in words if word.statement == launch][:4])


def _read_directive(line: InputLine, start: int, reading: Reading) -> None:
    """Read the options of one ``#SBATCH`` line; ``start`` is the offset of the first option."""
    words = shell_words(line.text[start:], reading.file)
    moved = [
        Word(word.text, reading.span(line.number, word.span.column + start, word.span.length), 0)
        for word in words
    ]
    if not moved or not moved[0].is_flag:
        reading.leave_out(line.text, reading.span(line.number), "this directive contains no option")
    for index, word in enumerate(moved):
        if word.is_flag:
            option, equals, rest = split_option(word.text)
            values = [Word(rest, word.span, 0)] if equals else moved[index + 1 : index + 2]
            if values and values[0].text == "{":  # a placeholder: { partition }
                end = (at for at, one in enumerate(moved) if at > index and one.text == "}")
                parts = moved[index + 1 : next(end, index + 1) + 1]
                text = " ".join(one.text for one in parts)
                values = [Word(text, values[0].span, 0)]
            # The word after an option without a value is the next option.
            plain = tuple(value for value in values if equals or not value.is_flag)
            _read_option(LaunchFlag(_SHORT.get(option, option), word, plain), reading)


def _read_option(flag: LaunchFlag, reading: Reading) -> None:
    if _PLACEHOLDER.match(flag.value):
        hint = "replace the placeholder, or set the field in the spec"
        reading.leave_out(f"{flag.name} {flag.value}", flag.word.span, hint)
        return
    special = _SPECIAL.get(flag.name)
    if special is not None and flag.values:
        special(flag, flag.values[0].text, reading)
    elif flag.name in _WRITTEN:
        _read_written_directive(flag, reading)
    elif take_flags([flag], TABLE, reading):
        _read_extra_directive(flag, reading)


def _read_written_directive(flag: LaunchFlag, reading: Reading) -> None:
    """Process a directive that PARC's batch script always contains.

    Add a note if PARC writes the same value; report the directive if PARC writes another value.
    """
    values, ours = [value.text for value in flag.values], _WRITTEN[flag.name]
    if ours and not set(values) & set(ours):
        words = f"{flag.name}={' '.join(values)}"
        reading.leave_out(words, flag.word.span, f"PARC writes {flag.name}={ours[0]}")
    else:
        reading.notes.append(f"set by PARC: {flag.name}")


def _read_job_name(flag: LaunchFlag, text: str, reading: Reading) -> None:
    if _JOB_NAME.fullmatch(text):
        set_spec_field(reading, "name", text, flag)
    else:
        reading.leave_out(f"--job-name {text}", flag.word.span, "set name")


def _read_extra_directive(flag: LaunchFlag, reading: Reading) -> None:
    """Add a directive to ``launch.slurm.extra`` if that field accepts the directive.

    Used for directives that have no spec field of their own. Directives that ``extra`` does not
    accept are reported.
    """
    value = flag.value
    if flag.name not in EXTRA or not (value or flag.name in _SWITCHES):
        _report_ignored_directive(flag, reading)
        return
    extra = reading.spec.get("launch", {}).get("slurm", {}).get("extra", [])
    entry = f"{flag.name}={value}" if value else flag.name
    set_spec_field(reading, "launch.slurm.extra", [*extra, entry], flag)


def _report_ignored_directive(flag: LaunchFlag, reading: Reading) -> None:
    words = " ".join([flag.name, *(value.text for value in flag.values)])
    reading.leave_out(words, flag.word.span)


def _read_nodes(flag: LaunchFlag, text: str, reading: Reading) -> None:
    if re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0:
        if not reading.hosts:
            set_spec_field(reading, "cluster.nodes", int(text), flag)
    else:
        reading.leave_out(f"--nodes {text}", flag.word.span, "set cluster.nodes")


def _read_nodelist(flag: LaunchFlag, text: str, reading: Reading) -> None:
    span = flag.values[0].span
    offset = flag.word.text.find("=") + 1 if flag.values[0].span == flag.word.span else 0
    for host in reading.expand_host_list(
        text, Span(span.file, span.line, span.column + offset, len(text))
    ):
        reading.add_host(LocatedHost(host, (), None, span))
    # The host names determine the number of hosts, so --nodes adds nothing.
    reading.spec.get("cluster", {}).pop("nodes", None)


def _read_gpus(flag: LaunchFlag, text: str, reading: Reading) -> None:
    read_gpu_type(flag, text, reading)
    count = text.rpartition(":")[2] if ":" in text or flag.name == "--gpus-per-node" else ""
    if re.fullmatch(r"[0-9]{1,3}", count) and ("gpu" in text or flag.name == "--gpus-per-node"):
        set_spec_field(reading, "cluster.node.gpus_per_node", int(count), flag)
    elif "gpu" in text:
        _report_ignored_directive(flag, reading)
    else:
        _read_extra_directive(flag, reading)


def _read_total_gpus(flag: LaunchFlag, text: str, reading: Reading) -> None:
    read_gpu_type(flag, text, reading)
    _report_ignored_directive(flag, reading)


def _read_signal(flag: LaunchFlag, text: str, reading: Reading) -> None:
    # sbatch(1): --signal=[{R|B}:]<sig_num>[@sig_time]. The spec has a field for the time only.
    match = re.fullmatch(r"(?:[BR]{1,2}:)?(\w{1,12})@([0-9]{1,6})", text)
    if match:
        set_spec_field(reading, "launch.slurm.signal", f"{match[2]}s", flag)
    if match is None:
        reading.leave_out(f"--signal {text}", flag.word.span, "PARC sends USR1")
    elif match[1] not in ("USR1", "SIGUSR1", "10"):
        name = f"the signal {match[1]} of --signal {text}"
        reading.leave_out(name, flag.word.span, "PARC sends USR1 at the same time")


_SPECIAL: dict[str, Callable[[LaunchFlag, str, Reading], None]] = {
    "--job-name": _read_job_name,
    "--nodes": _read_nodes,
    "--nodelist": _read_nodelist,
    "--gpus-per-node": _read_gpus,
    "--gres": _read_gpus,
    "--gpus": _read_total_gpus,
    "--signal": _read_signal,
    "--container-mounts": read_mounts,
}
