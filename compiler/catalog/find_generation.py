"""Facts of a GPU generation, read from the catalog or from a file of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from math import isfinite
from typing import Any

from parc.compiler.catalog.library import CatalogEntry, Library, look_up_entry
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir.gpu_generation import Efficiency, Generation, ServingEfficiency

KIND = "generations"
PRIOR = "prior"
"""Value of ``like`` for efficiency rows that inherit the values that all classes share."""
ABOUT_ROWS = ("like", "fitted_runs", "fitted_models", "fitted_sources", "mean_error_percent")
"""Keys of an efficiency row that document the origin of the row and are not parameters."""
_READ_ELSEWHERE = ("name", "file", "serving", "efficiency", "fitted_sources")
_OPTIONAL = {"compute_capabilities": ()}
"""Optional keys with their defaults. AMD GPUs have no compute capability."""


def find_generation(name: str, library: Library, sink: Sink, at: str) -> Generation | None:
    """Return the GPU generation ``name``, which is a catalog entry or the path of a user's file.

    A row of ``efficiency`` may inherit its parameters: from another row (``like:
    <generation>/<stack>``) or from the shared values (``like: prior``). Such a row lists only the
    parameters that differ. All other keys are required.

    Returns None after reporting a finding at the spec path ``at``: K01 (no such entry), K07 (file
    cannot be read), or K08 (a key is missing or invalid).
    """
    # A subclass of Library may have other entries. An invalid entry is read again to report it.
    is_shared = type(library) is Library and name in library.names(KIND)
    if is_shared and (shared := _catalog_generation(name)) is not None:
        return shared
    entry = look_up_entry(KIND, name, library, sink, at)
    return None if entry is None else _GenerationReader(entry, library, sink, at).generation()


@cache
def _catalog_generation(name: str) -> Generation | None:
    """Return a generation of the catalog, read once per process; None if it is invalid."""
    library, sink = Library(), Sink()
    entry = CatalogEntry(KIND, name, library.entry(KIND, name))
    return _GenerationReader(entry, library, sink, "").generation()


class _GenerationReader:
    """Reader of the file of a GPU generation, and of the other files that ``like`` names."""

    def __init__(self, entry: CatalogEntry, library: Library, sink: Sink, at: str) -> None:
        self._entry = entry
        self._library = library
        self._sink = sink
        self._at = at
        # Files that were read already, so that two rows with the same ``like`` read it once.
        self._entries: dict[str, CatalogEntry | None] = {entry.file or entry.name: entry}
        self._is_valid = True

    def generation(self) -> Generation | None:
        """Return the complete GPU generation; None after reporting a finding."""
        facts = self._entry.facts
        top = [field for field in fields(Generation) if field.name not in _READ_ELSEWHERE]
        own = {key: value for key, value in facts.items() if key not in ("serving", "efficiency")}
        values = self._checked_values(self._entry, "", own, Generation, dict(_OPTIONAL))
        serving = self._section(self._entry, "serving")
        shares = self._checked_values(self._entry, "serving", serving, ServingEfficiency, {})
        stacks = self._section(self._entry, "efficiency")
        # Checked here, because a wrong name would otherwise fail only in the cost model.
        if (like := values.get("kernels_like")) and like not in self._library.names("kernels"):
            self._report_invalid(
                self._entry,
                "kernels_like",
                f"is {like}, but catalog/kernels has no file of this name",
            )
        rows = {str(stack): self._efficiency_row(self._entry, str(stack), ()) for stack in stacks}
        if not self._is_valid:
            return None
        return Generation(
            name=self._entry.name,
            serving=ServingEfficiency(**shares),
            efficiency={stack: row for stack, row in rows.items() if row is not None},
            file=self._entry.file,
            fitted_sources={
                str(stack): facts["fitted_sources"]
                for stack, facts in stacks.items()
                if isinstance(facts, dict) and facts.get("fitted_sources")
            },
            **{field.name: values[field.name] for field in top},
        )

    def _section(self, entry: CatalogEntry, key: str) -> Mapping[str, Any]:
        value = entry.facts.get(key)
        if isinstance(value, dict):
            return value
        self._report_invalid(entry, key, "is missing" if value is None else "must be a mapping")
        return {}

    def _efficiency_row(
        self, entry: CatalogEntry, stack: str, path: tuple[str, ...]
    ) -> Efficiency | None:
        """Return the efficiency factors of a kernel stack; None after reporting a finding.

        ``path`` contains the rows whose ``like`` led to this row, so that a cycle can be detected.
        """
        key, here = f"efficiency.{stack}", f"{entry.file or entry.name}/{stack}"
        facts = self._section(entry, "efficiency").get(stack)
        if not isinstance(facts, dict):
            self._report_invalid(entry, key, "is missing" if facts is None else "must be a mapping")
            return None
        like = facts.get("like", "")
        own = {name: value for name, value in facts.items() if name not in ABOUT_ROWS}
        # The runs of one source have common errors, which show nothing of other machines.
        measured = facts.get("fitted_sources", 0) > 1
        launches = measured and "launch_seconds" in facts
        own = {"measured": measured, "measured_launches": launches, **own}
        if not like:
            # Flags may be omitted; fitted parameters of a row without ``like`` must all be given.
            flags = {one.name: one.default for one in fields(Efficiency) if one.type == "bool"}
            return self._build_efficiency(entry, key, own, flags)
        base = (
            Efficiency()
            if like == PRIOR
            else self._referenced_row(entry, key, str(like), (*path, here))
        )
        if base is None:
            return None
        inherited = {one.name: getattr(base, one.name) for one in fields(Efficiency)}
        return self._build_efficiency(entry, key, own, inherited)

    def _referenced_row(
        self, entry: CatalogEntry, key: str, like: str, path: tuple[str, ...]
    ) -> Efficiency | None:
        """Return the efficiency factors of the row ``like``; None after reporting a finding.

        ``path`` contains the rows that led to ``like``, so that a cycle can be detected.
        """
        generation, _, stack = like.rpartition("/")
        # Two rows that refer to each other would otherwise recurse forever.
        if like in path:
            self._report_invalid(
                entry, f"{key}.like", f"refers to itself through {', '.join(path)}"
            )
            return None
        if generation not in self._entries:
            found = look_up_entry(KIND, generation, self._library, self._sink, self._at)
            self._entries[generation] = found
        other = self._entries[generation]
        if other is None:
            self._is_valid = False
            return None
        rows = self._section(other, "efficiency")
        if stack not in rows:
            problem = f"is {like}, but {other.label} has only {', '.join(rows)}"
            self._report_invalid(entry, f"{key}.like", problem)
            return None
        return self._efficiency_row(other, stack, path)

    def _build_efficiency(
        self, entry: CatalogEntry, key: str, own: Mapping[str, Any], inherited: Mapping[str, Any]
    ) -> Efficiency | None:
        values = self._checked_values(entry, key, own, Efficiency, inherited)
        complete = len(values) == len(fields(Efficiency))
        return replace(Efficiency(), **values) if complete else None

    def _checked_values(
        self,
        entry: CatalogEntry,
        above: str,
        own: Mapping[str, Any],
        record: type,
        inherited: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the values of the fields of ``record``.

        A value is taken from ``own``, or from ``inherited`` if ``own`` lacks the field. Unknown
        keys, missing keys and values of the wrong type are reported (K08). These findings show each
        key with the prefix ``above``, the name of the section.
        """
        types = {
            field.name: str(field.type)
            for field in fields(record)
            if field.name not in _READ_ELSEWHERE
        }
        values: dict[str, Any] = {}
        for name in own.keys() - types.keys():
            self._report_unknown_key(entry, _join_key_path(above, str(name)), tuple(types))
        for name, type_ in types.items():
            wanted, accepts, convert = _TYPES[type_]
            value = own.get(name, inherited.get(name, MISSING))
            if value is MISSING:
                self._report_invalid(entry, _join_key_path(above, name), "is missing")
            elif not accepts(value):
                self._report_invalid(
                    entry, _join_key_path(above, name), f"is {str(value)[:40]}, must be {wanted}"
                )
            else:
                values[name] = convert(value)
        return values

    def _report_unknown_key(self, entry: CatalogEntry, key: str, names: tuple[str, ...]) -> None:
        from parc.compiler.diagnostics.similar_names import did_you_mean

        near = did_you_mean(key.rpartition(".")[2], names)
        hint = f"did you mean {' or '.join(near)}?" if near else f"valid keys: {', '.join(names)}"
        self._report_invalid(entry, key, "is not a valid key", hint)

    def _report_invalid(self, entry: CatalogEntry, key: str, problem: str, hint: str = "") -> None:
        """Report an invalid or missing key (K08) and record that no generation can be returned."""
        self._is_valid = False
        finding = Finding(
            f"{entry.label}: {key} {problem}",
            label=problem
            if entry.file
            else f"the catalog file {entry.label} is read for this value",
            help=hint or f"`parc catalog {KIND} hopper` prints a complete example",
        )
        entry.report(key, finding, self._sink, self._at)


def _join_key_path(above: str, name: str) -> str:
    return f"{above}.{name}" if above else name


def _is_non_negative_number(value: Any) -> bool:
    # bool is a subclass of int in Python.
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and isfinite(value) and value >= 0


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


_TYPES: dict[str, tuple[str, Callable[[Any], bool], Callable[[Any], Any]]] = {
    "float": ("a number of at least 0", _is_non_negative_number, float),
    "bool": ("true or false", lambda value: isinstance(value, bool), bool),
    "str": ("text", lambda value: isinstance(value, str), str),
    "tuple[str, ...]": ("a list of quoted texts", _is_list_of_texts, tuple),
}
"""Annotation of a field -> (description of the type, function that checks a value, function that
converts a value)."""
