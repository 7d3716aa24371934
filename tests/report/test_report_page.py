"""Tests of report.html: well-formed, complete, and equal to the plan."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from functools import reduce
from hashlib import sha256
from typing import Any

import pytest

from parc import compile as compile_spec
from parc.compiler.ir import Candidate, Plan, ServingPlan
from parc.compiler.report.formatting import format_gib, format_percent, format_seconds
from parc.compiler.report.json.plan_json import plan_artifact
from parc.compiler.report.page import cluster_map
from parc.compiler.report.page.report_page import report_artifact
from parc.compiler.topology.hostlist import expand_host_list
from tests.cli.specs import parc
from tests.compiled import example
from tests.report.pages import ROOT, Page, Picture, boxes, page, planned

SMALL = (
    "llama-3-70b-torchtitan",
    "gpt2-small",
    "mixtral-8x7b",
    "llama-65b-pipeline",
    "llama-2-70b-serve",
    "racks",
)
EVERY = (*SMALL, "wide", "huge")
HOSTILE = "</title><script>alert('1')</script><img src=x onerror=\"y\">&amp;"


@pytest.mark.parametrize("name", EVERY)
def test_a_page_is_well_formed_and_self_contained(name: str) -> None:
    text = page(name)
    read = Page(text)
    links = [value for _, key, value in read.attributes if key in ("href", "src", "xlink:href")]
    assert links
    assert all(value.startswith("#") for value in links)
    targets = {value for _, key, value in read.attributes if key == "id"}
    assert {value[1:] for value in links} <= targets
    assert not re.search(r"url\(|@import|\bon\w+=", text)
    # The name of the SVG namespace is the only address, and is not loaded.
    assert set(re.findall(r"https?:[^\"]*", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(?:fetch|XMLHttpRequest|WebSocket|sendBeacon|import|eval)\b\(", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write", text)


def test_the_policy_admits_only_the_style_sheet_and_the_script_of_the_page() -> None:
    read = Page(page("racks"))
    style, data, script = (text for _, text in read.inline)
    assert [tag for tag, _ in read.inline] == ["style", "script", "script"]
    assert ("script", "type", "application/json") in read.attributes
    digests = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    (policy,) = (value for _, key, value in read.attributes if value.startswith("default-src"))
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; "
        f"script-src 'sha256-{digests[1]}'; base-uri 'none'; form-action 'none'"
    )
    assert json.loads(data)["map"]["ranks_per_node"] == 4
    assert not [key for _, key, _ in read.attributes if key == "style"]


@pytest.mark.parametrize("name", ["racks", "llama-2-70b-serve"])
def test_the_script_finds_all_elements_that_it_uses(name: str) -> None:
    read = Page(page(name))
    found = {value for _, key, value in read.attributes if key == "id"}
    used = set(re.findall(r'byId\("([\w-]+)"\)', read.inline[2][1]))
    # A page without a pipeline has no timeline to enlarge.
    assert used - found <= {"zoom", "zoom-in", "zoom-out", "action"}
    assert used <= found or name == "llama-2-70b-serve"
    assert len(used) > 10


@pytest.mark.parametrize("name", EVERY)
def test_all_shapes_are_inside_their_figure(name: str) -> None:
    for picture in Page(page(name)).pictures:
        for path in picture.paths:
            for left, top, right, bottom in boxes(path):
                assert -0.1 <= left <= right <= picture.width + 0.1
                assert -0.1 <= top <= bottom <= picture.height + 0.1
        for area in picture.areas:
            assert 0 <= float(area["x"]) + float(area["width"]) <= picture.width + 0.1
            assert 0 <= float(area["y"]) + float(area["height"]) <= picture.height + 0.1
        for word in picture.words:
            assert 0 <= float(word["x"]) <= picture.width
            assert 8 <= float(word["y"]) <= picture.height


@pytest.mark.parametrize(("name", "limit_bytes"), [("wide", 151_000), ("huge", 500_000)])
def test_a_page_of_many_ranks_stays_small(name: str, limit_bytes: int) -> None:
    assert len(page(name).encode()) < limit_bytes


@pytest.mark.parametrize("name", ["racks", "llama-3-70b-torchtitan", "mixtral-8x7b", "wide"])
def test_the_page_shows_the_numbers_of_the_plan(name: str) -> None:
    plan = planned(name)
    assert isinstance(plan, Plan)
    estimate = plan.estimate
    words = " ".join(Page(page(name)).text)
    assert format_seconds(estimate.time.total_seconds) in words
    assert f"{format_percent(estimate.mfu)}" in words
    assert f"{plan.layout.world:,} x {plan.problem.cluster.gpu.name}" in words
    for stage in estimate.memory:
        assert f"stage {stage.stage}: {format_gib(stage.total_bytes)}; weights" in words
    cells = [" ".join(row) for row in Page(page(name)).cells]
    chosen = plan.search.ranked[0]
    assert any(row.startswith("1 ") and format_seconds(chosen.step_seconds) in row for row in cells)
    assert any(
        row.startswith(f"compute {format_seconds(estimate.time.compute_seconds)}") for row in cells
    )


def test_the_bars_of_memory_are_proportional_to_the_memory() -> None:
    plan = planned("llama-3-70b-torchtitan")
    assert isinstance(plan, Plan)
    picture = _picture("llama-3-70b-torchtitan", "memory per GPU")
    bars = [float(one["height"]) for one in picture.areas]
    totals = [stage.total_bytes for stage in plan.estimate.memory]
    assert len(bars) == len(totals) == 4
    for bar, total in zip(bars, totals, strict=True):
        assert bar / bars[0] == pytest.approx(total / totals[0], abs=0.002)
    limit = next(path for path in picture.paths if path.get("class") == "mark")
    base = float(picture.areas[0]["y"]) + bars[0]
    top = next(boxes(limit))[1]
    assert (base - top) / bars[0] == pytest.approx(plan.estimate.limit_bytes / totals[0], abs=0.002)


@pytest.mark.parametrize("name", SMALL)
def test_every_gpu_is_drawn_once_in_the_color_of_its_coordinate(name: str) -> None:
    plan = planned(name)
    picture = Page(page(name)).pictures[0]
    drawn = sum(len(list(boxes(path))) for path in picture.paths if "stroke" in path)
    assert drawn == plan.placement.dense.world
    sizes = {axis.name: axis.size for axis in plan.placement.dense.axes}
    colors = {path["stroke"] for path in picture.paths if "stroke" in path}
    assert len(colors) == (sizes["pp"] if sizes["pp"] > 1 else max(1, len(colors)))


def test_every_host_of_a_large_cluster_is_drawn() -> None:
    for name, hosts in (("wide", 2_048), ("huge", 16_384)):
        picture = Page(page(name)).pictures[0]
        assert sum(len(list(boxes(path))) for path in picture.paths) == hosts


def test_a_line_of_the_map_contains_whole_switches_or_an_equal_part_of_one() -> None:
    assert len(cluster_map.cluster_map(planned("wide")).grid.columns) == 16  # 17 would fit


def test_hosts_without_ranks_are_drawn_by_state() -> None:
    picture = Page(page("racks")).pictures[0]
    count = {
        path["class"]: len(list(boxes(path))) for path in picture.paths if "stroke" not in path
    }
    assert count == {"idle": 4 * (54 - 32 - 2 - 1), "spare": 4 * 2, "unavailable": 4 * 1}
    words = " ".join(Page(page("racks")).text)
    assert "2 hosts spare" in words
    assert "r02n11: unavailable" in words
    assert "NVLink domain" in words


def test_names_with_markup_stay_text() -> None:
    plan = planned("racks")
    assert isinstance(plan, Plan)
    hosts = [replace(host, name=HOSTILE, rack=HOSTILE) for host in plan.placement.hosts]
    cluster = plan.problem.cluster
    racks = tuple(
        replace(
            rack,
            name=HOSTILE + str(index),
            hosts=tuple(replace(host, name=HOSTILE, nvlink_domain=HOSTILE) for host in rack.hosts),
        )
        for index, rack in enumerate(cluster.racks)
    )
    changed = replace(
        plan,
        problem=replace(
            plan.problem,
            name=HOSTILE,
            model=replace(plan.problem.model, name=HOSTILE),
            cluster=replace(
                cluster,
                racks=racks,
                unavailable=(HOSTILE,),
                gpu=replace(cluster.gpu, name=HOSTILE),
            ),
        ),
        placement=replace(plan.placement, hosts=tuple(hosts)),
    )
    read = Page(report_artifact(changed).text)
    tags = {tag for tag, _, _ in read.attributes}
    assert "img" not in tags
    assert [tag for tag, _ in read.inline] == ["style", "script", "script"]
    assert HOSTILE in "".join(read.text)
    assert HOSTILE in read.inline[1][1].encode().decode("unicode-escape")


def test_a_page_without_a_pipeline_explains_it() -> None:
    words = " ".join(Page(page("gpt2-small")).text)
    assert "There is one pipeline stage" in words


def test_the_page_of_a_long_step_counts_omitted_micro_batches() -> None:
    words = " ".join(Page(page("llama-65b-pipeline")).text)
    (left_out,) = re.findall(r"(\d+) micro-batches are left out at the dotted lines", words)
    assert f"{left_out} more micro-batches like these" in words
    plan = planned("llama-65b-pipeline")
    assert isinstance(plan, Plan)
    assert 0 < int(left_out) < plan.layout.micro_batches(plan.problem.job.global_batch)


def test_the_page_of_a_service_shows_its_cache() -> None:
    plan = planned("llama-2-70b-serve")
    assert isinstance(plan, ServingPlan)
    words = " ".join(Page(page("llama-2-70b-serve")).text)
    assert "Pipeline of one step" not in words
    assert "1 host used" in words
    assert "Colors show the position in the tp group." in words
    assert f"cache {format_gib(plan.stages[0].cache_bytes)}" in words
    assert format_seconds(plan.estimate.ttft_seconds) in words


@pytest.mark.parametrize("name", ["racks", "mixtral-8x7b", "wide", "llama-2-70b-serve"])
def test_the_figures_to_compare_are_those_of_plan_json(name: str) -> None:
    document = json.loads(plan_artifact(planned(name)).text)
    if isinstance(planned(name), Plan):
        estimate = document["estimate"]
        stages = {stage["stage"]: stage for stage in estimate["memory"]}
        estimate["peak"] = stages[estimate["peak_stage"]]
    figures = _data(name)["figures"]
    assert len(figures) > 20
    for _, _, path, _, value in figures:
        assert reduce(lambda tree, key: tree[key], path.split("."), document) == value, path


@pytest.mark.parametrize("name", ["racks", "wide"])
def test_the_data_contain_every_host_with_its_node_rank_and_state(name: str) -> None:
    placement = planned(name).placement
    found, nodes = [], []
    for _, hosts, runs in _data(name)["map"]["racks"]:
        found += expand_host_list(hosts)
        nodes += [min(start, 0) or start + step for start, count in runs for step in range(count)]
    assert len(found) == len(nodes)
    used = {node: host for host, node in zip(found, nodes, strict=True) if node >= 0}
    assert [used[node] for node in sorted(used)] == [host.name for host in placement.hosts]
    idle, spare, away = (nodes.count(state) for state in (-1, -2, -3))
    assert (idle, spare, away) == ((19, 2, 1) if name == "racks" else (0, 0, 0))


def test_every_action_of_the_timeline_has_its_micro_batch() -> None:
    picture = _picture("llama-65b-pipeline", "1F1B")
    numbers = _data("llama-65b-pipeline")["timeline"]
    plan = planned("llama-65b-pipeline")
    assert isinstance(plan, Plan)
    drawn = {
        f"{path['class']} {path['stroke-width']}": len(list(boxes(path)))
        for path in picture.paths
        if "stroke-width" in path
    }
    assert drawn == {key: sum(count for _, count in runs) for key, runs in numbers.items()}
    last = max(start + count for runs in numbers.values() for start, count in runs)
    assert last == plan.layout.micro_batches(plan.problem.job.global_batch)


def test_the_colors_of_a_group_are_those_of_its_legend() -> None:
    data = _data("wide")
    shown = next(group for group in data["groups"] if group["shown"])
    text = page("wide")
    assert shown["name"] == "pp"
    assert len(data["colors"][str(shown["shades"])]) == 16
    for index, color in enumerate(data["colors"][str(shown["shades"])]):
        assert f'fill="{color}" d="M0 0h13v13h-13z"/></svg>{index}</li>' in text
    (wide,) = (group for group in data["groups"] if group["name"] == "dp")
    assert wide["axes"] == [[2, 512]]
    assert len(set(data["colors"][str(wide["shades"])])) == 64


def test_the_next_steps_name_the_settings_that_are_missing() -> None:
    words = " ".join(Page(page("wide")).text)
    assert "parc explain job.checkpoint_dir" in words
    assert re.search(r"The probability of a run without a failure is \d+\.\d %\.", words)
    assert "parc explain ep" in words
    served = " ".join(Page(page("llama-2-70b-serve")).text)
    assert "parc verify ." in served
    assert "job.data" not in served


def test_the_page_of_one_rank_has_no_empty_table_and_no_plural() -> None:
    spec = {
        "parc": 1,
        "name": "one",
        "model": "qwen3-0.6b",
        "cluster": {"node": "hgx-h100", "nodes": 1},
        "job": {
            "kind": "serve",
            "traffic": {"input_tokens": 99, "output_tokens": 9, "concurrency": 1},
        },
    }
    plan = compile_spec(spec)
    text = report_artifact(plan).text
    assert "<tbody>\n</tbody>" not in text
    assert "on 1 GPU each" in text
    assert "Layouts on the fewest GPUs come first. Of those on equally many GPUs " in text


@pytest.mark.parametrize("name", ["gpt2-small", "llama-2-70b-serve"])
def test_the_command_of_the_second_candidate_estimates_it(name: str) -> None:
    words = re.sub("</?span>", "", page(name))  # each option is a word that stays on one line
    (command,) = re.findall(r"parc estimate spec\.yaml (--set [^<]*)", words)
    result = parc("estimate", str(ROOT / "examples" / name / "spec.yaml"), *command.split())
    assert result.exit_code == 0, result.output
    second = planned(name).search.ranked[1]
    figure = second.step_seconds if isinstance(second, Candidate) else second.tpot_seconds
    assert format_seconds(figure) in result.stdout


def test_a_price_gives_the_page_a_cost_per_hour() -> None:
    plan = planned("gpt2-small")
    assert isinstance(plan, Plan)
    cluster = replace(plan.problem.cluster, price_per_gpu_hour=2.5)
    run = replace(plan.run, cost=123_456.7)
    problem = replace(plan.problem, cluster=cluster)
    priced = replace(plan, problem=problem, run=run)  # type: ignore[type-var]
    words = " ".join(Page(report_artifact(priced).text).text)
    words = " ".join(words.split())
    assert "cost per hour 20.00 for 8 GPUs," in words
    assert "cost 123,456.70 GPU-hours x price_per_gpu_hour" in words
    assert "cost per hour" not in " ".join(Page(page("gpt2-small")).text)


def test_two_pages_of_a_plan_are_equal() -> None:
    plan = planned("racks")
    assert report_artifact(plan).text == report_artifact(plan).text


def _data(name: str) -> Any:
    """Return the data of the script of a page."""
    return json.loads(Page(page(name)).inline[1][1])


def _picture(name: str, label: str) -> Picture:
    """Return the figure of a page whose label starts with ``label``."""
    read = Page(page(name))
    labels = [value for tag, key, value in read.attributes if (tag, key) == ("svg", "aria-label")]
    shown = [one for one in read.pictures if one.width > 13]
    return next(
        picture for text, picture in zip(labels, shown, strict=True) if text.startswith(label)
    )


def test_a_cluster_whose_first_rack_is_too_large_to_draw_has_an_empty_map(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_map, "MAX_HOSTS", 1)
    found = cluster_map.cluster_map(example("llama-3-70b"))
    assert found.caption.endswith(" 32 more hosts are not drawn.")
    assert found.states == (("used", "32 hosts"),)
