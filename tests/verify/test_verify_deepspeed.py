"""Verification of DeepSpeed's files: sound files pass, each kind of damage gets its code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.backends.deepspeed.meshes import FAMILIES, deepspeed_meshes
from parc.backends.deepspeed.verify_groups import DeepSpeedTopology, derive_groups
from tests.backends.deepspeed.boundaries import EMITTED, ROUTED
from tests.compiled import Files, changed, files_of, verification_codes
from tests.placement.placement_plans import layout
from tests.verify.damage import Edit, dropped, swapped

ALL = {"emit": ["deepspeed", "rankmap", "torchrun"]}
CLUSTER = {"node": "dgx-h100", "racks": [{"name": "a", "nodes": "n[1-3]"}]}
SPECS = {
    "zero": EMITTED,
    "pipeline": changed(EMITTED, {"layout.pp": 3, "layout.tp": 2}),
    "autotp": changed(EMITTED, {"layout.tp": 4}),
    "sequences": changed(EMITTED, {"layout.cp": 2}),
    "experts": ROUTED,
    "experts over tp": changed(ROUTED, {"layout.tp": 2, "layout.etp": 2}),
}
SOUND = files_of(SPECS["pipeline"] | ALL | {"cluster": CLUSTER})


@pytest.mark.parametrize("name", SPECS)
def test_sound_files_pass(name: str) -> None:
    assert verification_codes(files_of(SPECS[name] | ALL)) == set()


def edited(file: str, *path: str, value: Any) -> Edit:
    def edit(files: Files) -> Files:
        tree = json.loads(files[file])
        place = tree
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        return files | {file: json.dumps(tree)}

    return edit


CONFIG, PROGRAM = "deepspeed/ds_config.json", "deepspeed/train.json"
SLOTS, SCRIPT = "deepspeed/hostfile", "deepspeed/launch.sh"
DAMAGE = [
    ("axes that are swapped", edited(PROGRAM, "topology", "model", value=4), {"A05"}),
    ("another pipeline", edited(PROGRAM, "topology", "pipe", value=1), {"A05", "A08"}),
    ("a stage that lost a layer", edited(PROGRAM, "stages", value=[4, 4, 3]), {"A08"}),
    ("stages that are not numbers", edited(PROGRAM, "stages", value="4 4 4"), {"A04"}),
    ("a topology without an axis", edited(PROGRAM, "topology", value={}), {"A04"}),
    ("a topology that is a list", edited(PROGRAM, "topology", value=[]), {"A04"}),
    ("a batch that is not whole", edited(CONFIG, "train_batch_size", value=47), {"A09"}),
    ("a micro-batch of text", edited(CONFIG, "train_micro_batch_size_per_gpu", value="1"), {"A04"}),
    (
        "AutoTP of another size than the topology",
        edited(CONFIG, "tensor_parallel", value={"autotp_size": 8}),
        {"A05"},
    ),
    ("another sequence parallel size", edited(CONFIG, "sequence_parallel_size", value=2), {"A05"}),
    ("text instead of JSON", swapped(CONFIG, "{", "["), {"A04"}),
    ("a list instead of an object", lambda files: files | {PROGRAM: "[]"}, {"A04"}),
    ("hosts in another order", swapped(SLOTS, "n1 ", "n9 "), {"A02"}),
    ("a host that is missing", swapped(SLOTS, "n3 slots=8\n", ""), {"A02"}),
    ("unequal slots", swapped(SLOTS, "n2 slots=8", "n2 slots=4"), {"A07"}),
    ("another rendezvous", swapped(SCRIPT, "first=n1", "first=n2"), {"A07"}),
    ("no program", dropped("deepspeed/train.py"), {"A03"}),
    ("no model", dropped("deepspeed/model.py"), {"A03"}),
    ("no settings", dropped(PROGRAM), {"A03"}),
    ("no hostfile", dropped(SLOTS), {"A03"}),
    ("no config", dropped(CONFIG), {"A03"}),
]


@pytest.mark.parametrize(
    ("edit", "expected"), [row[1:] for row in DAMAGE], ids=[r[0] for r in DAMAGE]
)
def test_damage_gets_its_code(edit: Callable[[Files], Files], expected: set[str]) -> None:
    assert verification_codes(SOUND) == set()
    assert expected <= verification_codes(edit(SOUND))


@given(
    *(st.sampled_from([1, 2, 3, 4]) for _ in range(4)),
    st.sampled_from([1, 2, 4]),
)
def test_the_topology_and_the_meshes_give_the_same_groups(
    pp: int, replicas: int, tp: int, cp: int, ep: int
) -> None:
    dp = replicas * ep
    topology = DeepSpeedTopology(pp, dp, cp, tp, ep, tp)
    of = layout(tp=tp, cp=cp, pp=pp, dp=dp, ep=ep, etp=tp)
    planned = dict(zip(("dense", "expert"), deepspeed_meshes(of), strict=True))
    derived = derive_groups(topology)
    assert derived.keys() == {family.name for family in FAMILIES}
    for family in FAMILIES:
        groups = planned[family.mesh].groups_along(*family.axes)
        again = [
            [base + member for member in derived[family.name].members]
            for base in derived[family.name].bases
        ]
        assert sorted(map(sorted, groups)) == again, family.name
