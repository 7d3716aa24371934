"""Mapping that records which of its keys were read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class ReadTrace(dict[str, Any]):
    """Nested config that records reads.

    Overriding ``__iter__`` makes ``**trace`` and ``dict(trace)`` call ``keys`` and
    ``__getitem__``, so these count as reads too. If a section was passed on without any access to
    its keys (to a pydantic model, which rejects unknown keys), its keys are not reported.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        nested = {k: ReadTrace(v) if isinstance(v, dict) else v for k, v in config.items()}
        super().__init__(nested)
        self.keys_read: set[str] = set()
        self.opened = False

    def _note(self, *keys: str) -> None:
        self.opened = True
        self.keys_read.update(keys)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self._note(key)
        return super().get(key, *default)  # the key stays for later reads

    def __contains__(self, key: object) -> bool:
        self.opened = True  # a membership test is not a read of the value
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self.opened = True
        return super().__iter__()

    def keys(self) -> Any:
        self.opened = True
        return super().keys()

    def items(self) -> Any:
        self._note(*super().keys())
        return super().items()

    def values(self) -> Any:
        self._note(*super().keys())
        return super().values()

    def __copy__(self) -> ReadTrace:
        return self

    def __deepcopy__(self, memory: dict[int, Any]) -> ReadTrace:
        return self

    def unread(self, prefix: str = "") -> list[str]:
        """Return the dotted paths of keys that were not read."""
        found = []
        for key in list(super().keys()):
            value = super().__getitem__(key)
            if key not in self.keys_read:
                found.append(prefix + key)
            elif isinstance(value, ReadTrace) and value.opened:
                found += value.unread(f"{prefix}{key}.")
        return sorted(found)
