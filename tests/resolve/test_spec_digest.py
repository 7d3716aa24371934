"""The digest of a spec depends on the hosts, not on how they are written."""

from __future__ import annotations

import pytest

from tests.compiled import Spec, changed, resolved

SPEC: Spec = {
    "parc": 1,
    "name": "digest",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "racks": [{"name": "a", "nodes": "a[01-04]"}]},
    "job": {"sequence_length": 4096, "global_batch": 128},
}


def digest_with(changes: Spec) -> str:
    problem, _ = resolved(changed(SPEC, changes))
    assert problem is not None
    return problem.digest


def racks(nodes: object) -> Spec:
    return {"cluster.racks": [{"name": "a", "nodes": nodes}]}


@pytest.mark.parametrize(
    "nodes",
    [
        "a01,a02,a03,a04",
        "a[01-02],a[03-04]",
        ["a[01-02]", "a[03,04]"],
        ["a01", "a02", "a03", "a04"],
    ],
)
def test_the_digest_does_not_depend_on_how_hosts_are_written(nodes: object) -> None:
    assert digest_with(racks(nodes)) == digest_with({})


@pytest.mark.parametrize("nodes", ["a[01-03]", "a[1-4]", "a[02-05]", "a04,a03,a02,a01"])
def test_the_digest_depends_on_the_hosts_and_their_order(nodes: str) -> None:
    assert digest_with(racks(nodes)) != digest_with({})


@pytest.mark.parametrize("field", ["spare", "unavailable"])
def test_the_digest_does_not_depend_on_how_excluded_hosts_are_written(field: str) -> None:
    path = f"cluster.{field}"
    assert digest_with({path: "a04"}) == digest_with({path: ["a[04]"]})
    assert digest_with({path: "a04"}) != digest_with({path: "a03"})
