"""A spec on either side of the boundary of a rule: one number decides."""

from __future__ import annotations

from dataclasses import dataclass

from tests.compiled import Spec


@dataclass(frozen=True)
class Boundary:
    """A spec that breaks the rule ``code`` and one that keeps it."""

    framework: str
    code: str
    bad: Spec
    good: Spec
    taken: str
    """How the real tool takes the bad one: the stage at which it refuses, ``silent``, or empty: it
    fails later or never, or is not asked."""
