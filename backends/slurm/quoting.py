"""Quoting of ``#SBATCH`` lines, which sbatch parses differently from a shell."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")


def contains_control_character(text: str) -> bool:
    """Return True if ``text`` contains a control character, which cannot be quoted for sbatch."""
    return _CONTROL.search(text) is not None


def sbatch_directive(flag: str, value: str) -> str:
    r"""Return the line ``#SBATCH --flag=value``, with quotes around the value if necessary.

    sbatch expands no variables; only quotes, ``\`` and ``#`` are special. A value with such
    characters is put in double quotes, with ``"`` and ``\`` escaped (slurm/src/sbatch/opt.c,
    ``_get_argument``).

    Raises:
        ValueError: ``value`` contains a control character; the rules reject such plans earlier.
    """
    if contains_control_character(value):
        raise ValueError(f"control character in --{flag}: {value!r}")
    if not _PLAIN.fullmatch(value):
        value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"#SBATCH --{flag}={value}"
