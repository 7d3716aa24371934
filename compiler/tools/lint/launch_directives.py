"""Check the values of Slurm's options: variables in ``#SBATCH`` lines, and images of containers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from parc.backends.shared.launch_rules import explain_registry_without_separator
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.tools.lint.launch_tasks import SlurmOption
from parc.compiler.tools.lint.script import LintedScript

_VARIABLE = re.compile(r"\$\{?(\w+)[^\s]*|`[^`]*`?|\$\(")
"""Matches a word that the shell would replace."""
_FREE_TEXT = ("--comment", "--wrap")
IMAGE = "--container-image"


def check_directive_variables(options: Iterable[SlurmOption], sink: Sink) -> None:
    """Report options of ``#SBATCH`` lines with a variable (L44), which sbatch does not expand."""
    for option in options:
        found = _VARIABLE.search(option.value)
        if found is None or option.name in _FREE_TEXT:
            continue
        name = option.name.removeprefix("--")
        finding = Finding(
            f"sbatch does not expand {found[0][:40]} in a #SBATCH line",
            label=f"the value of {option.name} is this text",
            help=f"write the value, or pass it when you submit: sbatch --{name}=VALUE",
        )
        sink.report("L44", finding, span=option.span)


def check_images(script: LintedScript, options: Iterable[SlurmOption], sink: Sink) -> None:
    """Report images of pyxis that lack the # after the registry (L22)."""
    images = [(one.value, one.span) for one in options if one.name == IMAGE]
    flags = (flag for flag in script.flags([IMAGE]) if flag.name == IMAGE)
    images += [(flag.value, flag.word.span) for flag in flags]
    for image, span in images:
        found = None if "$" in image else explain_registry_without_separator(image)
        if found is not None:
            finding, name = found
            sink.report("L22", replace(finding, fix=f"{IMAGE}={name}"), span=span)
