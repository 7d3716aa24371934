"""Tests of diffs of realistic changes, and of files that PARC did not write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from parc.compiler.ir import Host, Plan
from parc.compiler.report.diff.diff import Diff, diff
from parc.compiler.report.diff.rank_changes import RankRange
from parc.compiler.report.diff.read_side import NotAnOutputDirectory, read_diff_side
from parc.compiler.report.diff.text import diff_headline, diff_markdown, diff_text
from tests.cli.specs import parc
from tests.compiled import plan_of
from tests.placement.placement_plans import cluster, layout, plan, with_hosts
from tests.report.sides import files_of, side_of

PLAN = plan(cluster(4, 4), layout(tp=8, pp=2, dp=4))
PAGE = Path(__file__).parent.parent.parent / "docs" / "diff-examples.md"

OLD = """\
parc: 1
name: llama-3-70b
model: llama-3-70b
cluster:
  node: dgx-h100
  racks:
    - {name: r01, nodes: "r01n[01-16]"}
    - {name: r02, nodes: "r02n[01-16]"}
  spare: []
job: {sequence_length: 8192, global_batch: 1024}
layout: {tp: 8, cp: 1, pp: 8, vpp: 1, recompute: none}
"""

HEAD = f"""\
# Examples of `parc diff`

This page shows the output of `parc diff` for five changes to one spec, as a reviewer would see it.
`parc diff --format markdown` prints the same content as tables for a pull request, and
`--format json` prints it for programs. With `--exit-code` the command exits with 3 if the
diff lists any change, so that a CI job can fail on it. Comments in a spec, the order of its keys,
and numbers in another notation (1.0 and 1.00) do not count as changes. Each side may be a spec
or a folder that `parc compile` wrote. The tests check this page, and `make golden` rewrites it.

`spec` lists every field of the plan's input that differs. For each file that was edited by hand,
the section `files` shows the first lines that differ, such as `slurm/job.sbatch:67`. If the
plans are equal, it shows those lines of every file. Values of variables whose names look
like those of secrets (`HF_TOKEN`, `WANDB_API_KEY`) are not repeated.

The old spec:

