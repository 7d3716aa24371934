"""An engine that declares too little is refused by name, never estimated as another engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parc.backends.engine_constants import build_engine_constants, load_engine_constants
from parc.backends.vllm.backend import Vllm
from parc.compiler.diagnostics import Diagnostic
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import Mesh, ServingLayout
from parc.compiler.ir.engine_constants import EngineConstants, UndeclaredConstantsError
from tests.backends.plugin_distributions import scanned, write_distribution
from tests.cost.serving.serving_cases import VLLM
from tests.hybrid_models import NEMOTRON_NANO
from tests.project_files import ROOT
from tests.search.serving_specs import Tree, planned, spec

TABLE = (ROOT / "backends" / "vllm" / "constants.yaml").read_text("utf-8")
DENSE = spec("llama-3.1-8b", "hgx-h100")
ENGINE = '''\
"""An engine that behaves like vLLM, but declares nothing of its own."""

from parc.backends.declaration import Declaration
from parc.backends.engine_constants import load_engine_constants
from parc.backends.vllm.backend import Vllm


class Engine(Vllm):
    name = "{name}"

    def constants(self):
        return load_engine_constants("{name}", __package__ or "json")


BACKEND = Engine()
DECLARATION = Declaration(
    name="{name}", package="json", serving=__name__, binds_layout=True, spec_fields=("job",)
)
'''


def table(**changes: Any) -> dict[str, Any]:
    """vLLM's table with other sections."""
    return {**parse_table(TABLE), **changes}


def only_finding(tree: Tree) -> Diagnostic:
    """The one diagnostic of a spec that does not compile."""
    plan, sink = planned(tree)
    (found,) = sink.diagnostics
    assert plan is None
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ``sys.path`` for distributions."""
    with scanned(tmp_path, monkeypatch):
        yield tmp_path


def test_an_engine_plugin_without_a_table_of_constants_is_refused(folder: Path) -> None:
    write_distribution(folder, "mylab", ENGINE)
    found = only_finding(DENSE | {"emit": ["mylab", "rankmap"]})
    assert found.code == "PARC-V32"
    assert found.finding.message.startswith("mylab does not declare")
    assert found.finding.label == "json/constants.yaml does not exist"


def test_missing_keys_are_named_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = {key: value for key, value in table()["memory"].items() if key != "context_bytes"}
    tree = {name: value for name, value in table(memory=memory).items() if name != "arrivals"}
    monkeypatch.setattr(Vllm, "constants", lambda _: build_engine_constants("vllm", tree, "a.yaml"))
    found = only_finding(DENSE)
    assert found.code == "PARC-V32"
    assert found.finding.label == "a.yaml lacks arrivals, memory.context_bytes"


def test_values_of_another_type_are_refused() -> None:
    memory = {**table()["memory"], "budget": "half"}
    with pytest.raises(UndeclaredConstantsError, match=r"a\.yaml: .*half"):
        build_engine_constants("vllm", table(memory=memory), "a.yaml")


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(UndeclaredConstantsError, match="speed"):
        build_engine_constants("vllm", table(speed={"step_seconds": 1.0}), "a.yaml")


def test_another_object_than_constants_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vllm, "constants", lambda _: table())
    assert only_finding(DENSE).finding.label == "constants() returns dict, not EngineConstants"


def without_state_pages(_: Vllm) -> EngineConstants:
    return replace(VLLM, states=replace(VLLM.states, pages=None))


def test_recurrent_layers_need_a_policy_for_their_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vllm, "constants", without_state_pages)
    hybrid = spec(NEMOTRON_NANO, "hgx-h100", job={"checkpoint": "/models/hybrid"})
    found = only_finding(hybrid)
    assert found.code == "PARC-V32"
    assert "states.pages of its constants is null" in found.finding.label
    assert (found.finding.help, found.finding.fix) == ("engines with such a plan: none", "")
    assert planned(DENSE)[0] is not None


def test_a_mesh_without_an_axis_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def mesh(_: Vllm, layout: ServingLayout) -> Mesh:
        sizes = (("tp", layout.tp), ("pp", layout.pp), ("replica", layout.replicas * layout.dp))
        return Mesh.from_sizes(sizes)

    monkeypatch.setattr(Vllm, "mesh", mesh)
    found = only_finding(DENSE)
    assert found.code == "PARC-V33"
    assert found.finding.label == "cp is missing, dp is missing, replica has size 77"


@pytest.mark.parametrize(
    "axes",
    ["dp tp cp pp replica", "tp pp cp dp replica", "tp cp replica pp dp", "cp tp pp dp replica"],
)
def test_a_mesh_in_an_order_that_parc_cannot_estimate_is_refused(
    monkeypatch: pytest.MonkeyPatch, axes: str
) -> None:
    def mesh(_: Vllm, layout: ServingLayout) -> Mesh:
        sizes = {"tp": layout.tp, "cp": layout.pcp, "pp": layout.pp, "dp": layout.dp}
        sizes["replica"] = layout.replicas
        return Mesh.from_sizes(tuple((axis, sizes[axis]) for axis in axes.split()))

    monkeypatch.setattr(Vllm, "mesh", mesh)
    found = only_finding(DENSE)
    assert found.code == "PARC-V33"
    assert found.finding.message.endswith(f"{', '.join(axes.split())}, the fastest axis first")


def test_constants_of_another_engine_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vllm, "constants", lambda _: replace(VLLM, name="sglang"))
    found = only_finding(DENSE)
    assert found.code == "PARC-V32"
    assert found.finding.label == "constants() returns the constants of sglang"


def test_constants_of_vllm_are_read_once() -> None:
    package = "parc.backends.vllm"
    assert load_engine_constants("vllm", package) is load_engine_constants("vllm", package)


def test_a_hybrid_model_for_an_engine_without_the_policy_gets_another_engine() -> None:
    hybrid = spec(NEMOTRON_NANO, "hgx-h100", job={"checkpoint": "/models/hybrid"})
    found = only_finding(hybrid | {"emit": ["sglang"]})
    assert (found.code, found.finding.fix) == ("PARC-V32", "emit: [vllm]")
