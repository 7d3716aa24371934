"""Wall time of the parts of one command, for ``--timings``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Clock:
    """Collects (name, seconds) in the order in which the parts end."""

    def __init__(self) -> None:
        """Start with nothing measured."""
        self.parts: list[tuple[str, float]] = []

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Measure the body of a ``with``."""
        start = perf_counter()
        try:
            yield
        finally:
            self.parts.append((name, perf_counter() - start))

    def table(self) -> str:
        """A line a part in milliseconds, and the sum."""
        rows = [*self.parts, ("total", sum(spent for _, spent in self.parts))]
        return "\n".join(f"{name:<10} {spent * 1e3:9.1f} ms" for name, spent in rows)
