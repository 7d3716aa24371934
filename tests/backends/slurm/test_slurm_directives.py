"""Tests of the head of job.sbatch: directives by version, host lists, segments, quoting."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from parc.backends.shared.rack_runs import contiguous_rack_runs
from parc.backends.slurm.backend import BACKEND
from parc.backends.slurm.directives import (
    directive_table,
    fold_hosts,
    sbatch_directive,
    slurm_directives,
)
from parc.compiler.ir import Launch, Plan, SlurmJob
from tests.backends.plans import (
    HOSTILE,
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
