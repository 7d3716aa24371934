"""Wall time of the parts of one command, for ``--timings``."""

from __future__ import annotations

from time import perf_counter


class Clock:
    """A watch for the pipeline: call it with the name of a part when that part has ended."""

    def __init__(self) -> None:
        """Start now."""
        self.parts: list[tuple[str, float]] = []
        self._last = perf_counter()

    def __call__(self, name: str) -> None:
        """The time since the last call belongs to ``name``."""
        now = perf_counter()
        self.parts.append((name, now - self._last))
        self._last = now

    def table(self) -> str:
        """A line a part in milliseconds, and the sum."""
        rows = [*self.parts, ("total", sum(spent for _, spent in self.parts))]
        return "\n".join(f"{name:<16} {spent * 1e3:9.1f} ms" for name, spent in rows)
