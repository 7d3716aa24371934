"""The flags of Megatron in one script: which of them are sure, and whose program takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.launch_files.import_arguments import TABLE
from parc.backends.shared.extra_arguments import known_flags
from parc.compiler.diagnostics import Span
from parc.compiler.tools.importers.flags import LAUNCHER, Flag
from parc.compiler.tools.lint.script import Script

STOCK = (
    "pretrain_gpt.py",
    "pretrain_hybrid.py",
    "pretrain_mamba.py",
    "pretrain_bert.py",
    "pretrain_t5.py",
)
"""Programs that take Megatron's own flags and no others."""
FORKS = ("--deepspeed", "--deepspeed-activation-checkpointing", "--zero-stage")
"""Flags of forks, which have others too."""
CUT_BY_FORKS = {"layout.pipeline_layout"}
"""DeepSpeed cuts the layers of Megatron-DeepSpeed, which no flag says."""


@dataclass(frozen=True, slots=True)
class MegatronLaunch:
    """Megatron's flags of one script."""

    flags: tuple[Flag, ...]
    sure: Mapping[str, Flag]
    is_open: bool
    unsure: frozenset[str]
    """Spec paths whose flags are there, and whose values are not."""
    forked: bool
    """The program is Megatron-DeepSpeed, which has other flags too."""
    stock: bool
    """The program is Megatron's, so that a flag it does not have stops it."""


def read_launch(script: Script) -> MegatronLaunch:
    """Flags of Megatron, those of its launchers apart."""
    flags = [
        flag
        for flag in _after_program(script)
        if flag.name.startswith("--") and flag.name.replace("_", "-") not in LAUNCHER
    ]
    sure = {
        flag.name: flag
        for flag in script.sure(flags)
        if not any(word.dynamic for word in flag.values[: takes(flag.name) or 1])
    }
    paths = {flag.name: TABLE.fields[flag.name] for flag in flags if flag.name in TABLE.fields}
    unsure = {path for name, path in paths.items() if name not in sure}
    forked = any(flag.name in FORKS for flag in flags)
    unsure |= CUT_BY_FORKS if forked else set()
    programs = [word.text for word in script.words if word.text.endswith(".py")]
    stock = not forked and any(name.endswith(STOCK) for name in programs)
    is_open = not programs or script.is_open(flags, takes)
    return MegatronLaunch(tuple(flags), sure, is_open, frozenset(unsure), forked, stock)


def _after_program(script: Script) -> list[Flag]:
    """Flags of statements with one of Megatron's; of a command line those behind its program."""
    flags = script.flags([*TABLE.rows, *known_flags(PACKAGE)])
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


def takes(name: str) -> int | None:
    """Values of a flag; None where it takes any number, or where nobody knows."""
    row = known_flags(PACKAGE).get(name)
    count = row.get("takes", 1) if row is not None else None
    return count if isinstance(count, int) else None
