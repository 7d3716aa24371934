"""Flags that need another flag, or exclude one; the tables are those of the backends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.tools.importers.flags import Flag


@dataclass(frozen=True, slots=True)
class Coupling:
    """``flag``, with ``value`` where one is said, needs one of ``needs``, none of ``excludes``."""

    code: str
    flag: str
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    why: str = ""
    value: str = ""


def broken_couplings(
    table: tuple[Coupling, ...],
    sure: Mapping[str, Flag],
    written: Mapping[str, Flag],
    is_open: bool,
) -> Iterator[tuple[Flag, str, Finding]]:
    """(flag, code, finding) of every coupling that does not hold.

    Args:
        table: what must hold.
        sure: flags that every run has; only they are judged, and only they exclude others.
        written: all flags, also those of branches: what may be there is not missed.
        is_open: more flags may come at run time, so that none is missed.
    """
    for row in table:
        flag = sure.get(row.flag)
        if flag is None or (row.value and row.value not in {one.text for one in flag.values}):
            continue
        if row.needs and not is_open and not any(name in written for name in row.needs):
            needed = " or ".join(row.needs)
            yield (
                flag,
                row.code,
                Finding(f"{row.flag} needs {needed}", label=row.why, fix=f"add {row.needs[0]}"),
            )
        for other in (sure[name] for name in row.excludes if name in sure):
            yield (
                flag,
                row.code,
                Finding(
                    f"{row.flag} and {other.name} exclude each other",
                    label=row.why,
                    fix=f"remove {other.name}",
                    causes=(Cause("", "the other one", other.word.span),),
                ),
            )
