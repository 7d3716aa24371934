"""Outputs of every command on a service with two pools."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
from pathlib import Path

import pytest

import parc
from parc.compiler.mcp_server import Tools
from parc.compiler.report.page.report_page import report_artifact
from tests.cli.specs import parc as run
from tests.compiled import changed
from tests.search.serving_specs import Tree, plan_of, spec

LOAD: Tree = {"input_tokens": 2000, "output_tokens": 50, "request_rate": 2}
TP2 = {"decode": {"layout": {"tp": 2}}}


def two_pools(disaggregate: object = True) -> Tree:
    job = {"disaggregate": disaggregate, "traffic": LOAD}
    return spec("llama-3.1-8b", "dgx-h100", 2, job=job) | {"emit": ["rankmap", "vllm"]}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_requests: None) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_text(json.dumps(two_pools()))
    Path("new.yaml").write_text(json.dumps(changed(two_pools(), {"job.disaggregate": TP2})))


def test_rows_of_a_search_name_their_pool() -> None:
    done = run("search", "old.yaml", "--format", "csv", "--top", "2")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["pool"], row["rank"]) for row in rows] == [
        *(("prefill", "1"), ("prefill", "2"), ("decode", "1"), ("decode", "2")),
    ]
    # Requests of a prefill pool have no time per token.
    assert [bool(row["tpot_seconds"]) for row in rows] == [False, False, True, True]
    done = run("search", "old.yaml", "--format", "json", "--top", "40")
    assert "-prefill: " in done.stderr
    assert "-decode: " in done.stderr


def test_the_mcp_tools_list_both_pools() -> None:
    tools = Tools(Path())
    found = tools.search("old.yaml", top=1)
    assert [row["pool"] for row in found.candidates] == ["prefill", "decode"]
    document = json.loads(run("search", "old.yaml", "--format", "json").stdout)
    parts = [document["prefill"], document["decode"]]
    assert found.enumerated == sum(one["enumerated"] for one in parts)
    counts = [row["count"] for one in parts for row in one["dropped"]]
    assert sum(row.count for row in found.dropped) == sum(counts)
    assert len({row.code for row in found.dropped}) == len(found.dropped)
    changes = tools.diff("old.yaml", "new.yaml")
    assert changes.changed
    assert changes.changes is not None
    assert not changes.changes["prefill"]["layout"]
    assert changes.changes["decode"]["layout"]
    assert "old.yaml/decode" in changes.markdown


def test_a_diff_compares_both_pools() -> None:
    done = run("diff", "old.yaml", "new.yaml", "--exit-code")
    assert done.exit_code == 3, done.stderr
    prefill, decode = done.stdout.split("old.yaml/decode -> new.yaml/decode")
    assert "  tp " not in prefill
    assert re.search(r"  tp +1 +2", decode)
    assert run("compile", "old.yaml", "-o", "out").exit_code == 0
    same = run("diff", "out", "old.yaml", "--format", "json", "--exit-code")
    assert same.exit_code == 0
    assert json.loads(same.stdout)["changed"] is False
    whole = changed(two_pools(), {"job.disaggregate": False})
    Path("whole.yaml").write_text(json.dumps(whole))
    for names in (("old.yaml", "whole.yaml"), ("whole.yaml", "out")):
        refused = run("diff", *names)
        assert refused.exit_code == 2
        assert "has a prefill pool and a decode pool, and whole.yaml has none" in refused.stderr


def test_the_api_returns_the_estimates_of_both_pools() -> None:
    found = parc.estimate(two_pools())
    assert isinstance(found, tuple)
    plan = plan_of(two_pools())
    assert found == tuple(pool.estimate for pool in plan.pools)


@pytest.mark.parametrize("disaggregate", [True, {"prefill": {"hosts": 1}}])
def test_the_command_for_the_second_candidate_fixes_the_layout_of_its_pool(
    disaggregate: object,
) -> None:
    Path("spec.yaml").write_text(json.dumps(two_pools(disaggregate)))
    plan = plan_of(two_pools(disaggregate))
    for index, pool in enumerate(("prefill", "decode")):
        own, other = plan.pools[index], plan.pools[1 - index]
        page = report_artifact(own).text
        (shown,) = re.findall(r"<code>(parc estimate spec.yaml .*?)</code>", page)
        words = shlex.split(html.unescape(re.sub("<[^>]*>", "", shown)))
        document = json.loads(run(*words[1:], "--format", "json").stdout)
        wanted = {pool: own.search.ranked[1].layout, ("decode", "prefill")[index]: other.layout}
        for name, layout in wanted.items():
            assert document[name]["layout"]["tp"] == layout.tp
            assert document[name]["layout"]["replicas"] == layout.replicas
        # The filters of the table show the same path.
        assert f"` --set job.disaggregate.{pool}.layout.${{name}}=" in page


def test_an_edit_by_hand_in_a_pool_or_beside_them_is_named() -> None:
    for folder in ("one", "two"):
        assert run("compile", "old.yaml", "-o", folder).exit_code == 0
    assert run("diff", "one", "two", "--exit-code").exit_code == 0
    for path, line in (("router.sh", "--policy other"), ("decode/vllm/serve.sh", "--seed 1")):
        file = Path("two") / path
        file.write_text(f"{file.read_text('utf-8')}# {line}\n", encoding="utf-8")
    found = run("diff", "one", "two", "--exit-code")
    assert found.exit_code == 3
    assert "edited after PARC wrote them: vllm/serve.sh" in found.stdout
    assert "edited after PARC wrote them: router.sh" in found.stdout
    assert "# --policy other" in run("diff", "one", "two", "--format", "markdown").stdout
    document = json.loads(run("diff", "one", "two", "--format", "json").stdout)
    assert [row["path"] for row in document["files"]] == ["router.sh"]
    assert [row["path"] for row in document["decode"]["files"]] == ["vllm/serve.sh"]
