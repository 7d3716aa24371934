"""Verifier of ``ds_config.json``, ``train.json``, the hostfile and the launch script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parc.backends.deepspeed.verify_config import read_config_settings
from parc.backends.deepspeed.verify_groups import COLUMNS, DeepSpeedTopology, derive_groups
from parc.backends.deepspeed.verify_program import (
    NOT_IN_FILES,
    program_settings,
    read_parallel_sizes,
    settings_fixed_by_framework,
)
from parc.backends.shared.verify_emitted_program import users_program
from parc.backends.shared.verify_launch_script import (
    read_launch_script_settings,
    verify_launch_lines,
)
from parc.backends.verifier import (
    NO_FILES,
    DerivedGroups,
    DerivedSetting,
    FileDependencies,
    FrameworkVerifier,
    JobShape,
    LaunchedProgram,
    LauncherNumber,
    LauncherWrappedVerifier,
)
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.launch_numbers import verify_host_file, verify_rendezvous
from parc.compiler.verify.program_code import read_program_digests, verify_programs
from parc.compiler.verify.read_emitted import (
    LARGEST,
    TABLE,
    MalformedFileError,
    read_json,
    read_lines,
)
from parc.compiler.verify.verify_settings import PLAN, json_settings, read_plan

CONFIG = "deepspeed/ds_config.json"
PROGRAM = "deepspeed/train.json"
SOURCE, HF_SOURCE = "deepspeed/train.py", "deepspeed/hf_train.py"
SCRIPT = "deepspeed/launch.sh"
SLOTS = "deepspeed/hostfile"
"""The hostfile: DeepSpeed's launcher numbers the ranks in the order of its lines."""
LAUNCHER = (
    "deepspeed",
    '--hostfile="$here/hostfile"',
    "--no_ssh",
    '--node_rank="$NODE_RANK"',
    '--master_addr="$MASTER_ADDR"',
    '--master_port="$MASTER_PORT"',
)
"""Words of the command in launch.sh that starts DeepSpeed's launcher. With --no_ssh, the launcher
starts only the ranks of its own host."""
LOOKUP = '< "$here/hostfile"'
"""Text that launch.sh contains if it looks up the node rank of a host in the hostfile."""
ORDER = "tp-cp-ep-dp-pp"
AXES = ("pipe", "data", "sequence", "model", "expert", "expert_model")


class DeepSpeedVerifier(LauncherWrappedVerifier):
    """Verifier that derives DeepSpeed's process groups from the topology in ``train.json``."""

    file = CONFIG
    needs = (PROGRAM,)
    files = FileDependencies(
        scripts=(SCRIPT,),
        references={
            CONFIG: "/deepspeed/ds_config.json",
            "deepspeed/train.py": "/../deepspeed/train.py",
            "deepspeed/model.py": "/../deepspeed/train.py",
            HF_SOURCE: f"/../{HF_SOURCE}",
            "deepspeed/hf_model.py": f"/../{HF_SOURCE}",
            SLOTS: '$here/hostfile"',
        },
        required_by=tuple(
            (f"deepspeed/{file}", program)
            for program in (SOURCE, HF_SOURCE)
            for file in ("checkpoints.py", "data.py", "start.py")
        ),
    )

    not_in_files = NOT_IN_FILES

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
        """Yield the settings in ds_config.json, train.json and launch.sh."""
        if SCRIPT in artifacts and PLAN in artifacts:
            plan = read_plan(artifacts[PLAN])
            yield from read_launch_script_settings(SCRIPT, plan, artifacts, LAUNCHER)
        if not {CONFIG, PROGRAM} <= artifacts.keys():
            return
        topology = _read_topology(_read_config(PROGRAM, artifacts))
        yield from settings_fixed_by_framework(CONFIG, topology)
        yield from read_config_settings(json_settings(CONFIG, artifacts[CONFIG]), topology, False)
        settings = json_settings(PROGRAM, artifacts[PROGRAM])
        yield from program_settings(settings, topology, SOURCE in artifacts)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report missing layers (A08), a wrong batch size (A09), and contradictory sizes (A05).

        Also report programs and a launch script whose code differs from the code that PARC emits
        (A18).
        """
        verify_programs(artifacts, read_program_digests(__package__), sink)
        if SCRIPT in artifacts and PLAN in artifacts:
            verify_launch_lines(SCRIPT, read_plan(artifacts[PLAN]), artifacts, sink, LAUNCHER)
        if PROGRAM not in artifacts:
            return
        config, program = _read_config(CONFIG, artifacts), _read_config(PROGRAM, artifacts)
        topology = _read_topology(program)
        _verify_layers(program, topology, sink)
        _verify_batch(config, topology, sink)
        _verify_sizes(config, topology, PROGRAM, sink)

    def program_start(
        self, plan: Mapping[str, Any], artifacts: Mapping[str, str]
    ) -> LaunchedProgram | None:
        """Return how launch.sh must start the emitted or the user's program."""
        launch = plan["problem"]["launch"]
        own = users_program(plan)
        emitted = HF_SOURCE if HF_SOURCE in artifacts else SOURCE
        config = f'--deepspeed --deepspeed_config "$here/../{CONFIG}"'
        return LaunchedProgram(
            program=shlex.quote(own) if own else f'"$here/../{emitted}"',
            arguments=f"{config} {shlex.join(launch['args'])}".rstrip(),
        )

    def derive_groups(
        self, artifacts: Mapping[str, str], world: int, sink: Sink
    ) -> DerivedGroups | None:
        """Return the process groups of a job with ``world`` ranks.

        None if ``train.json`` is missing, or if a finding is reported.
        """
        if PROGRAM not in artifacts:
            return None
        return _derive_from_topology(
            _read_topology(_read_config(PROGRAM, artifacts)), PROGRAM, world, sink
        )

    def check_launch(self, artifacts: Mapping[str, str], job: JobShape, sink: Sink) -> None:
        """Report wrongly ordered hosts (A02), and a wrong slot count or rendezvous (A07)."""
        if SLOTS in artifacts:
            _verify_host_slots(artifacts[SLOTS], job, sink, LOOKUP in artifacts.get(SCRIPT, ""))
        if SCRIPT in artifacts:
            verify_rendezvous(SCRIPT, artifacts[SCRIPT], job.hosts, sink)

    def verifier_when_wrapped(
        self, file: str, read_world: Callable[[str], int], launcher: tuple[LauncherNumber, ...]
    ) -> FrameworkVerifier:
        """Return the verifier for jobs in which another framework (Accelerate) starts DeepSpeed.

        In such a job every process is one data-parallel replica.
        """
        return _DataParallelVerifier(file, read_world, launcher)


