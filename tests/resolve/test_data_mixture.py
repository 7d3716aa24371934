"""Lists of training data are paths, or weights and paths in turn; fixes of others work."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.compiled import changed, error_codes, planned, resolved

SPEC: dict[str, Any] = {
    **{"parc": 1, "name": "data", "model": "llama-3-8b", "emit": ["megatron"]},
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 64, "precision": "bf16"},
    "layout": {"tp": 1, "pp": 1, "cp": 1},
}


def fixes(data: list[str], code: str, target: str = "megatron") -> list[str]:
    """Return the fixes of the findings with ``code``; each leads to a spec without errors."""
    spec = changed(SPEC, {"job.data": data}) | {"emit": [target]}
    _, sink = planned(spec)
    found = [str(one.finding.fix) for one in sink.diagnostics if one.code == f"PARC-{code}"]
    for fix in found:
        if fix:
            assert not error_codes(changed(spec, {"job.data": json.loads(fix.partition(": ")[2])}))
    return found


@pytest.mark.parametrize(
    "data", [[], ["/a"], ["/a", "/b"], ["0.7", "/a", "3", "/b"], ["/a", "/b", "/c"], ["1", "/a b"]]
)
@pytest.mark.parametrize("target", ["megatron", "fsdp", "accelerate", "deepspeed"])
def test_paths_and_weighted_paths_are_valid(data: list[str], target: str) -> None:
    spec = changed(SPEC, {"job.data": data}) | {"emit": [target]}
    assert error_codes(spec) == set()


@pytest.mark.parametrize(
    ("data", "at", "fix"),
    [
        (["0.7", "/a", "0.3"], 2, ["0.7", "/a"]),
        (["0.7", "0.3"], 1, None),
        (["0.7"], 0, None),
        (["/a", "0.7", "/b", "0.3"], 0, None),
        (["0.7", "/a", "/b"], 2, ["0.7", "/a"]),
        (["0.7", "/a", "/b", "0.3"], 2, ["0.7", "/a"]),
        (["-1", "/a"], 0, None),
        (["0.5", "/a", "nan", "/b"], 2, None),
        (["inf", "/a"], 0, None),
    ],
)
def test_other_lists_are_errors_at_the_word_that_is_wrong(
    data: list[str], at: int, fix: list[str] | None
) -> None:
    _, sink = resolved(changed(SPEC, {"job.data": data}))
    (found,) = [one for one in sink.diagnostics if one.code == "PARC-X28"]
    assert data[at] in found.finding.message
    wanted = f"job.data: {json.dumps(fix)}" if fix else ""
    assert fixes(data, "X28") == [wanted]


def test_the_suffix_of_a_file_is_an_error_for_megatron_only() -> None:
    data = ["0.7", "/data/web.bin", "0.3", "/data/code"]
    assert fixes(data, "E11") == ['job.data: ["0.7", "/data/web", "0.3", "/data/code"]']
    assert fixes(["/data/web.idx"], "E11", "megatron-bridge") == ['job.data: ["/data/web"]']
    assert fixes(["/data/web.bin"], "E11", "fsdp") == []


def test_torchtitan_reads_one_path() -> None:
    for data in (["0.7", "/data/web", "0.3", "/data/code"], ["/data/web", "/data/code"]):
        assert fixes(data, "E11", "torchtitan") == ['job.data: ["/data/web"]']
    assert fixes(["/data/web"], "E11", "torchtitan") == []
