"""Tests of the head of job.sbatch (directives, host lists, quoting), and checks of launch.slurm."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest

from parc.backends.shared.rack_runs import contiguous_rack_runs
from parc.backends.slurm.backend import BACKEND
from parc.backends.slurm.directives import (
    directive_table,
    fold_hosts,
    sbatch_directive,
    slurm_directives,
)
from parc.backends.slurm.rules import time_limit_seconds
from parc.compiler.ir import Launch, Plan, SlurmJob
from parc.compiler.tools.importers.slurm import EXTRA
from tests.backends.launcher_findings import codes, found
from tests.backends.plans import (
    HOSTILE,
    PLANS,
    named_plan,
    nameless_plan,
    nvl72_plan,
    with_slurm,
)


def values(plan: Plan) -> dict[str, str]:
    """Return the values of the emitted directives by flag."""
    lines = [line.removeprefix("#SBATCH --") for line in slurm_directives(plan)]
    return dict(line.partition("=")[::2] for line in lines)


def test_a_plain_job_requests_whole_hosts_with_one_task_each() -> None:
    assert values(named_plan()) == {
        "job-name": "tiny",
        "nodes": "4",
        "ntasks-per-node": "1",
        "gpus-per-node": "8",
        "mem": "0",
        "nodelist": '"r01n[01-02],r02n[01-02]"',
        "time": "01:00:00",
        "signal": "B:USR1@300",
        "open-mode": "append",
        "output": "%x.%j.out",
        "exclusive": "",
        "requeue": "",
    }


def test_only_resources_in_the_spec_are_requested() -> None:
    asked = {"partition": "gpu", "account": "a", "qos": "high", "reservation": "r"}
    assert values(with_slurm(named_plan(), **asked)).items() >= asked.items()
    assert not set(asked) & set(values(named_plan()))
    assert "no-requeue" in values(with_slurm(named_plan(), requeue=False))


def test_slurm_chooses_hosts_without_names() -> None:
    assert "nodelist" not in values(nameless_plan(2, 2))


def test_the_job_requests_at_most_as_many_leaves_as_the_plan_assumes() -> None:
    assert values(nameless_plan(2, 2))["switches"] == "2@01:00:00"
    assert "switches" not in values(nameless_plan(4))
    assert "switches" not in values(named_plan())
    assert "switches" not in values(nvl72_plan(2, 2, named=False))


@pytest.mark.parametrize(
    ("sizes", "named", "version", "segment"),
    [
        ((16, 16), False, "24.11", "16"),
        ((16, 16), False, "24.05", "16"),
        ((16, 16), False, "23.11", None),
        ((16,), False, "24.11", "16"),
        ((16, 8), False, "24.11", "8"),
        ((5, 3), False, "24.11", None),
        ((16, 16), True, "24.11", None),
        ((16, 16), True, "26.05", "16"),
        ((5, 3), True, "26.05", "1"),
    ],
)
def test_a_segment_enforces_the_hosts_per_nvlink_domain(
    sizes: tuple[int, ...], named: bool, version: str, segment: str | None
) -> None:
    plan = with_slurm(nvl72_plan(*sizes, named=named), version=version)
    assert values(plan).get("segment") == segment


def test_hosts_with_separate_nvlink_domains_need_no_segment() -> None:
    assert "segment" not in values(nameless_plan(2, 2))


def test_runs_number_racks_by_first_use() -> None:
    plan = nameless_plan(2, 2)
    a, b, c, d = plan.placement.hosts
    mixed = replace(plan, placement=replace(plan.placement, hosts=(c, a, d, b)))
    assert contiguous_rack_runs(plan.problem.cluster, plan.placement.hosts) == ((0, 2), (1, 2))
    assert contiguous_rack_runs(mixed.problem.cluster, mixed.placement.hosts) == (
        (0, 1),
        (1, 1),
        (0, 1),
        (1, 1),
    )


@pytest.mark.parametrize(
    ("hosts", "folded"),
    [
        ("n1", "n1"),
        ("n1 n2 n3", "n[1-3]"),
        ("n3 n1 n2 n7", "n[1-3,7]"),
        ("n01 n02 n10", "n[01-02,10]"),
        ("n9 n10 n11", "n[9-11]"),
        ("n09 n10 n100 n099", "n[09-10],n[099-100]"),
        ("n1 n01 n001", "n1,n01,n001"),
        ("login n1", "login,n1"),
        ("r1n1-ib r1n2-ib r2n1-ib", "r1n[1-2]-ib,r2n1-ib"),
        ("a.b.c", "a.b.c"),
        ("7 8", "[7-8]"),
    ],
)
def test_host_lists_fold_the_last_number(hosts: str, folded: str) -> None:
    assert fold_hosts(hosts.split()) == folded


def test_a_folded_list_contains_every_host_once() -> None:
    names = [f"r{rack:02d}n{host}" for rack in (3, 1, 2) for host in range(8, 12)]
    assert sorted(unfold(fold_hosts(names))) == sorted(names)


def unfold(text: str) -> list[str]:
    """Expand a host list as Slurm does, for at most one bracket per name."""
    names = []
    for prefix, ranges, suffix in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?([^,\[\]]*)", text):
        for part in ranges.split(",") if ranges else [""]:
            first, _, last = part.partition("-")
            if not first:
                names.append(prefix + suffix)
                continue
            for number in range(int(first), int(last or first) + 1):
                names.append(f"{prefix}{number:0{len(first)}d}{suffix}")
    return names


def read_directive(line: str) -> str:
    """Return the argument as sbatch parses it (slurm/src/sbatch/opt.c)."""
    found, quote, escaped = "", "", False
    for char in line.removeprefix("#SBATCH "):
        if escaped:
            found, escaped = found + char, False
        elif char == "\\":
            escaped = True
        elif quote:
            found, quote = (found, "") if char == quote else (found + char, quote)
        elif char in "\"'":
            quote = char
        elif char == "#" or char.isspace():
            break
        else:
            found += char
    return found


@pytest.mark.parametrize("value", ["plain", HOSTILE, "a#b", '\\"', "'", "  x ", "a\\", "é", "~/x"])
def test_sbatch_parses_the_quoted_value(value: str) -> None:
    assert read_directive(sbatch_directive("job-name", value)) == f"--job-name={value}"


@pytest.mark.parametrize("value", ["a\nb", "a\r", "\0", "a\x0b", "a\u2028b"])
def test_a_value_with_a_line_break_is_not_a_directive(value: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        sbatch_directive("account", value)


@pytest.mark.parametrize("version", BACKEND.versions)
def test_every_version_has_a_script(version: str) -> None:
    plan = with_slurm(nvl72_plan(4, 4, named=False), version=version)
    assert ("segment" in values(plan)) == (version >= "24.05")


def test_every_launch_field_is_a_directive_or_listed_as_unmapped() -> None:
    table = directive_table()
    mapped = {row["field"] for row in table["directives"]}
    mapped |= set(table["elsewhere"]) | set(table["ignored"])
    every = {f"launch.{field.name}" for field in fields(Launch)}
    every |= {f"launch.slurm.{field.name}" for field in fields(SlurmJob)}
    assert every <= mapped
    assert {field for field in mapped if field.startswith("launch")} <= every


def test_sixteen_thousand_hosts_fold_into_one_short_line() -> None:
    assert fold_hosts(f"n{number:05d}" for number in range(16384)) == "n[00000-16383]"
    assert fold_hosts(f"n{number}" for number in range(16384)) == "n[0-16383]"


SITE = {
    "constraint": "a100&ib",
    "exclude": "n[1-3]",
    "array": "1-4%1",
    "comment": "x",
    "mail_user": "a@b.c",
    "mail_type": "END",
}


def test_the_fields_of_a_site_are_directives_of_the_same_name() -> None:
    found = values(with_slurm(nameless_plan(2, 2), nodelist="n9", **SITE))
    expected = {name.replace("_", "-"): value for name, value in SITE.items()}
    expected |= {"exclude": '"n[1-3]"', "constraint": '"a100&ib"', "nodelist": "n9"}
    assert found.items() >= expected.items()
    assert not {name.replace("_", "-") for name in SITE} & set(values(nameless_plan(2, 2)))


def test_tasks_of_an_array_write_separate_outputs() -> None:
    assert values(with_slurm(named_plan(), array="1-4"))["output"] == "%x.%A_%a.out"


def test_further_directives_are_quoted_one_per_line() -> None:
    plan = with_slurm(named_plan(), extra=("--nice", "--licenses=a b", f"--wckey={HOSTILE}"))
    lines = slurm_directives(plan)
    assert "#SBATCH --nice" in lines
    assert '#SBATCH --licenses="a b"' in lines
    assert sbatch_directive("wckey", HOSTILE) in lines


def test_the_options_that_the_job_sets_cannot_be_further_directives() -> None:
    determined = directive_table()["determined"]
    assert {row["flag"] for row in directive_table()["directives"]} <= set(determined)
    assert {"exclusive", "requeue", "no-requeue", "export"} <= set(determined)


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
        ("container_image", "nvcr.io/nvidia/pytorch:25.06-py3", "L22"),
        ("container_image", "docker://registry.example.com:5000/a/b", "L22"),
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
    "image",
    [
        *(
            "nvcr.io#nvidia/pytorch:25.06-py3",
            "docker://nvcr.io#nvidia/pytorch",
            "nvidia/cuda:12.9",
        ),
        *("docker://nvidia/cuda", "/images/a.b/c.sqsh", "./a.b/c.sqsh", "images.d/c.sqsh", "a.sif"),
        *("docker.io/nvidia/cuda.sif", "oras://registry.example.com/a"),
    ],
)
def test_images_of_docker_hub_of_files_and_of_apptainer_need_no_separator(image: str) -> None:
    runtime = "apptainer" if image.endswith(".sif") or "oras" in image else "pyxis"
    plan = with_slurm(named_plan(), container_image=image, container_runtime=runtime)
    assert codes(plan) == []


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
