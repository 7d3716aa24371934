"""Read the parameters of the cost model that ``cluster.calibration`` replaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.collective_time import OPERATIONS
from parc.compiler.cost.setup.calibrated import PARAMETERS, Values, hardware_class, valid_range
from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir import Cluster, Gpu, Stack
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.nearest import did_you_mean
from parc.compiler.spec.reading.yaml_tree import Tree, read_tree, split_lines

AT = "cluster.calibration"
FORMAT = 1
KEYS = ("calibration", "written_by", "class", "parameters", "collectives", "fitted_to")
"""Valid keys; ``written_by`` and ``fitted_to`` are notes for the reader and have no effect."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Content of a calibration file."""

    values: Values = ()
    """(name, value) pairs, sorted."""
    path: str = ""
    hardware: str = ""
    """Hardware class of the measured runs; a GPU generation without a stack if only links were
    measured."""
    span: Span | None = None
    """Position of the class in the file."""


def resolve_calibration(
    spec: str | ClusterSpec, cluster: Cluster, library: Library, sink: Sink
) -> Calibration:
    """Return the calibration; an empty one if the spec names no file, or after an error.

    Findings about the content are reported at the lines of the file.
    """
    path = None if isinstance(spec, str) else spec.calibration
    if path is None:
        return Calibration()
    try:
        text = library.text(path)
    except OSError as error:
        reason = error.strerror or str(error)
        finding = Finding(f"{path} cannot be read: {reason}", "no such calibration")
        sink.report("Q07", finding, at=AT)
        return Calibration()
    lines = {**sink.positions.lines, path: split_lines(text)}
    sink.positions = replace(sink.positions, lines=lines)
    tree = read_tree(text, path, sink)
    return Calibration() if tree is None else _File(path, tree, sink).calibration(cluster)


def check_stack(calibration: Calibration, gpu: Gpu, stack: Stack, sink: Sink) -> None:
    """Report Q08 if the measured runs used other kernels than the framework of the job."""
    if "/" not in calibration.hardware or calibration.hardware == hardware_class(gpu, stack):
        return
    own = hardware_class(gpu, stack)
    help_ = "kernels and overlap differ between frameworks: calibrate with runs of this one"
    sink.report("Q08", _other_class(calibration, own, help_), at=AT)


def _other_class(calibration: Calibration, own: str, help_: str) -> Finding:
    return Finding(
        f"{calibration.path} is a calibration of {calibration.hardware[:40]}, not of {own}",
        label=f"measured on another class than {own}",
        help=help_,
        causes=(Cause("class", "the class of the measured runs", calibration.span),),
    )


class _File:
    """Reader of one calibration file."""

    def __init__(self, path: str, tree: Tree, sink: Sink) -> None:
        self.path = path
        self.tree = tree
        self.sink = sink
        self.sound = True

    def calibration(self, cluster: Cluster) -> Calibration:
        """Return the calibration in the file; an empty one if an entry of the file is invalid."""
        value = self.tree.value
        if not isinstance(value, dict) or value.get("calibration") != FORMAT:
            self._refuse(
                "calibration" if isinstance(value, dict) else "",
                f"{self.path} is not a calibration of format {FORMAT}",
                help="parc calibrate RUNS.csv -o FILE writes one",
            )
            return Calibration()
        for key in value.keys() - set(KEYS):
            self._unknown(str(key), str(key), KEYS)
        found = [*self._parameters(value), *self._collectives(value)]
        written = Calibration(
            tuple(sorted(found)), self.path, str(value.get("class")), self._span("class")
        )
        sound = self._is_of_generation(written, cluster) and self.sound
        return written if sound else Calibration()

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
        bounds = valid_range(name)
        if bounds is None:
            self._unknown(at, name, known)
            return
        low, high = bounds
        real = isinstance(number, int | float) and not isinstance(number, bool)
        if real and isfinite(number) and low <= number <= high:
            yield name, float(number)
            return
        self._refuse(at, f"{name} is {str(number)[:40]}", f"must be from {low:g} to {high:g}")

    def _is_of_generation(self, written: Calibration, cluster: Cluster) -> bool:
        """Return True if the runs used GPUs of the cluster's generation; else report Q08."""
        own = cluster.gpu.generation
        if written.hardware.partition("/")[0] == own:
            return True
        help_ = "measurements of one GPU generation do not apply to another"
        self.sink.report("Q08", _other_class(written, own, help_), at=AT)
        return False

    def _unknown(self, at: str, name: str, known: tuple[str, ...]) -> None:
        near = did_you_mean(name, known)
        label = f"did you mean {' or '.join(near)}?" if near else "no such key"
        listed = f"valid keys: {', '.join(known)}" if known else ""
        self.sound = False
        finding = Finding(f"unknown key {name[:60]} in {self.path}", label, help=listed)
        self.sink.report("Q07", finding, at=AT, span=self.tree.keys.get(at))

    def _refuse(self, at: str, message: str, label: str = "", help: str = "") -> None:
        self.sound = False
        self.sink.report("Q07", Finding(message, label, help=help), at=AT, span=self._span(at))

    def _span(self, at: str) -> Span | None:
        return self.tree.values.get(at) or self.tree.keys.get(at)
