"""docs/diagnostics.md, made from the tables of codes.

``python -m parc.compiler.report.text.diagnostics_page > docs/diagnostics.md``
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby

from parc.compiler.diagnostics.codes import CodeInfo, all_codes

FAMILIES = {
    "A": "Artifacts: what was emitted does not agree",
    "B": "Batch",
    "D": "Divisibility and mesh arithmetic",
    "E": "What a framework cannot express",
    "F": "Extra flags for the framework",
    "G": "Search",
    "H": "Hosts and hardware",
    "I": "Imports: files of other tools",
    "K": "Catalog and model configs",
    "L": "Launch: torchrun, Slurm and Kubernetes",
    "M": "Mixture of experts",
    "N": "Network and environment",
    "O": "Output directories and lock files",
    "P": "Pipeline",
    "Q": "Measurements of your own: calibration",
    "R": "Recompute, precision and other switches",
    "S": "Sequence and context parallelism",
    "T": "Topology and placement",
    "V": "Serving",
    "X": "The spec itself",
}
HEAD = """\
# Diagnostics

Every code that PARC reports, made from `compiler/diagnostics/codes/*.yaml` by `make docs`. Codes
are stable and never used again for something else. `parc explain PARC-D01` prints one section.
A code marked *silent* is a mistake about which the framework itself says nothing.
"""


def page() -> str:
    """The page: a table of contents, a section a family, a subsection a code."""
    codes = all_codes()
    parts = [HEAD, "\n".join(_contents(codes)) + "\n"]
    for letter, members in groupby(codes, key=lambda info: info.code[0]):
        parts.append(f"## {letter}: {FAMILIES.get(letter, 'Other')}\n")
        parts += [_section(info) for info in members]
    return "\n".join(parts)


def _contents(codes: tuple[CodeInfo, ...]) -> Iterator[str]:
    yield "| code | severity | what is wrong |"
    yield "| --- | --- | --- |"
    for info in codes:
        severity = info.severity + (", silent" if info.silent else "")
        anchor = f"parc-{info.code.lower()}"
        yield f"| [PARC-{info.code}](#{anchor}) | {severity} | {_cell(info.title)} |"


def _section(info: CodeInfo) -> str:
    lines = [f"### PARC-{info.code}\n", f"**{info.title}** ({info.severity})\n"]
    if info.silent:
        lines.append("*Silent: the framework itself says nothing.*\n")
    lines += [f"Rule: `{info.rule.strip()}`\n", f"{info.why.strip()}\n"]
    lines.append(f"Fix: {info.fix.strip()}\n")
    for name, text in (("Bad", info.bad), ("Good", info.good)):
        if text:
            lines.append(f"{name}:\n\n```yaml\n{text.rstrip()}\n```\n")
    if info.sources:
        lines.append("Source: " + "; ".join(info.sources) + "\n")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
