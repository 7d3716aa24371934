"""Settings that a plugin does not declare are refused, and advice does not recommend them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from parc.backends.spec_fields import declared_spec_fields, spec_field, uses_spec_field
from parc.compiler.cli import main
from parc.compiler.diagnostics import Diagnostic
from tests.backends import minitrain
from tests.backends.minitrain import DECLARATION, install_minitrain
from tests.backends.plugin_distributions import scanned
from tests.compiled import planned
from tests.project_files import ROOT

FP8_DECLARED = (DECLARATION, '"job.seed"', '"job.seed", "job.precision", "job.moe_dispatcher"')
NO_FIELDS = (DECLARATION, "    spec_fields=(", "    spec_fields=() and (")
WHOLE_MODEL = (DECLARATION, '"model.layers", ', '"model", "model.layers", ')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ``sys.path`` for distributions."""
    with scanned(tmp_path, monkeypatch):
        yield tmp_path


def findings(**sections: Any) -> list[Diagnostic]:
    return planned(minitrain.spec(**sections))[1].diagnostics


def refused(**sections: Any) -> list[str]:
    """Return the messages of the findings E11."""
    return [one.finding.message for one in findings(**sections) if one.code == "PARC-E11"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("precision", "fp8"),
        ("fused_loss", True),
        ("gradient_precision", "bf16"),
        ("lr_decay", "constant"),
        ("data", ["/data"]),
        ("checkpoint_dir", "/checkpoints"),
        ("adam_beta1", 0.9),
    ],
)
def test_a_job_setting_that_the_plugin_does_not_declare_is_refused(
    folder: Path, field: str, value: Any
) -> None:
    install_minitrain(folder)
    (found,) = [one for one in findings(job={field: value}) if one.severity == "error"]
    assert (found.code, found.finding.message) == (
        "PARC-E11",
        f"minitrain does not use job.{field}",
    )
    assert found.finding.fix == f"remove job.{field}"


@pytest.mark.parametrize("job", [{"seed": 7}, {"tokens": "1T"}, {"precision": "bf16"}])
def test_declared_settings_and_defaults_are_accepted(folder: Path, job: dict[str, Any]) -> None:
    install_minitrain(folder)
    assert refused(job=job) == []


def test_advice_recommends_only_what_the_plugin_declares(folder: Path) -> None:
    install_minitrain(folder)
    assert "PARC-G12" not in {one.code for one in findings()}


def test_advice_recommends_what_the_plugin_declares(folder: Path) -> None:
    install_minitrain(folder, FP8_DECLARED)
    assert "PARC-G12" in {one.code for one in findings()}


def test_a_model_of_the_catalog_needs_the_fields_that_differ_from_a_plain_decoder(
    folder: Path,
) -> None:
    install_minitrain(folder)
    assert refused(model="qwen3-8b") == [
        "minitrain does not use model.qk_norm, model.norm_epsilon, which qwen3-8b needs"
    ]
    assert refused(model="llama-3-8b") == []


def test_a_section_stands_for_all_of_its_fields(folder: Path) -> None:
    install_minitrain(folder, WHOLE_MODEL)
    assert refused(model="qwen3-8b") == []
    assert refused(model={"base": "llama-3-8b", "activation": "gelu"}) == []


def test_a_change_of_the_model_is_refused_at_its_field(folder: Path) -> None:
    install_minitrain(folder)
    model = {"base": "llama-3-8b", "activation": "gelu", "layers": 16}
    assert refused(model=model) == ["minitrain does not use model.activation"]


def test_a_plugin_that_declares_no_fields_is_refused_once(folder: Path) -> None:
    install_minitrain(folder, NO_FIELDS)
    assert refused() == ["the plugin minitrain does not declare which fields of the spec it uses"]


def test_reasons_in_without_effect_turn_the_error_into_a_warning(folder: Path) -> None:
    install_minitrain(folder)
    table = folder / "parc_minitrain" / "without_effect.yaml"
    table.write_text("job.data: Minitrain has mock data only\n", encoding="utf-8")
    codes = [one.code for one in findings(job={"data": ["/data"]})]
    assert "PARC-E11" not in codes
    assert "PARC-E14" in codes


