"""Generator of docs/diagnostics.md from the tables of codes.

``python -m parc.compiler.report.text.diagnostics_page > docs/diagnostics.md``
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby

from parc.compiler.diagnostics.codes import CodeInfo, all_codes

FAMILIES = {
    "A": "Artifacts: output files that contradict each other or were edited",
    "B": "Batch size",
    "D": "Divisibility and mesh arithmetic",
    "E": "Expressibility: settings that a framework does not support",
    "F": "Flags: extra arguments for the framework",
    "G": "Search",
    "H": "Hosts and hardware",
    "I": "Imports from other tools",
    "K": "Catalog and model configs",
    "L": "Launchers: torchrun, Slurm and Kubernetes",
    "M": "Mixture of experts",
    "N": "Network and environment",
    "O": "Output folders and lock files",
    "P": "Pipeline",
    "Q": "Calibration with measured runs",
    "R": "Recompute, precision and other training options",
    "S": "Sequence and context parallelism",
    "T": "Topology and placement",
    "V": "Serving",
    "X": "Spec: syntax, fields and values",
}
HEAD = """\
# Diagnostics

This page lists every diagnostic code. `make docs` generates it from
`compiler/diagnostics/codes/*.yaml`. A code never changes its meaning and is never reused.
`parc explain PARC-D01` prints one section. *Silent* means that the framework accepts the mistake
without an error or a warning.
"""


def diagnostics_page() -> str:
    """Return docs/diagnostics.md: a table of all codes, then one section per first letter."""
    codes = all_codes()
    parts = [HEAD, "\n".join(_table_of_codes(codes)) + "\n"]
    for letter, members in groupby(codes, key=lambda info: info.code[0]):
        parts.append(f"## {letter}: {FAMILIES.get(letter, 'Other')}\n")
        parts += [_code_section(info) for info in members]
    return "\n".join(parts)


def _table_of_codes(codes: tuple[CodeInfo, ...]) -> Iterator[str]:
    yield "| code | severity | problem |"
    yield "| --- | --- | --- |"
    for info in codes:
        severity = info.severity + (", silent" if info.silent else "")
        anchor = f"parc-{info.code.lower()}"
        yield f"| [PARC-{info.code}](#{anchor}) | {severity} | {_escape_cell(info.title)} |"


def _code_section(info: CodeInfo) -> str:
    lines = [f"### PARC-{info.code}\n", f"**{info.title}** ({info.severity})\n"]
    if info.silent:
        lines.append("*Silent: the framework reports no error and no warning.*\n")
    lines += [f"Rule: `{info.rule.strip()}`\n", f"{info.why.strip()}\n"]
    lines.append(f"Fix: {info.fix.strip()}\n")
    for name, text in (("Bad", info.bad), ("Good", info.good)):
        if text:
            lines.append(f"{name}:\n\n```yaml\n{text.rstrip()}\n```\n")
    if info.sources:
        lines.append("Source: " + "; ".join(info.sources) + "\n")
    return "\n".join(lines)


def _escape_cell(text: str) -> str:
    # A bare vertical bar would end the table cell.
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(diagnostics_page())
