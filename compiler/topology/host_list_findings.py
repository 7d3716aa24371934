"""Findings about host lists, which specs, topology files and options contain."""

from __future__ import annotations

from parc.compiler.diagnostics import Finding
from parc.compiler.topology.hostlist import HostlistError, TooManyHosts

FORM = "write names with numbers or ranges in brackets, such as r01n[01-16],login1"


def host_list_finding(text: str, error: HostlistError) -> tuple[str, Finding]:
    """Return (diagnostic code, finding) of a malformed (H01) or too long (H09) host list."""
    message = f"host list {text[:60]!r}: {error.message}"
    if isinstance(error, TooManyHosts):
        return "H09", Finding(message, error.message)
    return "H01", Finding(message, error.message, help=FORM)
