"""Verification of PyTorch's frameworks: changes of their files and of the rank map are found."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from parc.backends.accelerate.verify import read_sizes as accelerate_sizes
from parc.backends.fsdp.verify import read_sizes as fsdp_sizes
from parc.backends.torchtitan.verify import MODULE as TITAN
from parc.backends.torchtitan.verify import read_sizes as titan_sizes
from parc.compiler.verify.device_mesh import MeshSizes, derive_mesh_groups
from tests.backends.torch.specs import valid_spec
from tests.compiled import files_of, verification_codes
from tests.verify.edits import findings

FILES = {
    "fsdp": "fsdp/config.json",
    "torchtitan": "torchtitan/parc_titan.py",
    "accelerate": "accelerate/config.yaml",
}
READ = {"fsdp": fsdp_sizes, "torchtitan": titan_sizes, "accelerate": accelerate_sizes}
SEEDS = {"fsdp": 8, "torchtitan": 3, "accelerate": 4}


@cache
def artifacts(name: str) -> dict[str, str]:
    """Return the files of a random valid spec."""
    return files_of(valid_spec(name, SEEDS[name]))


def sizes_of(files: dict[str, str]) -> MeshSizes:
    """Return the sizes of the only framework among ``files``."""
    name = next(name for name, file in FILES.items() if file in files)
    return READ[name](files[FILES[name]])


@pytest.mark.parametrize("name", FILES)
def test_emitted_files_pass(name: str) -> None:
    assert verification_codes(artifacts(name)) == set()


@pytest.mark.parametrize("name", FILES)
def test_the_file_of_a_framework_is_enough_to_verify(name: str) -> None:
    files = artifacts(name)
    assert verification_codes({FILES[name]: files[FILES[name]]}) <= {"A03"}
    assert "A03" in verification_codes({"x": ""})


def test_a_config_that_cannot_be_parsed_is_not_called_one_without_processes() -> None:
    files = artifacts("accelerate")
    damaged = files[FILES["accelerate"]] + "rdzv_backend: [\n"
    found = findings(files | {FILES["accelerate"]: damaged})
    assert any("the text is not YAML" in one for one in found), found
    assert not any("num_processes" in one for one in found), found


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_coordinate_is_found(name: str) -> None:
    files = dict(artifacts(name))
    lines = files["rankmap.csv"].splitlines()
    place = 7 + lines[0].split(",")[7:].index("tp" if name == "torchtitan" else "dp-shard")
    cells = lines[1].split(",")
    cells[place] = str(int(cells[place]) + 1)
    lines[1] = ",".join(cells)
    files["rankmap.csv"] = "\n".join(lines) + "\n"
    assert "A01" in verification_codes(files)


@pytest.mark.parametrize("name", FILES)
def test_other_sizes_in_the_file_of_the_framework_are_found(name: str) -> None:
    files = dict(artifacts(name))
    sizes = sizes_of(files)
    assert sizes is not None
    text = files[FILES[name]]
    old, new = str(sizes.dp_shard), str(2 * sizes.dp_shard)
    for before, after in (
        (f'"dp_shard": {old}', f'"dp_shard": {new}'),
        (f"data_parallel_shard_degree={old}", f"data_parallel_shard_degree={new}"),
        (f"dp_shard_size: {old}", f"dp_shard_size: {new}"),
    ):
        text = text.replace(before, after)
    assert text != files[FILES[name]]
    assert "A05" in verification_codes(files | {FILES[name]: text})


@pytest.mark.parametrize("degree", [3, 10**6])
def test_expert_groups_that_do_not_fit_a_stage_are_reported(degree: int) -> None:
    files = artifacts("torchtitan")
    text = re.sub(r"expert_parallel_degree=\d+", f"expert_parallel_degree={degree}", files[TITAN])
    # A05: the groups do not fit; A14: the plan has another degree
    assert verification_codes(files | {TITAN: text}) == {"A05", "A14"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ["", "{", "a: [", "ParallelismConfig(", "{}", "[]", "\0", "x"])
def test_a_damaged_file_of_a_framework_is_reported(name: str, text: str) -> None:
    assert verification_codes(artifacts(name) | {FILES[name]: text}) & {"A04", "A05"}


@pytest.mark.parametrize("name", FILES)
def test_other_groups_in_the_document_are_found(name: str) -> None:
    files = dict(artifacts(name))
    tree = json.loads(files["rankmap.json"])
    tree["groups"]["dp"]["count"] += 1
    assert "A06" in verification_codes(files | {"rankmap.json": json.dumps(tree)})
    tree = json.loads(files["rankmap.json"])
    tree["sizes"]["tp"] += 1
    assert "A06" in verification_codes(files | {"rankmap.json": json.dumps(tree)})


def test_accelerate_without_a_mesh_has_replicas_or_one_shard() -> None:
    plain = "distributed_type: MULTI_GPU\nnum_processes: 16\n"
    sizes = sizes_of({"accelerate/config.yaml": plain})
    assert sizes is not None
    assert (sizes.dp_replicate, sizes.dp_shard, sizes.world) == (16, 1, 16)
    sizes = sizes_of({"accelerate/config.yaml": plain.replace("MULTI_GPU", "FSDP")})
    assert sizes is not None
    assert (sizes.dp_replicate, sizes.dp_shard) == (1, 16)


def test_expert_groups_are_the_fastest_ranks_of_a_replica() -> None:
    files = artifacts("torchtitan") | {}
    sizes = sizes_of(files)
    assert sizes is not None
    derived = derive_mesh_groups(sizes, ("ep", "efsdp"))
    inner = sizes.dp_shard * sizes.cp * sizes.tp
    assert derived["ep"].members == list(range(sizes.ep))
    assert derived["efsdp"].members == list(range(0, inner, sizes.ep))
