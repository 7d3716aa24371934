"""Time limits of Slurm: the formats that it reads, and those that people write instead."""

from __future__ import annotations

import math
import re
from decimal import Decimal

_TIME = re.compile(
    r"(?:(?P<days>\d+)-(?P<dh>\d+)(?::(?P<dm>\d+)(?::(?P<ds>\d+))?)?"
    r"|(?P<h>\d+):(?P<hm>\d+):(?P<hs>\d+)|(?P<m>\d+)(?::(?P<s>\d+))?)"
)
_SECONDS_PER = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_WORDED_TIME = re.compile(
    r"(?:[0-9]{1,6}(?:\.[0-9]{1,6})? ?(?:w|weeks?|d|days?|h|hrs?|hours?|m|mins?|minutes?"
    r"|s|secs?|seconds?)(?:,? |$|(?=[0-9])))+"
)
"""Times that other tools accept, such as 48h, 1d12h or 2 days; ``m`` means minutes."""
UNLIMITED = frozenset(("unlimited", "infinite"))
"""Words for no time limit, in lower case."""
TIME_FORMS = "valid forms: minutes, H:MM:SS, D-HH or D-HH:MM:SS"


def time_limit_seconds(text: str) -> int | None:
    """Return a Slurm time limit in seconds; None if Slurm cannot parse ``text``.

    Valid forms (sbatch(1), --time): minutes, minutes:seconds, hours:minutes:seconds, days-hours,
    days-hours:minutes, days-hours:minutes:seconds.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    part = {key: int(value or 0) for key, value in match.groupdict().items()}
    hours = part["days"] * 24 + part["dh"] + part["h"]
    minutes = part["dm"] + part["hm"] + part["m"]
    return hours * 3600 + minutes * 60 + part["ds"] + part["hs"] + part["s"]


def convert_time_limit(limit: str) -> str:
    """Return ``limit``, such as 48h or 2 days, in Slurm's format.

    The result is empty if the meaning of ``limit`` is unclear. It is never shorter than ``limit``:
    seconds are kept, and fractions are rounded up.
    """
    if not _WORDED_TIME.fullmatch(limit.strip().lower()):
        return ""
    parts = re.findall(r"([0-9.]+) ?([a-z]+)", limit.lower())
    total = sum(Decimal(number) * _SECONDS_PER[unit[0]] for number, unit in parts)
    seconds = math.ceil(total)
    return slurm_time(seconds) if seconds else ""


def slurm_time(seconds: int) -> str:
    """Return a number of seconds in Slurm's format ``D-HH:MM:SS``."""
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    return f"{days}-{hours:02}:{minutes:02}:{seconds % 60:02}"
