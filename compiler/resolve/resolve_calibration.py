"""Read the calibration file of ``cluster.calibration``: fitted parameters of the cost model."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

from parc.backends.registry import installed_backends
from parc.compiler.catalog.library import (
    FileRule,
    TextReader,
    read_user_file,
    register_user_file_lines,
)
from parc.compiler.cost.kernels.collective_time import OPERATIONS
from parc.compiler.cost.serving.calibrated_service import SERVICE_FACTORS
from parc.compiler.cost.setup.calibrated_parameters import (
    PARAMETERS,
    Values,
    hardware_class,
    valid_parameter_range,
)
from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.diagnostics.similar_names import did_you_mean
from parc.compiler.ir import Cluster, Gpu, KernelStack
from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.reading.yaml_tree import SpecTree, read_tree

AT = "cluster.calibration"
FORMAT = 1
KEYS = ("calibration", "written_by", "class", "parameters", "collectives", "fitted_to")
"""Valid keys of a calibration file. ``written_by`` and ``fitted_to`` are notes without effect."""

ValidNumbers = tuple[tuple[float, float] | None, tuple[str, ...]]
"""Range of a parameter, None if there is no such parameter, and the names of all parameters."""


@frozen
class Calibration:
    """Parameters of the cost model from a calibration file, and their hardware class."""

    values: Values = ()
    """(parameter name, value) of each parameter, sorted by name."""
    path: str = ""
    hardware: str = ""
    """Hardware class of the measurements: ``GENERATION/STACK`` for training, ``GENERATION/ENGINE``
    for a service, or only the GPU generation if the file was fitted to link measurements."""
    span: Span | None = None
    """Position of the hardware class in the file."""


def resolve_calibration(
    spec: str | ClusterSpec, cluster: Cluster, library: TextReader, sink: Sink
) -> Calibration:
    """Return the calibration from the file that ``cluster.calibration`` names.

    The result is empty if the spec names no file. It is also empty after an error: the file cannot
    be read or is invalid (Q07), or it was measured on another GPU generation (Q08).
    """
    path = None if isinstance(spec, str) else spec.calibration
    if path is None:
        return Calibration()
    text = read_user_file(path, library, sink, AT, FileRule("Q07"))
    tree = None if text is None else read_tree(text, path, sink)
    if text is None or tree is None:
        return Calibration()
    if isinstance(tree.value, dict):
        register_user_file_lines(path, text, sink)
    return _CalibrationReader(path, tree, sink).read_calibration(cluster)


def check_calibration_stack(
    calibration: Calibration, gpu: Gpu, stack: KernelStack, sink: Sink
) -> None:
    """Report a calibration that was fitted to runs of another software stack (Q08).

    ``stack`` is the software stack of the framework of this job.
    """
    # A file that was fitted only to link measurements has no stack, and fits every stack.
    if "/" not in calibration.hardware or calibration.hardware == hardware_class(gpu, stack):
        return
    own = hardware_class(gpu, stack)
    help_ = "kernels and overlap differ between frameworks: calibrate with runs of this framework"
    sink.report("Q08", _wrong_hardware_class_finding(calibration, own, help_), at=AT)


def resolve_service_factors(
    spec: str | ClusterSpec, cluster: Cluster, engine: str, library: TextReader, sink: Sink
) -> Values:
    """Return the factors from the file that ``cluster.calibration`` of a service names.

    Report a file that was not fitted to measurements of ``engine`` (Q08).
    """
    calibration = resolve_calibration(spec, cluster, library, sink)
    own = service_class(cluster, engine)
    if calibration.path and calibration.hardware != own:
        help_ = "calibrate with benchmarks of a service of this engine: parc calibrate --spec SPEC"
        sink.report("Q08", _wrong_hardware_class_finding(calibration, own, help_), at=AT)
    return calibration.values


def service_class(cluster: Cluster, engine: str) -> str:
    """Return ``generation/engine``, the hardware class of a calibrated service."""
    return f"{cluster.generation.name}/{engine}"


def _wrong_hardware_class_finding(calibration: Calibration, own: str, help_: str) -> Finding:
    return Finding(
        f"{calibration.path} is a calibration for {calibration.hardware[:40]}, not for {own}",
        label=f"the hardware class of this job is {own}",
        help=help_,
        causes=(Cause("class", "the hardware class of the measured runs", calibration.span),),
    )


class _CalibrationReader:
    """Reader for one calibration file."""

    def __init__(self, path: str, tree: SpecTree, sink: Sink) -> None:
        self.path = path
        self.tree = tree
        self.sink = sink
        self.valid = True

    def read_calibration(self, cluster: Cluster) -> Calibration:
        """Return the calibration in the file; an empty one if the file has an invalid entry."""
        value = self.tree.value
        if not isinstance(value, dict) or value.get("calibration") != FORMAT:
            self._report_invalid(
                "calibration" if isinstance(value, dict) else "",
                f"{self.path} is not a calibration file of format {FORMAT}",
                help="create a calibration file with parc calibrate RUNS.csv -o FILE",
            )
            return Calibration()
        for key in value.keys() - set(KEYS):
            self._report_unknown_key(str(key), str(key), KEYS)
        found = [*self._read_parameters(value), *self._read_collectives(value)]
        written = Calibration(
            tuple(sorted(found)), self.path, str(value.get("class")), self._span_of_key("class")
        )
        # Parameters were fitted together, so a file with one invalid entry is not used at all.
        valid = self._matches_gpu_generation(written, cluster) and self.valid
        return written if valid else Calibration()

    def _read_parameters(self, value: dict[str, Any]) -> Iterator[tuple[str, float]]:
        """Yield (name, value) of each valid entry of ``parameters``."""
        _, _, measured_on = str(value.get("class")).partition("/")
        is_service = measured_on in {one.name for one in installed_backends("engine")}
        known = SERVICE_FACTORS if is_service else PARAMETERS
        for name, number in self._read_mapping(value.get("parameters"), "parameters"):
            at, name = f"parameters.{name}", str(name)
            bounds = valid_parameter_range(name)
            if is_service:
                factor = SERVICE_FACTORS.get(name)
                bounds = (factor.low, factor.high) if factor else None
            yield from self._read_number(at, name, number, (bounds, tuple(known)))

    def _read_collectives(self, value: dict[str, Any]) -> Iterator[tuple[str, float]]:
        """Yield (``OPERATION.TERM``, value) of each valid entry of ``collectives``."""
        for operation, terms in self._read_mapping(value.get("collectives"), "collectives"):
            at = f"collectives.{operation}"
            if operation not in OPERATIONS:
                self._report_unknown_key(at, str(operation), OPERATIONS)
                continue
            for term, number in self._read_mapping(terms, at):
                name = f"{operation}.{term}"
                bounds = valid_parameter_range(name)
                yield from self._read_number(f"{at}.{term}", name, number, (bounds, ()))

    def _read_mapping(self, value: Any, at: str) -> list[tuple[Any, Any]]:
        if value is None or isinstance(value, dict):
            return list((value or {}).items())
        self._report_invalid(at, f"{at} must be a mapping of names to numbers")
        return []

    def _read_number(
        self, at: str, name: str, number: Any, valid: ValidNumbers
    ) -> Iterator[tuple[str, float]]:
        """Yield (name, value) if ``number`` is valid for ``name``; otherwise report it (Q07)."""
        bounds, known = valid
        if bounds is None:
            self._report_unknown_key(at, name, known)
            return
        low, high = bounds
        # bool is a subclass of int, but true and false are not parameter values.
        real = isinstance(number, int | float) and not isinstance(number, bool)
        if real and isfinite(number) and low <= number <= high:
            yield name, float(number)
            return
        self._report_invalid(
            at, f"{name} is {str(number)[:40]}", f"must be a number from {low:g} to {high:g}"
        )

    def _matches_gpu_generation(self, written: Calibration, cluster: Cluster) -> bool:
        """Return True if the calibration was measured on GPUs of the cluster's generation.

        Otherwise it is reported as a calibration for another GPU generation (Q08).
        """
        own = cluster.gpu.generation
        if written.hardware.partition("/")[0] == own:
            return True
        help_ = "measurements of one GPU generation do not apply to another"
        self.sink.report("Q08", _wrong_hardware_class_finding(written, own, help_), at=AT)
        return False

    def _report_unknown_key(self, at: str, name: str, known: tuple[str, ...]) -> None:
        near = did_you_mean(name, known)
        label = f"did you mean {' or '.join(near)}?" if near else "no such key"
        listed = f"valid keys: {', '.join(known)}" if known else ""
        self.valid = False
        finding = Finding(f"unknown key {name[:60]} in {self.path}", label, help=listed)
        self.sink.report("Q07", finding, at=AT, span=self.tree.keys.get(at))

    def _report_invalid(self, at: str, message: str, label: str = "", help: str = "") -> None:
        self.valid = False
        self.sink.report(
            "Q07", Finding(message, label, help=help), at=AT, span=self._span_of_key(at)
        )

    def _span_of_key(self, at: str) -> Span | None:
        return self.tree.values.get(at) or self.tree.keys.get(at)
