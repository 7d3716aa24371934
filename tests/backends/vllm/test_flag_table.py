"""Tests of flags.yaml and known_flags.json against each other, for every version of vLLM."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.vllm.arguments import PACKAGE, planned_flags
from parc.backends.vllm.backend import VERSIONS
from parc.backends.vllm.verify_settings import FORMATS, NUMBERS, OTHERS, SWITCHES, TEXTS
from parc.compiler.spec.service_spec import ServingLayoutSpec
from tests.search.serving_specs import plan_of, planned, spec


@pytest.mark.parametrize("version", VERSIONS)
def test_the_parser_accepts_every_flag_that_is_emitted_or_verified(version: str) -> None:
    rows = rows_of_known_flags(PACKAGE, version)
    assert planned_flags() <= rows.keys()
    verified = {f"--{name}" for name in (*NUMBERS, *TEXTS, *SWITCHES, *FORMATS, *OTHERS)}
    assert verified <= rows.keys()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_parser_accepts_every_all_to_all_backend_of_the_spec(version: str) -> None:
    names = set(get_args(ServingLayoutSpec.model_fields["all2all"].annotation)) - {"auto"}
    assert len(names) >= 6
    assert names <= set(rows_of_known_flags(PACKAGE, version)["--all2all-backend"]["choices"])


def tree(version: str, *args: str) -> dict[str, Any]:
    """Return a spec for a version of vLLM with ``launch.args``."""
    parts = {"versions": {"vllm": version}, "launch": {"args": list(args)}}
    return spec("llama-3.1-8b", "dgx-h100", **parts)


@pytest.mark.parametrize(
    ("version", "args", "codes"),
    [
        ("0.32", ["--disable-eplb"], ["F01"]),
        ("0.33", ["--disable-chunked-mm-input"], []),
        ("0.28", ["--kv-cache-dtype-skip-layers", "1"], ["V43"]),
        ("0.29", ["--enable-bf16x3-router-gemm"], ["V43"]),
        ("0.30", ["--enable-bf16x3-router-gemm"], ["F01"]),
        ("0.27", [], ["X18"]),
    ],
)
def test_arguments_are_checked_against_the_version(
    version: str, args: list[str], codes: list[str]
) -> None:
    _, sink = planned(tree(version, *args))
    assert [found.code.removeprefix("PARC-") for found in sink.diagnostics] == codes


def test_a_flag_of_another_version_is_reported_with_its_versions() -> None:
    _, sink = planned(tree("0.30", "--enable-bf16x3-router-gemm"))
    (found,) = sink.diagnostics
    assert found.finding.message == "vllm serve 0.30 has no flag --enable-bf16x3-router-gemm"
    assert found.finding.label == "--enable-bf16x3-router-gemm exists from version 0.28 to 0.29"


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_is_stored_in_the_plan(version: str) -> None:
    assert plan_of(tree(version)).problem.version("vllm") == version
