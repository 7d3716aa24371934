"""Tests of flags.yaml and known_flags.json against each other, for every version of vLLM."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from parc.backends.shared.extra_arguments import removed_flags, rows_of_known_flags
from parc.backends.vllm.arguments import PACKAGE, planned_flags
from parc.backends.vllm.backend import VERSIONS
from parc.backends.vllm.extra_arguments import explain_unknown_flag
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


def test_the_replacement_of_a_removed_flag_is_a_current_flag() -> None:
    rows = rows_of_known_flags(PACKAGE)
    assert list(removed_flags(PACKAGE)) == sorted(removed_flags(PACKAGE))
    for flag, row in removed_flags(PACKAGE).items():
        assert flag not in rows
        assert "instead" not in row or row["instead"].split()[0] in rows, flag


@pytest.mark.parametrize(
    ("flag", "release", "advice"),
    [
        ("--swap-space", "0.17.1", "no effect"),
        ("--preemption-mode", "0.10.2", "computes preempted requests again"),
        ("--enable-reasoning", "0.9.2", "--reasoning-parser"),
        ("--tokenizer-pool-size", "0.9.2", "ignored"),
        ("--tokenizer_pool_size", "0.9.2", "ignored"),
        ("--disable-mm-preprocessor-cache", "0.12.0", "--mm-processor-cache-gb 0"),
    ],
)
def test_a_removed_flag_is_named_with_its_replacement(flag: str, release: str, advice: str) -> None:
    finding = explain_unknown_flag(flag, VERSIONS[-1])
    assert "no longer has the flag" in finding.message
    assert f"removed after release {release}" in finding.label
    assert advice in finding.help + finding.fix


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
