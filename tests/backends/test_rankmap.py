"""Tests of the rank map: CSV, JSON and Markdown contain the placement."""

from __future__ import annotations

import csv
import io
import json
import time
from dataclasses import replace
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from parc.backends.rankmap.backend import BACKEND
from parc.backends.rankmap.page_tables import stage_rows
from parc.backends.rankmap.table_cells import clip_list, fold_numbers, markdown_cell_text
from parc.backends.rankmap.training_page import rank_formula
from parc.backends.rankmap.verify_page_tables import plain_cell
from parc.compiler.ir import Mesh, Plan
from tests.placement.placement_plans import NVL72, cluster, estimate, layout, plan

DENSE = plan(cluster(16, 16), layout(tp=8, pp=4, dp=8))
ROUTED = plan(
    cluster(18, 18, node=NVL72), layout(pp=2, dp=64, ep=64, etp=1), estimate(ep=1e9), experts=64
)
SWAPPED = plan(cluster(4, 4), layout(tp=4, pp=2, dp=8, order="tp-cp-ep-pp-dp"))
TINY = plan(cluster(1), layout(tp=2))


def emitted(of: Plan) -> dict[str, str]:
    return {artifact.path: artifact.text for artifact in BACKEND.emit(of)}


def reach(pairs: list[list[int]]) -> list[int]:
    ranks = [0]
    for size, stride in pairs:
        ranks = [step * stride + rank for step in range(size) for rank in ranks]
    return ranks


