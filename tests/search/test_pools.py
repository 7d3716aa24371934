"""Services with a prefill pool and a decode pool that one spec describes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from parc.compiler.cost.serving.simulation.simulate import Sampling
from parc.compiler.evaluate.simulated_limits import missed_limits
from parc.compiler.ir import ServingPlan
from parc.compiler.ir.serialize import as_json
from parc.compiler.ir.serving_plan import PoolPair
from parc.compiler.pools_pipeline import simulate_pair
from tests import compiled
from tests.cli.specs import parc
from tests.compiled import verification_codes
from tests.search.serving_specs import Tree, codes, plan_of, problem_of, spec

few_requests = pytest.mark.usefixtures("few_requests")
LOAD: Tree = {"input_tokens": 2000, "output_tokens": 50, "request_rate": 8}
LONG: Tree = {"input_tokens": 4000, "output_tokens": 500, "request_rate": 8}
HOSTS: Tree = {"node": "dgx-h100", "racks": [{"name": "a", "nodes": "h[1-4]"}]}
LOOSE: Tree = {"ttft": "5s", "tpot": "60ms"}
STRICT: Tree = {"ttft": {"p99": "2500ms"}, "tpot": {"p99": "40ms"}}


def two_pools(**parts: Any) -> Tree:
    """Return a spec with two pools on four named hosts."""
    job = {"disaggregate": True, "traffic": LOAD, **parts.pop("job", {})}
    tree = spec("llama-3.1-8b", "dgx-h100", job=job)
    return tree | {"cluster": HOSTS, "goals": STRICT, "emit": ["rankmap", "vllm"]} | parts


def pair_of(plan: ServingPlan) -> PoolPair:
    assert plan.pair is not None
    return plan.pair


def host_names(plan: ServingPlan) -> list[list[str]]:
    return [[host.name for host in pool.placement.hosts] for pool in plan.pools]


def test_two_pools_have_the_same_rate_hosts_of_their_own_and_keep_all_limits() -> None:
    plan = plan_of(two_pools())
    pair = pair_of(plan)
    names = [pool.problem.service.setup.pool for pool in plan.pools]
    assert names == ["prefill", "decode"]
    prefill, decode = host_names(plan)
    assert not set(prefill) & set(decode)
    assert {pool.problem.service.traffic.request_rate for pool in plan.pools} == {8.0}
    assert pair.simulated is not None
    assert pair.simulated.requests_per_second == pytest.approx(8, rel=0.1)
    whole = problem_of(two_pools())
    again = simulate_pair(whole, plan.pools[0], pair.decode, 8.0, Sampling(seed=7))
    assert again is not None
    assert missed_limits(whole.goals, again) == []
    # The first token waits for both pools, and the later ones for the decode pool only.
    separate = [pool.estimate.simulated for pool in plan.pools]
    assert separate[0] is not None
    assert separate[1] is not None
    together = separate[0].ttft_seconds.mean + separate[1].ttft_seconds.mean
    assert pair.simulated.ttft_seconds.mean == pytest.approx(together, rel=0.1)
    tpot = separate[1].tpot_seconds.mean
    assert pair.simulated.tpot_seconds.mean == pytest.approx(tpot, rel=0.05)


@few_requests
def test_pools_are_chosen_only_where_they_need_fewer_gpus() -> None:
    large = spec("llama-3.1-70b", "dgx-h100", 8, job={"disaggregate": "auto", "traffic": LONG})
    large["job"]["precision"] = "fp8"
    chosen = plan_of(large | {"goals": STRICT})
    whole = plan_of(large | {"goals": STRICT, "job": {**large["job"], "disaggregate": False}})
    assert chosen.occupied_gpus < whole.occupied_gpus
    share = 1 - chosen.occupied_gpus / whole.occupied_gpus
    assert f"({share:.1%} fewer GPUs)".replace("%", " %") in pair_of(chosen).comparison
    light = two_pools(job={"disaggregate": "auto", "traffic": {**LOAD, "request_rate": 1}})
    plan, sink = compiled.planned(light)
    assert isinstance(plan, ServingPlan)
    assert plan.pair is None
    assert plan.occupied_gpus == 1
    (advice,) = [one for one in sink.diagnostics if one.code == "PARC-G11"]
    assert "two pools occupy 2 GPUs" in advice.finding.message
    assert "100.0 % more GPUs" in advice.finding.message


@few_requests
def test_auto_serves_whole_requests_where_pools_are_not_possible() -> None:
    load = {"input_tokens": 100, "output_tokens": 10, "concurrency": 4}
    plan, sink = compiled.planned(two_pools(job={"disaggregate": "auto", "traffic": load}))
    assert isinstance(plan, ServingPlan)
    assert plan.pair is None
    assert [one.code for one in sink.diagnostics] == ["PARC-G11"]


@few_requests
def test_hosts_and_layouts_of_the_pools_are_kept() -> None:
    section = {
        "prefill": {"hosts": "h[3-4]", "layout": {"tp": 4, "replicas": 4}},
        "decode": {"hosts": 1, "layout": {"replicas": 2}},
    }
    plan = plan_of(two_pools(job={"disaggregate": section}, layout={"tp": 2}))
    assert [(pool.layout.tp, pool.layout.replicas) for pool in plan.pools] == [(4, 4), (2, 2)]
    assert host_names(plan) == [["h3", "h4"], ["h1"]]


def test_without_a_rate_the_hosts_are_split_so_that_the_rates_match() -> None:
    cluster = {"node": "dgx-h100", "nodes": 3}
    parts: Tree = {"goals": LOOSE, "layout": {"tp": 8}, "cluster": cluster}
    load = {"input_tokens": 2000, "output_tokens": 20}
    rates = []
    for section in (True, *({"prefill": {"hosts": n}, "decode": {"hosts": 3 - n}} for n in (1, 2))):
        plan = plan_of(two_pools(job={"traffic": load, "disaggregate": section}, **parts))
        assert pair_of(plan).simulated is not None
        rates.append(pair_of(plan).request_rate)
    assert rates[0] == max(rates[1:])
    assert rates[1] != rates[2]


@few_requests
@pytest.mark.parametrize("goal", ["latency", "throughput"])
def test_other_goals_use_all_hosts(goal: str) -> None:
    plan = plan_of(two_pools(goals={**LOOSE, "maximize": goal}))
    assert sum(map(len, host_names(plan))) == 4


@few_requests
@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ({"job": {"pool": "decode"}}, "V46"),
        ({"job": {"traffic": {**LOAD, "request_rate": None, "concurrency": 8}}}, "V46"),
        ({"job": {"traffic": {**LOAD, "request_rate": None}}, "goals": {}}, "V46"),
        ({"goals": {"e2e": "20s"}}, "V46"),
        ({"cluster": {"node": "dgx-h100", "nodes": 1}}, "V46"),
        ({"job": {"disaggregate": {"decode": {"hosts": "h9"}}}}, "V46"),
        ({"job": {"disaggregate": {"decode": {"hosts": 4}}}}, "V46"),
        ({"job": {"disaggregate": {"decode": {"hosts": "h[4"}}}}, "H01"),
        ({"job": {"kv_offload": {"size": "100GB"}}}, "V45"),
        ({"emit": ["tensorrt-llm"]}, "V40"),
        ({"layout": {"pp": 2}}, "V45"),
        ({"goals": {"tpot": "1ms"}}, "G03"),
        ({"launch": {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}}, "V45"),
    ],
)
def test_impossible_pools_are_refused(parts: Tree, found: str) -> None:
    tree = two_pools(**parts)
    tree["job"]["traffic"] = {
        key: value for key, value in tree["job"]["traffic"].items() if value is not None
    }
    assert found in codes(tree)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """Files of two pools of SGLang, with several engines each."""
    section = {"prefill": {"layout": {"tp": 8, "replicas": 2}}, "decode": {"layout": {"tp": 4}}}
    job = {"disaggregate": section, "traffic": {**LOAD, "request_rate": 1}}
    tree = two_pools(job=job, emit=["rankmap", "sglang", "slurm"], goals={})
    return compiled.emitted(plan_of(tree))


DAMAGES = {
    "port of an engine": ("router.sh", "]}:8000", "]}:8001", {"A18"}),
    "engine is missing": (
        "router.sh",
        '  --prefill "http://${prefill[0]}:8000" 8998 \\\n',
        "",
        {"A18"},
    ),
    "bootstrap port": ("router.sh", " 8998", " 8999", {"A18"}),
    "port of the router": ("router.sh", "--port 30000", "--port 30001", {"A18"}),
    "hosts of the router": ("router.sh", "prefill=(h", "prefill=(x", {"A18"}),
    "joint rank": ("rankmap.csv", "decode,1,0", "decode,1,1", {"A06"}),
    "last rank": ("rankmap.csv", "\ndecode,3,", "\ndecode,3,\ndecode,3,", {"A06"}),
    "format of the cache": ("decode/plan.json", '"kv": "bf16"', '"kv": "fp8"', {"A14"}),
    "script of a pool": ("decode/sglang/serve.sh", "--disaggregation-mode decode", "", {"A14"}),
}


@pytest.mark.parametrize(("file", "old", "new", "found"), DAMAGES.values(), ids=DAMAGES)
def test_contradictions_between_the_pools_are_found(
    file: str, old: str, new: str, found: set[str], files: dict[str, str]
) -> None:
    assert verification_codes(files) == set()
    assert old in files[file]
    damaged = files | {file: files[file].replace(old, new, 1)}
    assert found <= verification_codes(damaged)


def test_hosts_in_both_pools_and_missing_files_are_found(files: dict[str, str]) -> None:
    own = json.loads(files["decode/plan.json"])["placement"]["hosts"][0]
    other = json.loads(files["prefill/plan.json"])["placement"]["hosts"][0]
    swapped = {
        path: text.replace(own, other) if path.startswith("decode/") else text
        for path, text in files.items()
    }
    assert "A05" in verification_codes(swapped)
    for missing in ("router.sh", "decode/sglang/serve.sh", "parc.lock", "prefill/parc.lock"):
        assert "A03" in verification_codes({k: v for k, v in files.items() if k != missing})


def test_the_router_starts_with_the_engines_of_both_pools(
    files: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "router.sh"
    script.write_text(files["router.sh"])
    program = tmp_path / "python3"
    program.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PARC_DECODE_HOSTS": "other"}
    done = subprocess.run(
        ["bash", script, "--policy", "random"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words.count("--prefill") == 2
    assert words[words.index("--decode") + 1] == "http://other:8000"
    first = words.index("--prefill")
    assert words[first + 1].startswith("http://h")
    assert words[first + 2] == "8998"
    assert words[-2:] == ["--policy", "random"]
    environment["PARC_DECODE_HOSTS"] = "one two three"
    wrong = subprocess.run(["bash", script], env=environment, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "must have 1 host\n" in wrong.stderr


@few_requests
@pytest.mark.parametrize(
    ("hosts", "engine", "layout", "names"),
    [
        (8, "vllm", {"tp": 8, "replicas": 2}, ["p-{0}-0.p-{0}", "p-{0}-1.p-{0}"]),
        (8, "sglang", {"tp": 8, "replicas": 1}, ["p-{0}-0.p-{0}.ml"]),
        (
            "h[1-8]",
            "vllm",
            {"tp": 8, "replicas": 2},
            ["p-{0}-0.p-{0}.ml", "p-{0}-1.p-{0}.ml"],
        ),
        (
            "h[1-8]",
            "sglang",
            {"tp": 16, "replicas": 2},
            ["p-{0}-0-0.p-{0}-0", "p-{0}-1-0.p-{0}-1"],
        ),
    ],
)
def test_the_router_names_the_pods_on_kubernetes(
    hosts: int | str,
    engine: str,
    layout: Tree,
    names: list[str],
    tmp_path: Path,
) -> None:
    section = {pool: {"layout": layout} for pool in ("prefill", "decode")}
    load = {"input_tokens": 500, "output_tokens": 20, "request_rate": 1}
    tree = spec("deepseek-v3", "hgx-h200", job={"disaggregate": section, "traffic": load})
    tree["job"]["precision"] = "fp8"
    own = {"nodes": hosts} if isinstance(hosts, int) else {"racks": [{"name": "a", "nodes": hosts}]}
    kubernetes = {"image": "registry.example/image:1"}
    if names[0].endswith(".ml"):
        kubernetes["namespace"] = "ml"
    tree |= {"name": "p", "cluster": {"node": "hgx-h200", **own}, "emit": [engine, "kubernetes"]}
    tree["launch"] = {"kubernetes": kubernetes}
    emitted = compiled.emitted(plan_of(tree))
    words = router_words(emitted["router.sh"], tmp_path)
    for pool in ("prefill", "decode"):
        found = [words[place + 1] for place, word in enumerate(words) if word == f"--{pool}"]
        assert found == [f"http://{name.format(pool)}:8000" for name in names]
    assert verification_codes(emitted) == set()
    damaged = {**emitted, "router.sh": emitted["router.sh"].replace("p-decode-0", "p-decode-7", 1)}
    assert "A18" in verification_codes(damaged)


def router_words(script: str, folder: Path) -> list[str]:
    """Return the words with which ``script`` starts the router, as a stand-in prints them."""
    for name in ("vllm-router", "python3"):
        program = folder / name
        program.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
        program.chmod(0o755)
    (folder / "router.sh").write_text(script)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", folder / "router.sh"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@few_requests
@pytest.mark.parametrize(("prefill", "decode"), [(1, 8), (8, 1)])
def test_both_pools_accept_requests_of_the_same_length(prefill: int, decode: int) -> None:
    layouts = {"prefill": {"layout": {"tp": prefill}}, "decode": {"layout": {"tp": decode}}}
    load = {"input_tokens": 1000, "output_tokens": 100, "request_rate": 0.5}
    tree = spec("llama-3.1-70b", "dgx-h100", 2, job={"disaggregate": layouts, "traffic": load})
    tree["job"]["precision"] = "fp8"
    plan = plan_of(tree | {"emit": ["vllm", "rankmap"]})
    lengths = [pool.limits.max_model_len for pool in plan.pools]
    # tp 1 stores fewer tokens than the context length of the model, tp 8 stores more.
    assert lengths[0] == lengths[1]
    assert 1100 <= lengths[0] < 4000
    files = compiled.emitted(plan)
    for pool in ("prefill", "decode"):
        assert f"--max-model-len {lengths[0]}\n" in files[f"{pool}/vllm/serve.sh"]
    assert verification_codes(files) == set()
    # The decode pool alone is consistent with another length.
    for path in ("decode/plan.json", "decode/vllm/serve.sh"):
        files[path] = files[path].replace(str(lengths[0]), "1200")
    assert "A14" in verification_codes(files)


@few_requests
def test_the_plan_of_each_pool_contains_the_spec_that_the_user_wrote() -> None:
    tree = two_pools(goals={}, launch={"router_port": 31000})
    plan, sink = compiled.planned(tree)
    assert isinstance(plan, ServingPlan)
    assert sink.diagnostics == ()
    files = compiled.emitted(plan)
    for pool in ("prefill", "decode"):
        assert json.loads(files[f"{pool}/plan.json"])["spec"]["job"]["disaggregate"] is True
    assert "--port 31000 " in files["router.sh"]
    other = problem_of(two_pools(goals={}, job={"disaggregate": "auto"}))
    assert other.digest != plan.problem.digest


@few_requests
def test_commands_show_both_pools(tmp_path: Path) -> None:
    path, out = tmp_path / "spec.yaml", tmp_path / "out"
    path.write_text(json.dumps(two_pools(job={"traffic": {**LOAD, "request_rate": 1}}, goals={})))
    done = parc("compile", str(path), "-o", str(out))
    assert done.exit_code == 0, done.stderr
    assert "service   served: 1.00 requests/s on 2 GPUs" in done.stdout
    assert (out / "rankmap.csv").read_text().startswith("pool,rank,")
    for arguments in (("compile", str(path), "-o", str(out), "--check"), ("verify", str(out))):
        assert parc(*arguments).exit_code == 0
    estimate = json.loads(parc("estimate", str(path), "--format", "json").stdout)
    assert estimate["prefill"]["tpot_seconds"] is None
    assert estimate["prefill"]["decode"] is None
    assert estimate["decode"]["tpot_seconds"] > 0
    assert estimate["simulated"]["ttft_seconds"]["p99"] > 0


def fix_of_replan(tree: Tree, out: Path, *drained: str) -> tuple[str, str]:
    """Return (spec path, new value) of the edit that ``parc replan`` suggests."""
    path = out.parent / "spec.yaml"
    path.write_text(json.dumps(tree))
    drains = [word for host in drained for word in ("--drain", host)]
    done = parc("replan", str(path), *drains, "-o", str(out), "--format", "json")
    assert done.exit_code == 1
    (found,) = json.loads(done.stdout)["diagnostics"]
    assert found["code"] == "PARC-V46"
    field, _, value = (found["fix"] or ": ").partition(": ")
    return field, value


@few_requests
def test_the_edit_of_a_replan_replaces_only_the_drained_host(tmp_path: Path) -> None:
    tree = two_pools(job={"traffic": {**LOAD, "request_rate": 1}}, goals={})
    path, out = tmp_path / "spec.yaml", tmp_path / "out"
    path.write_text(json.dumps(tree))
    assert parc("compile", str(path), "-o", str(out)).exit_code == 0
    before = json.loads((out / "parc.lock").read_text())["decisions"]
    (lost,), (kept,) = before["decode"]["hosts"], before["prefill"]["hosts"]
    # The lock still lists the host that the spec excludes.
    tree = tree | {"cluster": {**HOSTS, "unavailable": [lost]}}
    field, value = fix_of_replan(tree, out, lost)
    after = plan_of(compiled.changed(tree, {field: YAML(typ="safe").load(value)}))
    (same,), (new,) = host_names(after)
    assert same == kept
    assert new not in (lost, kept)
    layouts = [before[pool]["layout"] for pool in ("prefill", "decode")]
    assert [as_json(one.layout) for one in after.pools] == layouts
    assert fix_of_replan(tree, out, "h1", "h2", "h3", "h4") == ("", "")
    idle = fix_of_replan(tree, tmp_path / "absent", "h4")
    assert idle == ("cluster.unavailable", f'["{lost}", "h4"]')
