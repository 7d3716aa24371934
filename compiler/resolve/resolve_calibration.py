"""``cluster.calibration`` to the parameters of the cost model that it replaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import Any

from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.collective_time import OPERATIONS
from parc.compiler.cost.setup.calibrated import PARAMETERS, Values, hardware_class, legal_range
from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir import Cluster
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.nearest import did_you_mean
from parc.compiler.spec.reading.yaml_tree import Tree, read_tree, split_lines

AT = "cluster.calibration"
FORMAT = 1
KEYS = ("calibration", "written_by", "class", "parameters", "collectives", "fitted_to")
"""Legal keys; ``written_by`` and ``fitted_to`` are for people and are not read."""


def resolve_calibration(
    spec: str | ClusterSpec, cluster: Cluster, library: Library, sink: Sink
) -> Values:
    """(name, value) pairs, sorted; empty where the spec names no file, or after an error.

    Findings about the content stand at the lines of the file.
    """
    path = None if isinstance(spec, str) else spec.calibration
    if path is None:
        return ()
    try:
        text = library.text(path)
    except OSError as error:
        reason = error.strerror or str(error)
        finding = Finding(f"{path} cannot be read: {reason}", "no such calibration")
        sink.report("Q07", finding, at=AT)
        return ()
    lines = {**sink.positions.lines, path: split_lines(text)}
    sink.positions = replace(sink.positions, lines=lines)
    tree = read_tree(text, path, sink)
    return () if tree is None else _File(path, tree, sink).values(cluster)


class _File:
    """One calibration file and where its findings go."""

    def __init__(self, path: str, tree: Tree, sink: Sink) -> None:
        self.path = path
        self.tree = tree
        self.sink = sink
        self.sound = True

    def values(self, cluster: Cluster) -> Values:
        """Everything in it, or nothing where a part of it is wrong."""
        value = self.tree.value
        if not isinstance(value, dict) or value.get("calibration") != FORMAT:
            self._refuse(
                "calibration" if isinstance(value, dict) else "",
                f"{self.path} is no calibration of format {FORMAT}",
                help="parc calibrate RUNS.csv -o FILE writes one",
            )
            return ()
        for key in value.keys() - set(KEYS):
            self._unknown(str(key), str(key), KEYS)
        found = [*self._parameters(value), *self._collectives(value)]
        self._check_class(value, cluster)
        return tuple(sorted(found)) if self.sound else ()

    def _parameters(self, value: dict[str, Any]) -> Iterator[tuple[str, float]]:
        for name, number in self._mapping(value.get("parameters"), "parameters"):
            yield from self._number(f"parameters.{name}", str(name), number, tuple(PARAMETERS))

    def _collectives(self, value: dict[str, Any]) -> Iterator[tuple[str, float]]:
        for operation, terms in self._mapping(value.get("collectives"), "collectives"):
            at = f"collectives.{operation}"
            if operation not in OPERATIONS:
                self._unknown(at, str(operation), OPERATIONS)
                continue
            for term, number in self._mapping(terms, at):
                yield from self._number(f"{at}.{term}", f"{operation}.{term}", number, ())

    def _mapping(self, value: Any, at: str) -> list[tuple[Any, Any]]:
        if value is None or isinstance(value, dict):
            return list((value or {}).items())
        self._refuse(at, f"{at} must be a mapping of names to numbers")
        return []

    def _number(
        self, at: str, name: str, number: Any, known: tuple[str, ...]
    ) -> Iterator[tuple[str, float]]:
        bounds = legal_range(name)
        if bounds is None:
            self._unknown(at, name, known)
            return
        low, high = bounds
        real = isinstance(number, int | float) and not isinstance(number, bool)
        if real and isfinite(number) and low <= number <= high:
            yield name, float(number)
            return
        self._refuse(at, f"{name} is {str(number)[:40]}", f"must be from {low:g} to {high:g}")

    def _check_class(self, value: dict[str, Any], cluster: Cluster) -> None:
        written, own = value.get("class"), hardware_class(cluster.gpu)
        if written == own:
            return
        finding = Finding(
            f"{self.path} is a calibration of {str(written)[:40]}, this cluster is {own}",
            label=f"{cluster.gpu.name} is {own}",
            help="what one GPU generation was measured to do says nothing about another",
            causes=(Cause("class", "calibrated for this class", self._span("class")),),
        )
        self.sink.report("Q08", finding, at=AT)

    def _unknown(self, at: str, name: str, known: tuple[str, ...]) -> None:
        near = did_you_mean(name, known)
        label = f"did you mean {' or '.join(near)}?" if near else "no such key"
        listed = f"legal: {', '.join(known)}" if known else ""
        self.sound = False
        finding = Finding(f"unknown key {name[:60]} in {self.path}", label, help=listed)
        self.sink.report("Q07", finding, at=AT, span=self.tree.keys.get(at))

    def _refuse(self, at: str, message: str, label: str = "", help: str = "") -> None:
        self.sound = False
        self.sink.report("Q07", Finding(message, label, help=help), at=AT, span=self._span(at))

    def _span(self, at: str) -> Span | None:
        return self.tree.values.get(at) or self.tree.keys.get(at)
