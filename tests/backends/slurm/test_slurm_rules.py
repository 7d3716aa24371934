"""Tests of the checks of launch.slurm: code and position of each rejection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.backends.slurm.directives import directive_table
from parc.backends.slurm.rules import time_limit_seconds
from parc.compiler.tools.importers.slurm import EXTRA
from tests.backends.launcher_findings import codes, found
from tests.backends.plans import (
    PLANS,
    named_plan,
    nameless_plan,
    nvl72_plan,
    with_slurm,
)


@pytest.mark.parametrize("title", sorted(set(PLANS) - {"old Slurm", "NVL72, named"}))
def test_a_valid_plan_gets_no_diagnostic(title: str) -> None:
    assert found(PLANS[title]) == ()


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("partition", "a\nb", "L16"),
        ("account", "\0", "L16"),
        ("qos", "", "L15"),
        ("reservation", " ", "L15"),
        ("time_limit", "2 days", "L17"),
        ("time_limit", "1:2:3:4", "L17"),
        ("time_limit", "01:00:00\n#SBATCH --nodes=9", "L16"),
        ("signal_seconds", 0, "L19"),
        ("signal_seconds", 70000, "L19"),
        ("signal_seconds", 3600, "L19"),
        ("constraint", "a\nb", "L16"),
        ("comment", "a\u2028b", "L16"),
        ("mail_user", "", "L15"),
        ("mail_type", "SOON", "L28"),
        ("array", "1-", "L28"),
        ("array", "1-4%0", "L28"),
        ("exclude", "n[1-", "L28"),
        ("exclude", "n1,r01n02", "L28"),
        ("nodelist", "n1", "L28"),
        ("extra", ("-C x",), "L28"),
        ("extra", ("--licenses a",), "L28"),
        ("extra", ("--nodes=9",), "L28"),
        ("extra", ("--part=x",), "L28"),
        ("extra", ("--gres=lustre:1,gpu:4",), "L28"),
        ("extra", ("--export=NONE",), "L28"),
        ("extra", ("--wckey=a\n#SBATCH --nodes=9",), "L28"),
        ("log_dir", "/tmp/x", "L21"),
        ("log_dir", "a%j", "L21"),
        ("log_dir", "~/x", "L21"),
        ("log_dir", "", "L21"),
        ("log_dir", "a\\b", "L21"),
        ("container_mounts", ("/a:/b",), "L22"),
        ("container_runtime", "apptainer", "L22"),
        ("container_image", "", "L22"),
        ("container_image", "a\nb", "L22"),
    ],
)
def test_values_that_slurm_cannot_parse_are_rejected(field: str, value: Any, code: str) -> None:
    diagnostics = found(with_slurm(named_plan(), **{field: value}))
    assert code in {diagnostic.code.removeprefix("PARC-") for diagnostic in diagnostics}
    path = field.removesuffix("_seconds").replace("mail_", "mail.")
    assert any(diagnostic.path.startswith(f"launch.slurm.{path}") for diagnostic in diagnostics)


@pytest.mark.parametrize("mount", ["/a", "/a:/b,/c:/d", "", ":", "/a:/b:ro:x", "/a:/b\n"])
def test_a_mount_that_pyxis_cannot_parse_is_rejected(mount: str) -> None:
    plan = with_slurm(named_plan(), container_image="i", container_mounts=("/x:/y", mount))
    assert codes(plan) == ([] if mount == "/a" else ["L22"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:05", 1805),
        ("01:02:03", 3723),
        ("2-3", 2 * 86400 + 3 * 3600),
        ("1-00:30", 86400 + 1800),
        ("1-00:00:09", 86409),
        ("", None),
        ("1h", None),
        ("-1", None),
        ("1-", None),
    ],
)
def test_a_time_limit_is_read_as_slurm_reads_it(text: str, seconds: int | None) -> None:
    assert time_limit_seconds(text) == seconds


@pytest.mark.parametrize("text", ["unlimited", "INFINITE", "30", "1-00:00:00", None])
def test_a_time_limit_in_any_form_of_slurm_is_valid(text: str | None) -> None:
    assert codes(with_slurm(named_plan(), time_limit=text)) == []


@pytest.mark.parametrize(
    ("limit", "fix"),
    [
        ("48h", "2-00:00:00"),
        ("2 days", "2-00:00:00"),
        ("1d12h", "1-12:00:00"),
        ("1 day, 2 hours", "1-02:00:00"),
        ("90min", "0-01:30:00"),
        ("1.5 H", "0-01:30:00"),
        ("1.0001s", "0-00:00:02"),
        ("2w", "14-00:00:00"),
        ("tomorrow", ""),
        ("1-2-3", ""),
        ("0h", ""),
    ],
)
def test_the_suggested_time_limit_is_as_long_as_the_one_in_the_spec(limit: str, fix: str) -> None:
    (l17,) = found(with_slurm(named_plan(), time_limit=limit))
    assert l17.code == "PARC-L17"
    assert l17.finding.fix == (f'launch.slurm.time_limit: "{fix}"' if fix else "")
    assert not fix or time_limit_seconds(fix)


@pytest.mark.parametrize("name", ["a/b", "", "a\nb"])
def test_a_job_name_must_be_a_valid_file_name(name: str) -> None:
    plan = named_plan()
    named = replace(plan, problem=replace(plan.problem, name=name))
    assert set(codes(named)) <= {"L15", "L16"}
    assert codes(named)


def test_hosts_per_nvlink_domain_that_slurm_may_change_are_reported() -> None:
    assert codes(PLANS["old Slurm"]) == ["L23"]
    spread = nvl72_plan(4, 4)
    assert codes(spread) == ["L23"]
    assert codes(with_slurm(spread, version="26.05")) == []
    assert codes(nvl72_plan(18, 4)) == []


def test_lists_of_hosts_that_slurm_chooses_must_allow_the_plan() -> None:
    plan = nameless_plan(2, 2)
    assert codes(with_slurm(plan, nodelist="n[1-4]", exclude="n5")) == []
    assert codes(with_slurm(plan, nodelist="n[1-5]")) == ["L28"]
    assert codes(with_slurm(plan, nodelist="n[1-4]", exclude="n[4-5]")) == ["L28"]


def test_directives_that_the_plan_leaves_open_are_accepted() -> None:
    extra = ("--nice=100", "--licenses=a:1", "--gres=lustre:1", "--begin=now+1hour", "--wckey=x y")
    slurm = {"extra": extra, "mail_user": "a@b", "mail_type": "END,time_limit_80"}
    for array in ("0-15", "1,3,5", "0-15:4%2"):
        assert codes(with_slurm(named_plan(), array=array, exclude="n[1-3]", **slurm)) == []


def test_each_directive_that_an_import_carries_over_is_accepted() -> None:
    extra = tuple(f"{name}=lustre:1" for name in sorted(EXTRA))
    assert codes(with_slurm(named_plan(), extra=extra)) == []
    determined = {f"--{name}" for name in directive_table()["determined"]} - {"--gres"}
    assert not determined & EXTRA
