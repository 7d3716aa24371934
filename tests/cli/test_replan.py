"""Tests of ``parc replan``: only the ranks of drained hosts move."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.specs import hosts, parc, replanned

SPEC = """\
parc: 1
name: job
model: llama-3-8b
cluster:
  node: dgx-h100
  fabric: {base: infiniband-ndr, oversubscription: 4}
  racks:
    - {name: r01, nodes: "r01n[01-05]"}
    - {name: r02, nodes: "r02n[01-05]"}
  spare: [r01n05, r02n05]
job: {sequence_length: 8192, global_batch: 64}
layout: {tp: 8, cp: 1, pp: 2, micro_batch: 1}
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path.as_posix()


def test_a_spare_host_of_the_same_leaf_replaces_a_drained_one(spec: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert parc("compile", spec, "-o", str(out)).exit_code == 0
    old = hosts(out)
    found = replanned(spec, "--drain", "r02n02", "-o", str(out))
    new = hosts(out)
    moved = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    assert moved == [("r02n02", "r02n05")]
    (move,) = found["moves"]
    node = old.index("r02n02")
    assert move["ranks"] == [node * 8, node * 8 + 7]
    assert (move["meet"], found["from"]) == ("same leaf", (out / "parc.lock").as_posix())
    assert found["before"] == found["after"]
    assert parc("verify", str(out)).exit_code == 0


def test_edits_that_a_replan_overwrites_are_listed(spec: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert parc("compile", spec, "-o", str(out)).exit_code == 0
    args = out / "megatron" / "args.sh"
    args.write_text(args.read_text("utf-8").replace("--lr 0.0001", "--lr 0.0003"), encoding="utf-8")
    result = parc("replan", spec, "--drain", "r02n02", "-o", str(out))
    assert result.exit_code == 0
    assert "warning[PARC-O05]" in result.stderr
    assert "are overwritten: megatron/args.sh" in result.stderr


def test_earlier_drains_are_kept_in_the_default_directory(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parc("compile", spec).exit_code == 0
    replanned(spec, "--drain", "r01n01")
    found = replanned(spec, "--drain", "r02n02")
    assert found["from"] == "build/job/parc.lock"
    assert not {"r01n01", "r02n02"} & set(hosts(tmp_path / "build" / "job"))


def test_without_an_output_the_spec_is_compiled_as_if_nothing_were_drained(
    spec: str, tmp_path: Path
) -> None:
    parc("compile", spec, "-o", str(tmp_path / "old"))
    found = replanned(spec, "--drain", "r01n01", "-o", str(tmp_path / "new"))
    assert found["from"] == "a compile of the spec"
    pairs = zip(hosts(tmp_path / "old"), hosts(tmp_path / "new"), strict=True)
    assert [(a, b) for a, b in pairs if a != b] == [("r01n01", "r01n05")]


def test_a_host_of_another_leaf_is_used_last_and_its_cost_is_shown(
    spec: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    result = parc("replan", spec, "--drain", "r01n[01-02]", "-o", out)
    assert "16 of 64 ranks (25.0 %) on 2 hosts" in result.output
    assert "r02n05, another leaf" in result.output
    links = next(line for line in result.output.splitlines() if line.startswith("links"))
    before, after = re.findall(r"([0-9.]+ [GM]B) -> ([0-9.]+ [GM]B)", links)[0]
    assert before != after


def test_drained_hosts_are_not_used_again(spec: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    replanned(spec, "--drain", "r01n01", "-o", str(out))
    found = replanned(spec, "--drain", "r01n05", "-o", str(out))
    assert found["drained"] == ["r01n01", "r01n05"]
    assert not {"r01n01", "r01n05"} & set(hosts(out))
    gone = parc("replan", spec, "--drain", "r02n01", "-o", str(out))
    assert gone.exit_code == 1
    assert "PARC-T11" in gone.output


def test_a_host_that_became_unavailable_in_the_spec_is_replaced_too(
    spec: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    parc("compile", spec, "-o", str(out))
    old = hosts(out)
    text = SPEC.replace("  spare:", "  unavailable: [r02n01]\n  spare:")
    Path(spec).write_text(text, encoding="utf-8")
    found = replanned(spec, "--drain", "r01n01", "-o", str(out))
    assert sorted(move["old"] for move in found["moves"]) == ["r01n01", "r02n01"]
    assert sum(a != b for a, b in zip(old, hosts(out), strict=True)) == 2


def test_without_free_hosts_a_smaller_plan_is_suggested(spec: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = parc("replan", spec, "--drain", "r01n[01-03]", "-o", str(out))
    assert result.exit_code == 1
    assert "error[PARC-T11]: too few free hosts: 3 needed" in result.output
    assert "nearest smaller plan has layout.dp 2 and 32 ranks" in result.output
    assert "spare hosts without ranks: 2" in result.output
    assert not out.exists()


def test_the_suggested_smaller_plan_fits_on_the_hosts(tmp_path: Path) -> None:
    # 44 ranks would need 11 hosts of 4 ranks, and 48 ranks need 6 hosts.
    text = (
        "parc: 1\nname: odd\nmodel: qwen3-8b\ncluster:\n  node: hgx-h100\n"
        '  racks: [{name: a, nodes: "n[1-12]"}]\n  spare: [n12]\n  unavailable: []\n'
        "job: {sequence_length: 4096, global_batch: 264}\nlayout: {tp: 2, pp: 1}\n"
    )
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    spec = str(tmp_path / "spec.yaml")
    result = parc("replan", spec, "--drain", "n[3-4]", "--dry-run")
    found = re.search(r"smaller plan has layout.dp (\d+) and", result.output)
    assert found
    (tmp_path / "spec.yaml").write_text(text.replace("[]", "[n3, n4]"), encoding="utf-8")
    assert parc("check", spec, "--set", f"layout.dp={found[1]}").exit_code == 0
    assert int(found[1]) == 24


def test_idle_and_spare_hosts_are_drained_without_a_move(spec: str, tmp_path: Path) -> None:
    found = replanned(spec, "--drain", "r01n05", "-o", str(tmp_path / "out"))
    assert found["moves"] == []


@pytest.mark.parametrize(
    ("drain", "code"), [("r03n01", "PARC-H03"), ("r01n[", "PARC-H01"), ("", "PARC-H01")]
)
def test_an_unknown_host_gets_a_diagnostic(spec: str, drain: str, code: str) -> None:
    result = parc("replan", spec, "--drain", drain, "--dry-run")
    assert result.exit_code == 1
    assert code in result.output


def test_hosts_that_are_only_counted_cannot_be_drained(tmp_path: Path) -> None:
    text = SPEC[: SPEC.index("  racks:")] + "  nodes: 8\n" + SPEC[SPEC.index("job:") :]
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    result = parc("replan", str(tmp_path / "spec.yaml"), "--drain", "node0001", "--dry-run")
    assert result.exit_code == 1
    assert "PARC-H03" in result.output


def test_a_dry_run_writes_nothing(spec: str, tmp_path: Path) -> None:
    result = parc("replan", spec, "--drain", "r01n01", "-o", str(tmp_path / "out"), "--dry-run")
    assert result.exit_code == 0
    assert not (tmp_path / "out").exists()
    assert "wrote" not in result.output


@pytest.mark.parametrize(
    "damage",
    [
        "not JSON",
        "{}",
        '{"decisions": {}}',
        '{"decisions": {"hosts": [], "layout": {}, "order": "", "ranks_per_node": 8}}',
        '{"decisions": {"hosts": 3, "layout": 4, "order": 5, "ranks_per_node": []}}',
    ],
)
def test_a_lock_without_a_plan_is_ignored(spec: str, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "out"
    parc("compile", spec, "-o", str(out))
    (out / "parc.lock").write_text(damage, encoding="utf-8")
    found = replanned(spec, "--drain", "r01n01", "-o", str(out), "--dry-run")
    assert found["from"] == "a compile of the spec"
    result = parc("replan", spec, "--drain", "r01n01", "-o", str(out), "--format", "json")
    found = [one for one in json.loads(result.stdout)["diagnostics"] if one["code"] == "PARC-O04"]
    assert [("parc.lock is ignored" in one["message"]) for one in found] == [True]


def test_a_lock_of_other_hosts_or_another_layout_is_ignored(spec: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    parc("compile", spec, "-o", str(out))
    lock = json.loads((out / "parc.lock").read_text())
    for change in ({"hosts": [f"x{n}" for n in range(8)]}, {"ranks_per_node": 4}):
        damaged = {**lock, "decisions": {**lock["decisions"], **change}}
        (out / "parc.lock").write_text(json.dumps(damaged), encoding="utf-8")
        found = replanned(spec, "--drain", "r01n01", "-o", str(out), "--dry-run")
        assert found["from"] == "a compile of the spec"


def test_a_locked_compile_keeps_the_result_of_a_replan(spec: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    parc("compile", spec, "-o", str(out))
    replanned(spec, "--drain", "r02n02", "-o", str(out))
    for words in ((), ("--check",)):
        result = parc("compile", spec, "-o", str(out), "--locked", *words)
        assert result.exit_code == 0, result.output
    assert "PARC-O04" not in result.output
    assert "r02n02" not in hosts(out)
    assert json.loads((out / "parc.lock").read_text())["decisions"]["unavailable"] == ["r02n02"]


def test_a_replan_writes_what_a_locked_compile_writes(spec: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    replanned(spec, "--drain", "r01n[01-02]", "-o", str(out))
    result = parc("compile", spec, "-o", str(out), "--locked", "--check")
    assert result.exit_code == 0, result.output


def test_a_locked_compile_keeps_a_replan_after_the_spec_lists_its_drains(
    spec: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    replanned(spec, "--drain", "r01n02", "--drain", "r01n01", "-o", str(out))
    text = SPEC.replace("  spare:", "  unavailable: [r01n02, r01n01]\n  spare:")
    Path(spec).write_text(text, encoding="utf-8")
    assert parc("compile", spec, "-o", str(out), "--locked").exit_code == 0


def test_a_compile_without_locked_reports_the_replan_that_it_undoes(
    spec: str, tmp_path: Path
) -> None:
    first, out = tmp_path / "first", tmp_path / "out"
    parc("compile", spec, "-o", str(first))
    replanned(spec, "--drain", "r02n02", "-o", str(out))
    result = parc("compile", spec, "-o", str(out))
    assert result.exit_code == 0
    assert "PARC-O04" in result.stderr
    assert "8 of 64 ranks are on other hosts" in result.stderr
    assert "get ranks: r02n02" in result.stderr
    # r02n05 replaces the host, so that it is no longer spare.
    edits = "cluster.unavailable: ['r02n02'], and set cluster.spare: ['r01n05']"
    assert f"fix:  remove cluster.spare, and set {edits}\n" in result.stderr
    for path in first.rglob("*.*"):
        assert path.read_bytes() == (out / path.relative_to(first)).read_bytes()
    assert "PARC-O04" not in parc("compile", spec, "-o", str(out)).stderr


def test_a_locked_compile_without_a_host_of_the_lock_suggests_replan(
    spec: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    parc("compile", spec, "-o", str(out))
    before = (out / "parc.lock").read_bytes()
    text = SPEC.replace("  spare: [r01n05,", "  unavailable: [r02n01]\n  spare: [")
    Path(spec).write_text(text, encoding="utf-8")
    result = parc("compile", spec, "-o", str(out), "--locked")
    assert result.exit_code == 1
    assert "PARC-O02" in result.stderr
    assert "parc replan --drain 'r02n01' moves only the ranks of these hosts" in result.stderr
    assert (out / "parc.lock").read_bytes() == before


def test_a_plan_that_a_new_search_would_not_choose_is_replanned(spec: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    parc("compile", spec, "-o", str(out), "--set", "layout.vpp=2")
    Path(spec).write_text(SPEC.replace("pp: 2, ", ""), encoding="utf-8")
    chosen = tmp_path / "chosen"
    parc("compile", spec, "-o", str(chosen))
    old, new = (json.loads((one / "plan.json").read_text())["layout"] for one in (out, chosen))
    assert old != new
    found = replanned(spec, "--drain", "r02n02", "-o", str(out))
    assert found["from"].endswith("parc.lock")
    assert [move["new"] for move in found["moves"]] == ["r02n05"]
    assert json.loads((out / "plan.json").read_text())["layout"] == old
    assert parc("verify", str(out)).exit_code == 0


def test_a_plan_that_leaves_hosts_idle_is_kept(tmp_path: Path) -> None:
    # A batch of 8 has no dp for 5 hosts; the search leaves one of them idle.
    text = SPEC.replace("global_batch: 64", "global_batch: 8").replace("pp: 2, ", "pp: 1, ")
    text = text.replace('{name: r02, nodes: "r02n[01-05]"}', '{name: r02, nodes: "r02n[04-05]"}')
    path, out = tmp_path / "spec.yaml", tmp_path / "out"
    path.write_text(text, encoding="utf-8")
    assert "PARC-G04" in parc("compile", str(path), "-o", str(out)).stderr
    old = hosts(out)
    found = replanned(str(path), "--drain", old[0], "-o", str(out))
    assert found["from"] == (out / "parc.lock").as_posix()
    new = hosts(out)
    assert sum(a != b for a, b in zip(old, new, strict=True)) == 1
    assert parc("compile", str(path), "-o", str(out), "--locked").exit_code == 0
    assert hosts(out) == new
