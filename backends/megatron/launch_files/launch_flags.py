"""Reader of Megatron's flags in a script: which values are certain, and which program runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.arguments.extra_arguments import flags_of_copies, removed_flags
from parc.backends.megatron.launch_files.import_arguments import TABLE
from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.compiler.diagnostics import Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LAUNCHER, LaunchFlag
from parc.compiler.tools.lint.script import LintedScript

STOCK = (
    "pretrain_gpt.py",
    "pretrain_hybrid.py",
    "pretrain_mamba.py",
    "pretrain_bert.py",
    "pretrain_t5.py",
)
"""Programs of Megatron, which stop at a flag that Megatron does not have."""
FORKS = ("--deepspeed", "--deepspeed-activation-checkpointing", "--zero-stage")
"""Flags that identify Megatron-DeepSpeed, a fork with additional flags."""
MODELOPT = "modelopt"
"""Package whose flags Megatron's own programs accept."""
CUT_BY_FORKS = {"layout.pipeline_layout"}
"""Spec fields that no flag of Megatron-DeepSpeed sets, because DeepSpeed splits the layers."""

OF_COPIES = 2
"""Number of unknown flags from which the program counts as a copy of Megatron that defines them.
All 365 public scripts with a program of STOCK and so many unknown flags belong to such copies."""
_STAGES = re.compile(r"layer|stage|pipe|schedule|dualpipe|recompute|swap")
"""Matches a flag of a copy that can change the layers of a stage, or their recomputation."""


@frozen
class MegatronLaunch:
    """Megatron's flags in one script, and what is known about the program that reads them."""

    flags: tuple[LaunchFlag, ...]
    sure: Mapping[str, LaunchFlag]
    """Name -> flag, for flags that have the same value in every run of the script."""
    is_open: bool
    """True if flags may be added at run time."""
    unsure: frozenset[str]
    """Spec fields whose flags are given, but with values that are known only at run time."""
    unknown: tuple[str, ...]
    """Names of the flags that Megatron never had, see ``unknown_flags``."""
    copied: bool
    """True if the program counts as a copy of Megatron, whose flags can have other values."""
    named: bool
    """True if the program is named like one of Megatron's own, and has no flag of a public copy."""

    @property
    def stock(self) -> bool:
        """True if the program is one of Megatron's own, which stop at an unknown flag."""
        return self.named and not self.copied


def read_launch(script: LintedScript) -> MegatronLaunch:
    """Return Megatron's flags in ``script``, without the flags of launchers such as torchrun."""
    flags = [
        flag
        for flag in _flags_after_program(script)
        if flag.name.startswith("--") and flag.name.replace("_", "-") not in LAUNCHER
    ]
    sure = {
        flag.name: flag
        for flag in script.sure_flags(flags)
        if not any(word.dynamic for word in flag.values[: value_count(flag.name) or 1])
    }
    paths = {flag.name: TABLE.fields[flag.name] for flag in flags if flag.name in TABLE.fields}
    unsure = {path for name, path in paths.items() if name not in sure}
    # The flags of Megatron-FSDP together determine the ZeRO stage.
    if any(path.startswith("sharding.") for path in unsure):
        unsure.add("layout.zero_stage")
    forked = any(flag.name in FORKS for flag in flags)
    owners = {flags_of_copies().get(flag.name, MODELOPT) for flag in flags}
    unknown = unknown_flags(flags)
    public_copy = forked or bool(owners - {MODELOPT})
    copied = public_copy or len(unknown) >= OF_COPIES
    # Copies of Megatron have flags of their own that move layers between stages.
    unsure |= CUT_BY_FORKS if forked or (copied and any(map(_STAGES.search, unknown))) else set()
    programs = programs_of(script)
    # Only Megatron's own programs reject unknown flags; a user's program may define further ones.
    named = not public_copy and any(name.endswith(STOCK) for name in programs)
    # Without a program in the script, another file starts it and may add flags.
    starts = {word.statement for word in script.words if word.text in programs}
    is_open = not programs or script.is_open(flags, value_count, starts)
    return MegatronLaunch(tuple(flags), sure, is_open, frozenset(unsure), unknown, copied, named)


def programs_of(script: LintedScript) -> tuple[str, ...]:
    """Return the paths of all Python programs in ``script``."""
    return tuple(word.text for word in script.words if word.text.endswith(".py"))


def unknown_flags(flags: Collection[LaunchFlag]) -> tuple[str, ...]:
    """Return the names of flags that Megatron never had and that no package adds.

    Only flags that a statement passes together with a flag of Megatron are returned, because other
    statements can belong to another command, such as srun. Misspelled flags are included.
    """
    owners = flags_of_copies()
    known = {*rows_of_known_flags(PACKAGE), *removed_flags()}
    known |= {flag for flag, owner in owners.items() if owner == MODELOPT}
    passed = {one.word.statement for one in flags if one.name in known}
    return tuple(
        dict.fromkeys(
            one.name for one in flags if one.name not in known and one.word.statement in passed
        )
    )


def _flags_after_program(script: LintedScript) -> list[LaunchFlag]:
    """Return the flags of all statements that contain a flag of Megatron.

    If a statement starts a .py file, the flags before this file belong to the launcher and are left
    out.
    """
    flags = script.flags([*TABLE.rows, *rows_of_known_flags(PACKAGE)])
    programs: dict[int, Span] = {}
    for word in script.words:
        if word.text.endswith(".py") and not word.is_flag:
            programs.setdefault(word.statement, word.span)
    return [
        flag
        for flag in flags
        if (program := programs.get(flag.word.statement)) is None
        or (flag.word.span.line, flag.word.span.column) > (program.line, program.column)
    ]


def value_count(name: str) -> int | None:
    """Return the number of values of the flag ``name``; None if the number varies or is unknown."""
    row = rows_of_known_flags(PACKAGE).get(name)
    count = row.get("takes", 1) if row is not None else None
    return count if isinstance(count, int) else None
