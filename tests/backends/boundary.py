"""Pairs of specs on both sides of the boundary of a rule, which differ in one number."""

from __future__ import annotations

from dataclasses import dataclass

from tests.compiled import Spec


@dataclass(frozen=True)
class Boundary:
    """Spec that violates the rule ``code``, and a similar one that does not."""

    framework: str
    code: str
    bad: Spec
    good: Spec
    taken: str
    """Stage at which the real tool rejects the bad spec; ``silent`` if it accepts it with a wrong
    result; empty if it fails later or never, or is not run."""