@pytest.mark.parametrize("of", [DENSE, ROUTED, SWAPPED, TINY])
def test_the_csv_file_has_one_row_per_rank_that_matches_the_placement(of: Plan) -> None:
    text = emitted(of)["rankmap.csv"]
    header = "rank,node_rank,host,local_rank,gpu,rack,nvlink_domain,pp,dp,cp,tp,ep,etp,edp"
    assert text.startswith(header + "\n")
    placement, each = of.placement, of.placement.ranks_per_node
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == of.layout.world
    for rank, row in enumerate(rows):
        host = placement.host_of(rank)
        assert (row["rank"], row["node_rank"]) == (str(rank), str(rank // each))
        assert (row["host"], row["rack"]) == (host.name, host.rack)
        assert row["nvlink_domain"] == host.nvlink_domain
        assert row["local_rank"] == row["gpu"] == str(rank % each)
        for name in ("pp", "dp", "cp", "tp"):
            assert row[name] == str(placement.dense.coordinate_of_rank(rank, name))
        for column, name in (("ep", "ep"), ("etp", "tp"), ("edp", "dp")):
            assert row[column] == str(placement.expert.coordinate_of_rank(rank, name))


@pytest.mark.parametrize("of", [DENSE, ROUTED, SWAPPED, TINY])
def test_the_json_file_matches_its_schema_and_its_groups_expand_to_the_meshes(of: Plan) -> None:
    tree = json.loads(emitted(of)["rankmap.json"])
    schema = json.loads((files("parc.schemas") / "rankmap.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(tree, schema, cls=jsonschema.Draft202012Validator)
    assert set(tree["groups"]) == {family.name for family in of.placement.families}
    for family in of.placement.families:
        mesh, axes = of.placement.mesh(family.mesh), family.axes
        entry = tree["groups"][family.name]
        members, bases = reach(entry["within"]), reach(entry["across"])
        assert [[base + member for member in members] for base in bases] == mesh.groups_along(*axes)
        assert (entry["size"], entry["count"]) == (len(members), len(bases))


def test_the_json_file_and_the_csv_file_are_equal() -> None:
    files_ = emitted(ROUTED)
    tree: dict[str, Any] = json.loads(files_["rankmap.json"])
    for row in csv.DictReader(io.StringIO(files_["rankmap.csv"])):
        rank = int(row["rank"])
        assert tree["hosts"][rank // tree["ranks_per_node"]]["name"] == row["host"]
        for column, values in tree["ranks"].items():
            assert str(values[rank]) == row[column]
    assert tree["order"] == "tp-cp-ep-dp-pp"
    assert tree["sizes"] == {"tp": 1, "cp": 1, "pp": 2, "dp": 64, "ep": 64, "etp": 1, "edp": 1}


@pytest.mark.parametrize(
    "of",
    [
        DENSE,
        ROUTED,
        SWAPPED,
        TINY,
        plan(cluster(*[16] * 128), layout(128, tp=8, pp=16, dp=128)),
        plan(cluster(*[7] * 60), layout(105, tp=8, pp=35, dp=12)),
        plan(cluster(*[16] * 128), layout(128, "tp-cp-ep-pp-dp", tp=8, pp=128, dp=16)),
        plan(cluster(*[2] * 40), layout(64, tp=2, pp=64, cp=1, dp=5, vpp=1)),
    ],
    ids=lambda of: f"{of.layout.world} ranks, pp {of.layout.pp}",
)
def test_the_page_stays_within_two_screens(of: Plan) -> None:
    lines = emitted(of)["rankmap.md"].split("\n")
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 120


def test_the_page_shows_stages_racks_groups_and_orders() -> None:
    text = emitted(DENSE)["rankmap.md"]
    assert "256 ranks on 32 hosts (8 per host), for megatron 0.19." in text
    assert "rank = tp + 8 (dp + 8 pp)" in text
    assert "| 1 | 64-127 | 8-15 | r01n[09-16] | 8-15 |" in text
    assert "| r02 | 16 | r02n[01-16] | 16-31 | 2-3 |" in text
    assert "| tp | 32 x 8 | 32 | - | - | - | 1 |" in text
    assert "| pp | 64 x 4 | - | - | - | 64 | 2 |" in text
    assert "| stages across racks | 32 GB | 220 ms | **chosen** |" in text
    assert "Chosen order: optimal (proved)." in text
    assert "- exposed on links between hosts: 220 ms per step (lower bound 220 ms)" in text
    assert "- busiest uplink: 32 GB per step" in text
    assert "- master: r01n01" in text


def test_equal_stages_are_folded_if_there_are_many() -> None:
    rows = stage_rows(plan(cluster(*[7] * 60), layout(105, tp=8, pp=35, dp=12)))
    assert [row[0] for row in rows] == ["0", "1-33", "34"]
    assert rows[1][4] == "3 each"


def test_a_cluster_without_names_has_no_master() -> None:
    problem = replace(DENSE.problem, cluster=replace(DENSE.problem.cluster, named=False))
    text = emitted(replace(DENSE, problem=problem))["rankmap.md"]
    assert "placeholders" in text
    assert "master" not in text


def test_names_cannot_break_the_table_or_the_page() -> None:
    host = replace(DENSE.placement.hosts[0], rack='a,"b"\n| `x` |')
    hosts = (host, *DENSE.placement.hosts[1:])
    of = replace(DENSE, placement=replace(DENSE.placement, hosts=hosts))
    files_ = emitted(of)
    row = next(csv.DictReader(io.StringIO(files_["rankmap.csv"])))
    assert row["rack"] == 'a,"b"\n| `x` |'
    assert "| a,\"b\" / 'x' / | 1 |" in files_["rankmap.md"]


def test_131072_ranks_are_written_in_seconds() -> None:
    """Takes about 0.3 s."""
    of = plan(
        cluster(*[32] * 512), layout(128, tp=8, cp=2, pp=16, dp=512, ep=64, etp=1), experts=64
    )
    start = time.process_time()
    assert emitted(of)["rankmap.csv"].count("\n") == 131_073
    assert time.process_time() - start < 5


def test_two_emissions_are_equal() -> None:
    assert BACKEND.emit(ROUTED) == BACKEND.emit(ROUTED)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((("tp", 8), ("cp", 1), ("dp", 4), ("pp", 2)), "tp + 8 (dp + 4 pp)"),
        ((("tp", 1), ("dp", 4)), "dp"),
        ((("tp", 1), ("dp", 1)), "tp"),
        ((("tp", 2), ("pp", 2)), "tp + 2 pp"),
    ],
)
def test_the_rank_formula_omits_axes_of_size_1(
    sizes: tuple[tuple[str, int], ...], text: str
) -> None:
    assert rank_formula(Mesh.from_sizes(sizes), {}) == text


def test_lists_are_clipped_after_a_whole_item() -> None:
    assert clip_list("a1,b2,c3", 8) == "a1,b2,c3"
    assert clip_list("a1,b2,c3,d4,e5", 12) == "a1,b2, ..."
    assert len(clip_list("host[1-2,4-9,11-99]", 16)) <= 16
    assert fold_numbers([5, 1, 2, 3]) == "1-3, 5"


@pytest.mark.parametrize("width", [8, 80])
@pytest.mark.parametrize("text", ["a/b'c\\d|e`f", " a\t b\n", "n" * 8, "n" * 9, "", "é|\u202e"])
def test_the_verifier_of_the_page_expects_the_cell_that_is_written(text: str, width: int) -> None:
    cell = markdown_cell_text(text, width)
    assert plain_cell(text, width) == cell
    assert not set("\\|`\n") & set(cell)
