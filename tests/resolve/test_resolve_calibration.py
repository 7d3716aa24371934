"""A calibration file of the user: what of it reaches the cost model."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from parc.backends.registry import framework
from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.collective_time import OPERATIONS, CollectiveFit
from parc.compiler.cost.setup.calibrated_parameters import (
    PARAMETERS,
    TERMS,
    numeric_efficiency_parameters,
    valid_parameter_range,
)
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Efficiency
from parc.compiler.pipeline import resolve_spec
from parc.compiler.resolve.resolve_calibration import Calibration, resolve_calibration
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.reading.source import SpecSource
from tests.cli.specs import SPEC
from tests.generations import generation
from tests.placement.placement_plans import cluster, problem

GOOD = "calibration: 1\nclass: hopper/transformer-engine\n"


def resolved(folder: Path, text: str) -> tuple[tuple[tuple[str, float], ...], list[str]]:
    """The values of a file with ``text``, and the codes of what was found."""
    (folder / "own.yaml").write_text(text, encoding="utf-8")
    sink = Sink()
    spec = ClusterSpec(node="dgx-h100", nodes=4, calibration="own.yaml")
    values = resolve_calibration(spec, cluster(4), Library(folder), sink)
    return values.values, [found.code for found in sink.diagnostics]


def test_values_come_sorted_with_their_full_names(tmp_path: Path) -> None:
    text = "parameters: {tp: 0.5, gemm: 2}\ncollectives: {all_gather: {bus_gb_per_s: 200}}\n"
    values, codes = resolved(tmp_path, GOOD + text)
    assert not codes
    assert values == (("all_gather.bus_gb_per_s", 200.0), ("gemm", 2.0), ("tp", 0.5))


@pytest.mark.parametrize(
    "text",
    [
        "parameters: {gem: 1.2}\n",
        "parameters: {gemm: true}\n",
        "parameters: {gemm: .nan}\n",
        "parameters: {gemm: 1e9}\n",
        "parameters: {unfused: 1}\n",
        "parameters: [1, 2]\n",
        "collectives: {all_reduce: 4}\n",
        "collectives: {all_reduce: {copy: 1}}\n",
        "collectives: {broadcast: {bus_gb_per_s: 1}}\n",
        "notes: mine\n",
    ],
)
def test_a_file_with_a_mistake_is_refused_whole(text: str, tmp_path: Path) -> None:
    values, codes = resolved(tmp_path, GOOD + text)
    assert values == ()
    assert set(codes) <= {"PARC-Q07", "PARC-X11", "PARC-X06"}
    assert codes


@pytest.mark.parametrize("text", ["", "[]", "calibration: 2\n", "a: 1\n", "calibration: 1: 2\n"])
def test_a_file_that_is_not_a_calibration_is_reported(text: str, tmp_path: Path) -> None:
    values, codes = resolved(tmp_path, text)
    assert values == ()
    assert codes[0] in ("PARC-Q07", "PARC-X06")


def test_a_missing_file_is_reported_at_the_spec(tmp_path: Path) -> None:
    text = SPEC.replace("node: dgx-h100", "node: dgx-h100\n  calibration: none.yaml")
    sink = Sink()
    resolve_spec(SpecSource("spec.yaml", text, tmp_path), (), sink)
    (found,) = sink.diagnostics
    assert (found.code, found.path) == ("PARC-Q07", "cluster.calibration")
    assert found.span is not None
    assert found.span.line == 6


def test_no_calibration_means_no_values() -> None:
    assert resolve_calibration("any", cluster(4), Library(), Sink()) == Calibration()
    assert problem(cluster(4)).calibration == ()


def test_every_fitted_field_has_a_row_and_every_row_is_a_field() -> None:
    assert set(numeric_efficiency_parameters(Efficiency())) == set(PARAMETERS)
    assert set(PARAMETERS) <= {field.name for field in fields(Efficiency)}
    assert set(TERMS) <= {field.name for field in fields(CollectiveFit)}


def test_shipped_values_are_legal() -> None:
    rows = [
        (name, stack, row)
        for name in Library().names("generations")
        for stack, row in generation(name).efficiency.items()
    ]
    assert len(rows) > 20
    for hardware, stack, row in rows:
        for name, value in numeric_efficiency_parameters(row).items():
            low, high = valid_parameter_range(name) or (0.0, 0.0)
            assert low <= value <= high, f"{hardware}/{stack} {name}"


def test_calibrated_values_price_the_layout() -> None:
    plain = problem(cluster(4))
    target = framework("megatron")
    before = cost_model_for(plain, target)
    values = tuple((f"{each}.bus_gb_per_s", 100.0) for each in OPERATIONS)
    after = cost_model_for(replace(plain, calibration=(*values, ("gemm", 3.0))), target)
    assert after.efficiency == replace(before.efficiency, gemm=3.0)
    assert {fit.bus_gb_per_s for fit in after.links.fits.values()} == {100.0}
    for each in OPERATIONS:
        assert replace(after.links.fits[each], bus_gb_per_s=1.0) == replace(
            before.links.fits[each], bus_gb_per_s=1.0
        )
