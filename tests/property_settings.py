"""Numbers of examples of the property tests.

PARC_EXAMPLES=2 multiplies the numbers; the conformance suite runs all property tests with it.
"""

from __future__ import annotations

import os

from hypothesis import settings

FACTOR = int(os.environ.get("PARC_EXAMPLES", "1"))
DEFAULT = 50 * FACTOR
"""Number of examples of a test that sets no other number."""


def examples(count: int) -> settings:
    """Return the decorator of a property test that runs ``count`` examples in ``make test``."""
    return settings(max_examples=count * FACTOR)