```yaml
{OLD}```
"""

CHANGES: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Half the tensor parallelism",
        "Every rank keeps its GPU, but nearly all ranks get other coordinates in the device mesh.",
        (("tp: 8", "tp: 4"),),
    ),
    (
        "A drained node",
        "Host r01n07 is broken. The new spec marks it as unavailable and adds a host in the other\n"
        "rack to replace it.",
        (("r02n[01-16]", "r02n[01-17]"), ("spare: []", "unavailable: [r01n07]")),
    ),
    (
        "A renamed rack",
        "Only the name of a rack changes: no rank moves, and no group newly spans racks.",
        (("name: r02", "name: row-b-02"),),
    ),
    (
        "Another GPU type",
        "The layout stays the same, but the GPUs are H200: much more memory is free, and a step\n"
        "is hardly faster.",
        (("dgx-h100", "dgx-h200"),),
    ),
    (
        "A longer sequence",
        "The sequences are four times as long and are split over four context parallel ranks. The\n"
        "global batch is a quarter as large, so a step has the same number of tokens.",
        (("8192", "32768"), ("1024", "256"), ("cp: 1", "cp: 4")),
    ),
)


SPARE = OLD.replace("r02n[01-16]", "r02n[01-17]").replace("spare: []", "spare: [r02n17]")
REPLANNED = "A drained node"


def change(new: Plan, old: Plan = PLAN) -> Diff:
    return diff(side_of(old, "old"), side_of(new, "new"))


def in_rack_order(of: Plan, *names: str) -> Plan:
    """Return the plan on hosts called ``names``; the rack is the part before the ``n``."""
    return with_hosts(of, tuple(Host(name, name.partition("n")[0], name, ()) for name in names))


NAMES = tuple(f"r0{rack}n0{host}" for rack in (1, 2) for host in (1, 2, 3, 4))
ORDERED = in_rack_order(PLAN, *NAMES)


def test_equal_sides_have_no_difference() -> None:
    found = change(PLAN)
    assert not found.has_changes
    assert diff_text(found) == "old -> new: no changes\n"
    assert found.to_json()["changed"] is False


def test_another_tp_moves_no_rank_and_changes_all_groups() -> None:
    found = change(plan(cluster(4, 4), layout(tp=4, pp=2, dp=8)))
    assert [(one.name, one.old, one.new) for one in found.layout[:2]] == [
        ("tp", 8, 4),
        ("dp", 4, 8),
    ]
    assert found.moves is not None
    assert (found.moves.moved, found.moves.changed_coordinates) == (0, 56)
    tp, dp = found.groups
    assert (tp.axis, tp.old_groups, tp.old_size, tp.new_groups, tp.new_size) == ("tp", 8, 8, 16, 4)
    assert (dp.axis, dp.same_members) == ("dp", 0)


def test_frameworks_that_share_one_axis_can_be_compared() -> None:
    spec = {
        "parc": 1,
        "name": "run",
        "model": "llama-3-8b",
        "cluster": {"node": "dgx-h100", "nodes": 8},
        "job": {"sequence_length": 4096, "global_batch": 64},
        "layout": {"tp": 2, "dp_shard": 16},
        "emit": ["fsdp", "rankmap"],
    }
    new = plan_of(spec)
    found = change(new)
    (tp,) = [one for one in found.groups if one.axis == "tp"]
    assert (tp.old_groups, tp.old_size, tp.new_groups, tp.new_size) == (8, 8, 32, 2)
    assert change(PLAN, new).has_changes


def test_a_drained_host_moves_only_its_own_ranks() -> None:
    new = in_rack_order(PLAN, *NAMES[:2], "r02n05", *NAMES[3:])
    found = change(new, ORDERED)
    assert found.moves is not None
    assert found.moves.moved_ranges == (RankRange(16, 23, "r01n03:0-7", "r02n05:0-7"),)
    assert (found.moves.removed_hosts, found.moves.added_hosts) == (("r01n03",), ("r02n05",))
    dp, pp = found.groups
    assert (pp.axis, pp.old_crossing_racks, pp.new_crossing_racks) == ("pp", 32, 24)
    assert (dp.old_crossing_racks, dp.new_crossing_racks, dp.newly_crossing_racks) == (0, 8, 8)
    assert dp.examples[0] == "ranks 0, 8, 16, 24 in racks r01, r02"
    assert "8 of 64 ranks move to another GPU, 8 groups newly span racks" in diff_headline(found)


def test_hosts_that_shift_by_one_fold_into_one_run() -> None:
    found = change(in_rack_order(PLAN, *NAMES[1:], "r02n05"), ORDERED)
    assert found.moves is not None
    assert found.moves.moved_ranges == (
        RankRange(0, 63, "r[01-02]n[01-04]", "r01n[02-04],r02n[01-05]"),
    )


def test_swapped_hosts_are_moves_without_added_or_removed_hosts() -> None:
    swapped = in_rack_order(PLAN, NAMES[1], NAMES[0], *NAMES[2:])
    found = change(swapped, ORDERED)
    assert found.moves is not None
    assert (found.moves.moved, found.moves.removed_hosts, found.moves.added_hosts) == (16, (), ())


def test_a_renamed_rack_moves_no_rank_and_changes_no_group() -> None:
    renamed = [
        replace(host, rack="row-b") if host.rack == "r02" else host
        for host in ORDERED.placement.hosts
    ]
    found = change(with_hosts(ORDERED, tuple(renamed)), ORDERED)
    assert found.moves is not None
    assert found.moves.moved == 0
    assert found.moves.renamed_racks == (("r02", "row-b"),)
    assert found.groups == ()
    assert "rack r02 is renamed to row-b, with the same hosts" in diff_text(found)


def test_a_host_that_changes_racks_is_listed() -> None:
    hosts = list(ORDERED.placement.hosts)
    hosts[0] = replace(hosts[0], rack="r02")
    found = change(with_hosts(ORDERED, tuple(hosts)), ORDERED)
    assert found.moves is not None
    assert found.moves.moved_hosts == (("r01n01", "r01", "r02"),)


def test_another_gpu_and_a_longer_sequence_are_listed_once() -> None:
    problem = PLAN.problem
    gpu = replace(problem.cluster.gpu, name="h200", memory_bytes=141 * 10**9)
    job = replace(problem.job, sequence_length=8192)
    new = replace(
        PLAN, problem=replace(problem, job=job, cluster=replace(problem.cluster, gpu=gpu))
    )
    assert [(one.name, one.old, one.new) for one in change(new).inputs] == [
        ("cluster.gpu", "h100", "h200"),
        ("job.sequence_length", 4096, 8192),
    ]


def test_additional_ranks_are_counted_but_not_moved() -> None:
    found = change(plan(cluster(4, 4), layout(tp=8, dp=4)), plan(cluster(4), layout(tp=8, dp=2)))
    assert found.moves is not None
    assert (found.moves.old_world, found.moves.new_world, found.moves.moved) == (16, 32, 0)


def test_expert_axes_show_only_for_a_model_with_experts() -> None:
    old = plan(cluster(4), layout(tp=1, dp=32, ep=8), experts=8)
    new = plan(cluster(4), layout(tp=1, dp=32, ep=4), experts=8)
    assert [axis.axis for axis in change(new, old).groups] == ["ep", "edp"]


def test_layers_with_experts_are_compared_by_count() -> None:
    wide = plan(cluster(4), layout(tp=1, dp=32, ep=8), experts=8)
    assert wide.problem.model.experts is not None
    fewer = replace(
        wide.problem.model.experts, pattern=(False, *wide.problem.model.experts.pattern[1:])
    )
    sparse = replace(wide.problem, model=replace(wide.problem.model, experts=fewer))
    (found,) = change(replace(wide, problem=sparse), wide).inputs
    layers = wide.problem.model.layers
    assert (found.name, found.old, found.new) == ("model.experts.layers", layers, layers - 1)


def test_flags_environment_and_directives_are_compared() -> None:
    old = side_of(
        PLAN,
        args="MEGATRON_ARGS=(\n  # model (all)\n  --num-layers 32\n  --bf16\n  --x 'a b' -1\n)\n",
        launch="export NCCL_IB_TIMEOUT=22\nexport A=1\n",
        sbatch="#SBATCH --nodes=8\n#SBATCH --requeue\n",
    )
    new = side_of(
        PLAN,
        args="MEGATRON_ARGS=(\n  --num-layers 36\n  --x 'a b' -1\n  --fp16\n)\n",
        launch="export NCCL_IB_TIMEOUT=23\n",
        sbatch="#SBATCH --nodes=9\n#SBATCH --requeue\n",
    )
    found = diff(old, new)
    assert [(one.kind, one.name) for one in found.arguments] == [
        ("removed", "--bf16"),
        ("added", "--fp16"),
        ("changed", "--num-layers"),
    ]
    assert [(one.kind, one.name) for one in found.environment] == [
        ("removed", "A"),
        ("changed", "NCCL_IB_TIMEOUT"),
    ]
    assert [(one.name, one.old, one.new) for one in found.directives] == [("--nodes", "8", "9")]


def test_markdown_escapes_markup_in_names() -> None:
    renamed = [replace(host, name="<b>|x`") for host in ORDERED.placement.hosts[:1]]
    found = change(with_hosts(ORDERED, (*renamed, *ORDERED.placement.hosts[1:])), ORDERED)
    text = diff_markdown(found)
    assert "#### moved ranks" in text
    assert "| 0-7 | r01n01:0-7 | \\<b>\\|x\\`:0-7 |" in text


def test_json_contains_its_format_and_all_parts() -> None:
    document = json.loads(json.dumps(change(plan(cluster(4, 4), layout(tp=4, dp=16))).to_json()))
    assert document["format"] == 1
    assert document["changed"] is True
    assert {"layout", "moves", "groups", "memory", "checkpoint"} <= document.keys()


def test_without_a_rank_map_the_other_parts_are_compared() -> None:
    files = files_of(PLAN)
    del files["rankmap.csv"]
    found = diff(read_diff_side("old", files), side_of(plan(cluster(4, 4), layout(tp=4, dp=16))))
    assert found.moves is None
    assert found.layout
    assert "Add rankmap to emit in its spec." in diff_text(found)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("plan.json", "{"),
        ("plan.json", "[]"),
        ("plan.json", "{}"),
        ("plan.json", '{"problem": 1, "layout": {}, "estimate": {}}'),
        ("rankmap.csv", ""),
        ("rankmap.csv", "rank,host\n0\n"),
        ("rankmap.csv", "rank,host\n0,a\n"),
    ],
)
def test_files_that_parc_did_not_write_are_refused(path: str, text: str) -> None:
    files = files_of(PLAN) | {path: text}
    with pytest.raises(NotAnOutputDirectory, match=f"old/{path}"):
        read_diff_side("old", files)


@pytest.mark.parametrize("part", ["problem", "layout", "estimate"])
@pytest.mark.parametrize("wrong", [{}, [], 3, None, {"memory": []}])
def test_a_plan_that_breaks_its_schema_is_refused(part: str, wrong: object) -> None:
    plan_json = json.loads(files_of(PLAN)["plan.json"]) | {part: wrong}
    files = files_of(PLAN) | {"plan.json": json.dumps(plan_json)}
    with pytest.raises(NotAnOutputDirectory, match=r"^old/plan\.json"):
        diff(read_diff_side("old", files), side_of(PLAN, "new"))


@pytest.mark.parametrize("number", [0, -1, 10**400, float("nan"), float("inf")])
def test_absurd_numbers_are_printed_without_a_crash(number: float) -> None:
    document = json.loads(files_of(PLAN)["plan.json"])
    document["layout"]["tp"] = document["problem"]["model"]["vocab"] = number
    document["estimate"]["memory"][0] |= {"weights_bytes": number, "total_bytes": number}
    strange = read_diff_side("old", files_of(PLAN) | {"plan.json": json.dumps(document)})
    found = diff(strange, side_of(PLAN, "new"))
    assert "weights" in diff_text(found)
    assert found.to_json()["changed"] is True


def test_a_diff_of_16384_ranks_stays_short() -> None:
    racks = cluster(*[16] * 128)
    old, new = (files_of(plan(racks, layout(tp=tp, pp=16, dp=1024 // tp))) for tp in (8, 4))
    text = diff_text(diff(read_diff_side("old", old), read_diff_side("new", new)))
    assert len(text.splitlines()) < 60


def test_a_calibration_is_shown_by_parameter() -> None:
    measured = replace(PLAN.problem, calibration=(("gemm", 1.25), ("tp", 0.5)))
    text = diff_text(change(replace(PLAN, problem=measured)))
    assert "calibration.gemm" in text
    assert "1.25" in text


def replanned(folder: Path) -> str:
    """Return the output of ``parc replan`` for the drained node, with its explanation."""
    (folder / "spare.yaml").write_text(SPARE, encoding="utf-8")
    words = ("replan", "spare.yaml", "--drain", "r01n07", "--dry-run")
    result = parc(*words)
    assert result.exit_code == 0, result.stderr
    return (
        "`parc compile` does not keep the earlier placement, so all ranks after those of the\n"
        "broken host move to the next host. If the spec has `spare: [r02n17]`, `parc replan`\n"
        "keeps the plan and moves only the ranks of the broken host:\n\n"
        f"```console\n$ parc {' '.join(words)}\n{result.stdout}```\n\n"
        "`parc compile --locked` keeps the hosts that `parc replan` chose. Without `--locked`,\n"
        "`parc compile` places all ranks again and reports how many of them move (PARC-O04,\n"
        "[placement](placement.md)).\n"
    )


def transcript(folder: Path) -> str:
    """Return the page, with the output of the commands run in ``folder``."""
    (folder / "old.yaml").write_text(OLD, encoding="utf-8")
    parts = [HEAD]
    for title, why, changes in CHANGES:
        text = OLD
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / "new.yaml").write_text(text, encoding="utf-8")
        result = parc("diff", "old.yaml", "new.yaml")
        assert result.exit_code == 0, result.stderr
        listed = "".join(f"- `{old}` becomes `{new}`\n" for old, new in changes)
        shown = f"```console\n$ parc diff old.yaml new.yaml\n{result.stdout}```\n"
        parts.append(f"## {title}\n\n{why}\n\n{listed}\n{shown}")
        if title == REPLANNED:
            parts.append(replanned(folder))
    return "\n".join(parts)


def test_the_page_shows_the_output_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    page = transcript(tmp_path)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page, encoding="utf-8", newline="\n")
    assert page == PAGE.read_text("utf-8")
