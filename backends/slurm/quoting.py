"""Words of an ``#SBATCH`` line, quoted the way sbatch itself reads them."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")


def breaks_directive(text: str) -> bool:
    """Whether ``text`` holds a control character: no quoting carries it over a line's end."""
    return _CONTROL.search(text) is not None


def directive(flag: str, value: str) -> str:
    r"""``#SBATCH --flag=value``; sbatch expands nothing, it knows quotes, ``\`` and ``#``.

    A value that is not plain goes into double quotes, with ``"`` and ``\`` escaped
    (slurm/src/sbatch/opt.c, ``_get_argument``).

    Raises:
        ValueError: ``value`` holds a control character; the rules refuse it before.
    """
    if breaks_directive(value):
        raise ValueError(f"control character in --{flag}: {value!r}")
    if not _PLAIN.fullmatch(value):
        value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"#SBATCH --{flag}={value}"