def test_tables_of_the_package_declare_fields(folder: Path) -> None:
    install_minitrain(folder)
    rows = (
        "precision: {from: [job.precision]}\n"
        "activation: {from: [model.ffn.activation], value: name}\n"
        "ignored: {job.data: mock data}\n"
    )
    (folder / "parc_minitrain" / "fields.yaml").write_text(rows, encoding="utf-8")
    assert uses_spec_field("minitrain", "job.precision")
    assert uses_spec_field("minitrain", "model.activation")
    assert not uses_spec_field("minitrain", "job.data")
    declared = declared_spec_fields("minitrain")
    assert declared is not None
    assert declared.ignored == {"job.data": "mock data"}
    (found,) = [one for one in findings(job={"data": ["/data"]}) if one.severity == "error"]
    assert found.finding.label == "mock data"


def test_explain_names_the_plugins_that_do_not_use_a_field(folder: Path) -> None:
    install_minitrain(folder)
    reason = "effect: none with minitrain: the plugin does not declare the field"
    for field, is_unused in (("job.data", True), ("job.seed", False), ("model.qk_norm", True)):
        assert (reason in CliRunner().invoke(main, ["explain", field]).output) is is_unused


def test_backends_of_parc_need_no_declaration() -> None:
    assert declared_spec_fields("fsdp") is None
    assert uses_spec_field("fsdp", "job.data")


@pytest.mark.parametrize(
    ("plan", "spec"),
    [
        ("model.ffn.size", "model.ffn"),
        ("model.attention.output_bias", "model.attention_output_bias"),
        ("model.position.base", "model.position.base"),
        ("limits.max_num_seqs", "job.max_num_seqs"),
        ("service.setup.kv", "job.kv_precision"),
        ("problem.pins.all2all", "layout.all2all"),
        ("job.tokenizer_type", "job.tokenizer"),
    ],
)
def test_plan_fields_have_the_names_of_the_spec(plan: str, spec: str) -> None:
    from parc.compiler.spec.schema import serving_fields, training_fields

    assert spec_field(plan) == spec
    assert spec in {**training_fields(), **serving_fields()}


MINSERVE = ROOT / "examples" / "plugin" / "src"
SERVE: dict[str, Any] = {
    "parc": 1,
    "name": "run",
    "model": "qwen3-30b-a3b",
    "cluster": {"node": "hgx-h100", "nodes": 1},
    "job": {
        "kind": "serve",
        "traffic": {"input_tokens": 2000, "output_tokens": 500, "concurrency": 64},
        "max_model_len": 32768,
    },
    "emit": ["minserve", "rankmap"],
}


def served(model: Any = "qwen3-30b-a3b", **job: Any) -> list[tuple[str, str]]:
    tree = SERVE | {"model": model, "job": SERVE["job"] | job}
    shown = ("PARC-E11", "PARC-E14")
    found = planned(tree)[1].diagnostics
    return [(one.code, one.finding.message) for one in found if one.code in shown]


@pytest.fixture
def minserve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine of ``examples/plugin``, installed."""
    monkeypatch.syspath_prepend(str(MINSERVE))
    info = folder / "parc_minserve-0.1.dist-info"
    info.mkdir()
    metadata = "Metadata-Version: 2.1\nName: parc-minserve\nVersion: 0.1\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    entry = "[parc.backends]\nminserve = parc_minserve:DECLARATION\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")


@pytest.mark.usefixtures("minserve")
def test_settings_of_a_service_that_the_engine_does_not_declare_are_refused() -> None:
    assert served() == []
    assert served(prefix_caching=False) == [
        ("PARC-E11", "minserve does not use job.prefix_caching")
    ]
    hits = {**SERVE["job"]["traffic"], "prefix_hit": "50%"}
    assert served(traffic=hits) == [("PARC-E11", "minserve does not use job.traffic.prefix_hit")]


@pytest.mark.usefixtures("minserve")
def test_an_engine_reads_the_model_from_its_checkpoint() -> None:
    changed = {"base": "qwen3-30b-a3b", "activation": "gelu"}
    assert served(changed) == [("PARC-E14", "minserve does not use model.activation")]
    assert served(changed, checkpoint="/models/own", precision="bf16") == []