@frozen(slots=False)
class _DataParallelVerifier(FrameworkVerifier):
    """Verifier for DeepSpeed jobs that another framework, such as Accelerate, starts.

    The number of ranks is in ``file``, a file of that framework.
    """

    file: str
    read_world: Callable[[str], int]
    launcher: tuple[LauncherNumber, ...]
    needs: tuple[str, ...] = (CONFIG,)
    files: FileDependencies = NO_FILES
    not_in_files = NOT_IN_FILES

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
        """Yield the settings in ds_config.json; another verifier reads the other files."""
        topology = self._job_topology(artifacts)
        yield from settings_fixed_by_framework(CONFIG, topology)
        if CONFIG in artifacts:
            settings = json_settings(CONFIG, artifacts[CONFIG])
            yield from read_parallel_sizes(settings, topology)
            yield from read_config_settings(settings, topology, True)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report a wrong batch size (A09), and parallelism other than data parallelism (A05)."""
        config, topology = _read_config(CONFIG, artifacts), self._job_topology(artifacts)
        _verify_batch(config, topology, sink)
        _verify_sizes(config, topology, self.file, sink)

    def derive_groups(
        self, artifacts: Mapping[str, str], world: int, sink: Sink
    ) -> DerivedGroups | None:
        """Return the process groups of a job with ``world`` ranks.

        None if a finding is reported.
        """
        return _derive_from_topology(self._job_topology(artifacts), self.file, world, sink)

    def _job_topology(self, artifacts: Mapping[str, str]) -> DeepSpeedTopology:
        # Each process is one replica, so all other axes have size 1.
        return DeepSpeedTopology(1, self.read_world(artifacts[self.file]), 1, 1, 1, 1)


def _verify_layers(program: dict[str, Any], topology: DeepSpeedTopology, sink: Sink) -> None:
    """Report stages whose layers do not add up to the layers of the model (A08)."""
    stages = program.get("stages")
    layers = _read_section(PROGRAM, program, "model").get("layers")
    if not isinstance(stages, list) or not all(isinstance(n, int) for n in stages):
        raise MalformedFileError(PROGRAM, 1, "the value of 'stages' is not a list of numbers")
    if len(stages) != topology.pipe or sum(stages) != layers:
        label = f"found {sum(stages)} layers on {len(stages)} stages"
        message = (
            f"the stages in {PROGRAM} do not contain {layers!r:.20} layers on "
            f"{topology.pipe} pipeline ranks"
        )
        sink.report("A08", Finding(message, label), span=Span(PROGRAM, 1, 1))


def _verify_batch(config: dict[str, Any], topology: DeepSpeedTopology, sink: Sink) -> None:
    """Report a batch size that is not micro-batch x accumulation steps x replicas (A09).

    DeepSpeed checks this equation with the world size. PARC uses the number of replicas in the
    plan.
    """
    micro = _read_positive_integer(CONFIG, config, "train_micro_batch_size_per_gpu")
    steps = _read_positive_integer(CONFIG, config, "gradient_accumulation_steps")
    # The key is absent with AutoTP, for which DeepSpeed would reject the true batch size.
    if "train_batch_size" not in config:
        return
    batch, product = config["train_batch_size"], micro * steps * topology.data
    if batch != product:
        label = (
            f"{micro} x {steps} x {topology.data} = {product}, train_batch_size is {batch!r:.20}"
        )
        message = "train_batch_size is not micro-batch x accumulation x data-parallel ranks"
        sink.report("A09", Finding(message, label), span=Span(CONFIG, 1, 1))


def _verify_sizes(
    config: dict[str, Any], topology: DeepSpeedTopology, other: str, sink: Sink
) -> None:
    """Report each parallel size in ds_config.json that differs from the file ``other`` (A05).

    ``topology`` contains the parallel sizes in the file ``other``.
    """
    tensor = config.get("tensor_parallel")
    pairs = [
        ("tensor_parallel.autotp_size", tensor and tensor.get("autotp_size"), topology.model),
        ("sequence_parallel_size", config.get("sequence_parallel_size"), topology.sequence),
        ("data_parallel_size", config.get("data_parallel_size"), topology.data),
    ]
    for name, value, wanted in pairs:
        if value is not None and value != wanted:
            message = f"{name} is {value!r:.20} in {CONFIG}, but {other} has {wanted}"
            sink.report("A05", message, span=Span(CONFIG, 1, 1))


def _verify_host_slots(text: str, job: JobShape, sink: Sink, lookup: bool) -> None:
    """Report hosts that are not in the planned order (A02), and a wrong number of slots (A07).

    DeepSpeed ignores comments and empty lines in the hostfile. If ``lookup`` is true, launch.sh
    looks up the node rank of a host in the hostfile, and would count such lines as hosts (A02).
    """
    lines = [(number, line.strip()) for number, line in enumerate(read_lines(text), start=1)]
    hosts = [one for one in lines if one[1] and not one[1].startswith("#")]
    names = "".join(f"{line.split()[0]}\n" for _, line in hosts)
    verify_host_file(SLOTS, names, job.hosts, sink)
    shifted = next((n for n, (number, _) in enumerate(hosts, 1) if n != number), None)
    if lookup and shifted is not None:
        message = f"launch.sh counts a comment or an empty line of {SLOTS} as a host"
        sink.report("A02", message, span=Span(SLOTS, shifted, 1))
    for number, line in hosts:
        if not re.match(rf"\S+\s+slots={job.ranks_per_node}(?!\d)", line):
            expected = f"must have slots={job.ranks_per_node}, the ranks per host of the rank map"
            message = f"the line {line!r:.60} in {SLOTS} {expected}"
            sink.report("A07", message, span=Span(SLOTS, number, 1))
            return


def _derive_from_topology(
    topology: DeepSpeedTopology, file: str, world: int, sink: Sink
) -> DerivedGroups | None:
    """Return the process groups for ``topology``, which was read from ``file``.

    If ``topology`` does not fit ``world`` ranks, report A05 and return None.
    """
    if topology.world != world:
        message = f"the rank map has {world} ranks, but {file} describes {topology.world}"
        sink.report("A05", message, span=Span(TABLE, 1, 1))
        return None
    # Expert groups never cross pipeline stages.
    stage, experts = topology.world // topology.pipe, topology.expert_copy_ranks
    if stage % experts:
        label = f"{stage} ranks per stage are not divisible by ep x etp = {experts}"
        finding = Finding(f"the expert groups of {file} do not fit a stage", label)
        sink.report("A05", finding, span=Span(file, 1, 1))
        return None
    return DerivedGroups(
        file=file,
        builder="DeepSpeed",
        order=ORDER,
        sizes=topology.sizes(),
        families=derive_groups(topology),
        columns=COLUMNS,
    )


def _read_config(file: str, artifacts: Mapping[str, str]) -> dict[str, Any]:
    tree = read_json(file, artifacts[file])
    for name in ("tensor_parallel", "topology"):
        if name in tree and not isinstance(tree[name], dict):
            raise MalformedFileError(file, 1, f"the value of {name!r} is not an object")
    return tree


def _read_section(file: str, tree: dict[str, Any], name: str) -> dict[str, Any]:
    section = tree.get(name)
    if not isinstance(section, dict):
        raise MalformedFileError(file, 1, f"the key {name!r} is missing or not an object")
    return section


def _read_topology(program: dict[str, Any]) -> DeepSpeedTopology:
    section = _read_section(PROGRAM, program, "topology")
    sizes = {name: _read_positive_integer(PROGRAM, section, name) for name in AXES}
    return DeepSpeedTopology(**sizes, has_experts="experts" in program)


def _read_positive_integer(file: str, section: dict[str, Any], name: str) -> int:
    value = section.get(name)
    if type(value) is not int or not 0 < value <= LARGEST:
        raise MalformedFileError(file, 1, f"{name} is {value!r:.40}, must be a number > 0")
    return value


VERIFIER = DeepSpeedVerifier()
