"""Estimates state what they rest on, and borrowed parameters do not count as measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from parc.backends.vllm.backend import Vllm
from parc.compiler.cli import main
from parc.compiler.cost.step.step_interval import SEVERAL
from parc.compiler.ir import KernelStack, Plan, ServingPlan
from parc.compiler.ir.engine_constants import EstimateErrors
from parc.compiler.report.estimate_basis import basis_document, estimate_basis
from parc.compiler.report.text.summary import summary_text
from tests.backends import minitrain
from tests.backends.minitrain import BACKEND, install_minitrain
from tests.backends.plugin_distributions import scanned
from tests.compiled import plan_of
from tests.cost.serving.serving_cases import VLLM
from tests.generations import generation
from tests.search.serving_specs import plan_of as service_of
from tests.search.serving_specs import spec as serving_spec

HOPPER = generation("hopper")
BORROWED = 'KernelStack("minitrain", like="torch-native")'
SERVED = serving_spec("llama-3.1-8b", "hgx-h100")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ``sys.path`` for distributions."""
    with scanned(tmp_path, monkeypatch):
        yield tmp_path


def relative_width(plan: Plan) -> float:
    estimate = plan.estimate
    return estimate.step_high_seconds / estimate.step_low_seconds


def test_borrowed_factors_are_not_measured() -> None:
    row = HOPPER.efficiency["torch-native"]
    assert row.gpu_sources
    borrowed = KernelStack("mine", like="torch-native").efficiency_for(HOPPER)
    assert borrowed == replace(row, gpu_sources=(), measured_launches=False)
    assert KernelStack("torch-native", like="unfused").efficiency_for(HOPPER) == row


def test_a_plan_with_borrowed_factors_names_their_stack_and_has_the_wide_interval(
    folder: Path,
) -> None:
    install_minitrain(folder)
    plan = plan_of(minitrain.spec())
    basis = estimate_basis(plan)
    assert (basis.kind, basis.name, basis.measured) == ("borrowed", "torch-native", False)
    assert basis.sources > 1
    assert "basis     factors of torch-native on hopper, borrowed" in summary_text(plan)
    assert "no published run of minitrain on hopper" in basis.text
    megatron = plan_of(minitrain.spec(emit=["megatron", "rankmap"]))
    assert relative_width(plan) > 1.2 * relative_width(megatron)


def test_factors_of_the_plugin_itself_are_named(folder: Path) -> None:
    own = 'KernelStack("minitrain", rows={"hopper": Efficiency()})'
    edit = (BACKEND, BORROWED, own)
    imported = (BACKEND, "import Artifact, KernelStack", "import Artifact, Efficiency, KernelStack")
    install_minitrain(folder, edit, imported)
    basis = estimate_basis(plan_of(minitrain.spec()))
    assert (basis.kind, basis.name, basis.measured) == ("plugin", "minitrain", False)


def test_a_plugin_that_names_a_stack_of_the_catalog_borrows_its_factors(folder: Path) -> None:
    install_minitrain(folder, (BACKEND, BORROWED, 'KernelStack("torch-native")'))
    plan = plan_of(minitrain.spec())
    basis = estimate_basis(plan)
    assert (basis.kind, basis.name, basis.measured) == ("borrowed", "torch-native", False)
    assert "no published run of minitrain on hopper" in basis.text
    megatron = plan_of(minitrain.spec(emit=["megatron", "rankmap"]))
    assert relative_width(plan) > 1.2 * relative_width(megatron)


def test_published_runs_are_counted() -> None:
    basis = estimate_basis(plan_of(minitrain.spec(emit=["megatron"])))
    assert (basis.kind, basis.measured) == ("runs", True)
    assert basis.text.startswith(
        f"published runs of {basis.sources} sources with transformer-engine"
    )
    counts = dict(HOPPER.efficiency["transformer-engine"].gpu_sources)
    assert basis.sources == counts["h100-sxm-80gb"]


@pytest.mark.parametrize(
    ("gpu", "wide"), [("h100-sxm-80gb", ""), ("h800-sxm-80gb", ", so the interval is wide")]
)
def test_a_framework_that_another_backend_starts_has_its_own_runs(gpu: str, wide: str) -> None:
    node = {"base": "dgx-h100", "gpu": gpu}
    own = {"cluster": minitrain.SPEC["cluster"] | {"node": node}, "launch": {"program": "train.py"}}
    basis = estimate_basis(plan_of(minitrain.spec(emit=["accelerate", "deepspeed"], **own)))
    counts = dict(HOPPER.efficiency["torch-eager"].gpu_sources)
    assert (basis.kind, basis.name, basis.measured) == ("runs", "torch-eager", True)
    assert (counts[gpu] < SEVERAL) == bool(wide)
    assert basis.text == f"published runs of {counts[gpu]} sources with torch-eager on {gpu}{wide}"


def service(monkeypatch: pytest.MonkeyPatch, **errors: float | str) -> ServingPlan:
    constants = replace(VLLM, errors=EstimateErrors(**errors)) if errors else VLLM  # type: ignore[arg-type]
    monkeypatch.setattr(Vllm, "constants", lambda _: constants)
    return service_of(SERVED)


def test_a_service_states_the_source_of_each_group_of_constants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = service(monkeypatch)
    assert estimate_basis(plan).measured
    document = basis_document(plan)
    assert document["constants"]["arrivals"] == " ".join(VLLM.arrivals.source.split())
    assert document["text"] in summary_text(plan)


def test_an_engine_without_measurements_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    basis = estimate_basis(service(monkeypatch, source=EstimateErrors().source))
    assert not basis.measured
    assert "no published measurements of this engine" in basis.text


def run(*words: str) -> str:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_all_outputs_that_show_estimates_name_the_basis(folder: Path) -> None:
    install_minitrain(folder)
    spec = folder / "spec.yaml"
    spec.write_text(json.dumps(minitrain.spec(), indent=1), encoding="utf-8")
    text = "factors of torch-native on hopper, borrowed"
    assert text in run("compile", str(spec), "-o", str(folder / "new"))
    assert text in run("estimate", str(spec))
    document: dict[str, Any] = json.loads((folder / "new" / "plan.json").read_text("utf-8"))
    assert document["basis"]["kind"] == "borrowed"
    assert text in (folder / "new" / "report.html").read_text("utf-8")
    swept = run("sweep", str(spec), "--jobs", "1", "--vary", "emit=[minitrain],[fsdp]")
    assert swept.count("  not measured") == 1
    assert f"Not measured: {text}" in swept
    best = run("sweep", str(spec), "--jobs", "1", "--vary", "layout.tp=1", "--best", "time")
    assert "not measured" in best.splitlines()[-1]
    run("compile", str(spec), "-o", str(folder / "old"), "--emit", "megatron,rankmap")
    compared = CliRunner().invoke(main, ["diff", str(folder / "old"), str(folder / "new")]).output
    assert f"The new estimate rests on: {text}" in compared
    assert "The old estimate rests on: published runs of" in compared


def test_a_sweep_of_measured_stacks_has_no_column_for_it(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(minitrain.spec(emit=["fsdp"]), indent=1), encoding="utf-8")
    swept = run("sweep", str(spec), "--jobs", "1", "--vary", "cluster.nodes=2,4")
    assert "basis" not in swept
