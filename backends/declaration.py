"""Declaration of a backend: its name, its roles, and the modules that implement them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Literal

from parc.compiler.ir.frozen import frozen

JobKind = Literal["train", "serve"]
"""The two kinds of jobs: a backend can emit files for training, for serving, or for both."""


@frozen
class WrappedFramework:
    """A framework whose program another backend, the wrapper, can start.

    The wrapper declares it. The framework still determines the layout and emits its own files. For
    example, Accelerate wraps DeepSpeed.
    """

    framework: str
    """Name of the wrapped framework."""
    backend: str
    """Module with ``BACKEND``: the ``Framework``, limited to what the wrapper supports."""
    verifier: str = ""
    """Module with ``VERIFIER``, which replaces the framework's own if both emit files."""


LAUNCH = ("program", "args", "env", "setup", "master_port", "network_interface")
"""Fields of section ``launch`` that every launch script uses."""


@frozen
class Declaration:
    """Name and roles of one backend, with the modules that implement them.

    Modules are imported on first use. A module name that starts with a dot is relative to
    ``package``, as in ``importlib.import_module``. If a spec needs a role for which no module is
    declared, PARC rejects the spec; no other backend replaces the missing one.
    """

    name: str
    """Name in ``emit`` and ``versions`` of the spec, and folder of the emitted files."""
    package: str
    """Package of the backend; its docstring is ``Name: what it emits`` (``parc backends``)."""
    training: str = ""
    """Module with ``BACKEND``, a ``Backend`` or ``Framework``; empty if it emits no training
    jobs."""
    serving: str = ""
    """Module with ``BACKEND``, a ``ServingBackend`` or ``Engine``; empty if it emits no serving
    jobs."""
    binds_layout: bool = False
    """True for a framework or an engine: its rank order and rules determine the layout."""
    default_for: tuple[JobKind, ...] = ()
    """Kinds of jobs for which the backend is used if the spec has no ``emit``. Only built-in
    backends have such jobs, because installing a package must not change the output of existing
    specs."""
    verifier: str = ""
    """Module with ``VERIFIER`` (``backends/verifier.py``), which checks the emitted files."""
    linter: str = ""
    """Module with ``LINTER`` (``compiler/tools/lint/linter.py``), which ``parc lint`` uses."""
    importers: tuple[str, ...] = ()
    """Modules with ``IMPORTERS`` (``compiler/tools/importers/formats.py``),
    which ``parc import`` uses."""
    checkpoints: str = ""
    """Module with the function ``compare_checkpoints`` (``compiler/report/diff/diff.py``),
    which determines whether the framework's checkpoints load into another layout; empty if this is
    unknown."""
    launchers: tuple[str, ...] = ()
    """Programs and Python modules, as named in launch scripts, that start all processes of a
    host."""
    size_flags: tuple[str, str] | None = None
    """Flags of ``launchers`` with the number of hosts, and of processes (GPUs) per host."""
    total_flags: tuple[str, str] | None = None
    """Flags of ``launchers`` with the number of hosts, and of the processes of all hosts."""
    uses_visible_devices: bool = False
    """True if ``launchers`` pass ``CUDA_VISIBLE_DEVICES`` to their processes without a change."""
    entry_points: tuple[tuple[str, str], ...] = ()
    """(name of a container image without its tag, command that the image starts with the arguments
    of a container) pairs."""
    programs_of_others: tuple[str, ...] = ()
    """Programs whose flags resemble those of this backend, but that PARC cannot read."""
    wrapped_frameworks: tuple[WrappedFramework, ...] = ()
    """Frameworks of other backends whose programs this backend can start."""
    launch_fields: tuple[str, ...] = LAUNCH
    """Fields below ``launch`` of the spec that affect the emitted files; the name of a section
    stands for all of its fields. If a spec sets a field that no target uses, PARC warns (E13)."""
    spec_fields: tuple[str, ...] = ()
    """Fields of ``job``, ``model`` and ``layout`` of the spec that the files of a framework or an
    engine contain, or that its rules check, such as ``job.seed``; the name of a section stands for
    all of its fields. Fields in the tables ``fields.yaml`` and ``flags.yaml`` of the package need
    no entry. PARC rejects a spec that sets any other field (E11). Only plugins need it."""
    srun_options: tuple[str, ...] = ()
    """Options with which scripts of PARC start the launcher by srun, such as ``--mpi=pmix``; the
    import of a script does not report them."""
    needs_framework: bool = False
    """True for a launcher that starts the framework's program with the files that the framework
    emits; PARC rejects ``emit`` without the framework (E15)."""
    reserves: Literal["gpus", "hosts"] | None = None
    """What a launcher reserves for a job: only the GPUs of its ranks, or all GPUs of its hosts.
    None if it reserves nothing."""

    @property
    def is_framework(self) -> bool:
        """True if this backend determines the layout of training jobs."""
        return self.binds_layout and bool(self.training)

    @property
    def is_engine(self) -> bool:
        """True if this backend determines the layout of serving jobs."""
        return self.binds_layout and bool(self.serving)

    def module(self, name: str) -> ModuleType:
        """Import and return the module ``name``; a leading dot means relative to ``package``."""
        # Not cached here, because Python caches imported modules itself.
        return import_module(name, self.package)
