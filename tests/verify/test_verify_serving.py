"""Verification of serving jobs: sound files pass, each change is found."""

from __future__ import annotations

import re

import pytest

from parc.backends.shared.serving.verify_serve_script import ScriptProcess
from tests import compiled
from tests.compiled import verification_codes
from tests.search.serving_specs import plan_of, spec
from tests.verify.damage import swapped

pytestmark = pytest.mark.usefixtures("few_requests")

V3 = {"precision": "fp8", "max_model_len": 4096}
EMIT = {"emit": ["rankmap", "slurm", "vllm"]}
HOSTS = {"node": "hgx-h200", "racks": [{"name": "a", "nodes": "h[1-4]"}]}


def emitted(layout: dict[str, object], **launch: str) -> dict[str, str]:
    """Return the files of DeepSeek-V3 on four hosts."""
    tree = spec("deepseek-v3", "hgx-h200", job=V3, layout=layout, launch=launch)
    return compiled.emitted(plan_of(tree | EMIT | {"cluster": HOSTS}))


WIDE: dict[str, object] = {"dp": 32, "tp": 1, "ep": "on", "replicas": 1}
DEEP: dict[str, object] = {"tp": 8, "pp": 2, "ep": "off", "replicas": 2}
MANY: dict[str, object] = {"tp": 8, "replicas": 4}
LONG: dict[str, object] = {"tp": 8, "pp": 2, "dp": 2, "ep": "on", "replicas": 1}


@pytest.mark.parametrize("layout", [WIDE, DEEP, MANY, LONG], ids=["wide", "deep", "many", "long"])
@pytest.mark.parametrize("balancer", ["internal", "external"])
def test_emitted_files_pass(layout: dict[str, object], balancer: str) -> None:
    assert verification_codes(emitted(layout, load_balancer=balancer)) == set()


def test_each_flag_is_read_a_bounded_number_of_times_per_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A service may have tens of thousands of processes, so that the time must be linear in them.
    read = ScriptProcess.number
    calls = 0

    def counted(process: ScriptProcess, flag: str, default: int) -> int:
        nonlocal calls
        calls += 1
        return read(process, flag, default)

    monkeypatch.setattr(ScriptProcess, "number", counted)
    tree = spec("llama-3.1-8b", "hgx-h200", layout={"tp": 1, "replicas": 32})
    files = compiled.emitted(plan_of(tree | EMIT | {"cluster": HOSTS}))
    assert verification_codes(files) == set()
    assert calls < 32 * 32


@pytest.mark.parametrize(
    ("layout", "file", "old", "new", "code"),
    [
        (
            WIDE,
            "vllm/serve.sh",
            "--data-parallel-start-rank 8",
            "--data-parallel-start-rank 9",
            "A05",
        ),
        (WIDE, "vllm/serve.sh", "--data-parallel-size 32", "--data-parallel-size 16", "A07"),
        (WIDE, "vllm/serve.sh", "start 0,1,2,3,4,5,6,7", "start 0,1,2,3,4,5,6", "A05"),
        (WIDE, "vllm/serve.sh", "hosts=(h1 h2", "hosts=(h2 h1", "A02"),
        (WIDE, "vllm/serve.sh", "nodes=4", "nodes=3", "A07"),
        (WIDE, "vllm/serve.sh", "nodes=4", "nodes=3", "A18"),
        (DEEP, "vllm/serve.sh", "nodes=4", "nodes=5", "A18"),
        (WIDE, "vllm/serve.sh", "common=(", "shared=(", "A04"),
        (DEEP, "vllm/serve.sh", "--node-rank 1", "--node-rank 0", "A05"),
        (DEEP, "vllm/serve.sh", "--tensor-parallel-size 8", "--tensor-parallel-size 4", "A05"),
        (DEEP, "vllm/serve.sh", "--pipeline-parallel-size 2", "--pipeline-parallel-size x", "A04"),
        (DEEP, "rankmap.csv", "\n9,1,h2,1,1,a,h2,0,0,1,0,1", "\n9,1,h2,1,1,a,h2,0,0,0,0,1", "A01"),
        (DEEP, "rankmap.csv", "\n9,1,h2,1,1", "\n9,1,h3,1,1", "A05"),
        (DEEP, "rankmap.json", '"tp": {"across"', '"tq": {"across"', "A06"),
        (DEEP, "slurm/hostfile", "h1\nh2", "h2\nh1", "A02"),
        (DEEP, "slurm/job.sbatch", "--nodes=4", "--nodes=3", "A07"),
        (DEEP, "parc.lock", '"h1"', '"h9"', "A02"),
    ],
)
def test_a_change_is_found(
    layout: dict[str, object], file: str, old: str, new: str, code: str
) -> None:
    files = emitted(layout)
    assert code in verification_codes(swapped(file, old, new)(files))


def test_a_missing_script_is_reported() -> None:
    files = emitted(DEEP)
    del files["vllm/serve.sh"]
    assert verification_codes(files) == {"A03"}


RAY = {"emit": ["rankmap", "ray"]}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("", "", ""),
        ('"nodes": 4', '"nodes": 3', "A07"),
        ('"h1",', '"h2",', "A02"),
        ("PLAN = ", "PLANS = ", "A04"),
        ('"engines": [', '"engines": [0, ', "A04"),
        ('"engines": [', '"engines": [[0], ', "A07"),
    ],
)
def test_the_plan_of_a_ray_program_must_match_the_rank_map(old: str, new: str, code: str) -> None:
    tree = spec("deepseek-v3", "hgx-h200", job=V3, layout=DEEP)
    files = compiled.emitted(plan_of(tree | RAY | {"cluster": HOSTS}))
    found = verification_codes(swapped("ray/serve.py", old, new)(files))
    # A14 as well, because plan.json contains the hosts and the engines.
    assert found - {"A14"} == ({code} if code else set())


@pytest.mark.parametrize("size", ["0", "999999999"])
@pytest.mark.parametrize("flag", ["--tensor-parallel-size", "--pipeline-parallel-size"])
def test_a_damaged_degree_is_reported_quickly(flag: str, size: str) -> None:
    files = emitted(DEEP)
    text = re.sub(rf"{flag} \d+", f"{flag} {size}", files["vllm/serve.sh"])
    assert verification_codes(files | {"vllm/serve.sh": text}) & {"A04", "A07"}


def test_the_ranks_of_an_unknown_engine_are_not_verified_silently() -> None:
    files = emitted(DEEP)
    lone = {"rankmap.csv": files["rankmap.csv"], "rankmap.json": files["rankmap.json"]}
    assert "A13" not in verification_codes(lone), "rankmap.json names the engine"
    assert "A13" in verification_codes({"rankmap.csv": files["rankmap.csv"]})


POOL = {"tp": 4, "replicas": 2}
MANY_PORTS = "VLLM_NIXL_SIDE_CHANNEL_PORT=$((5600 + 100 *"


@pytest.mark.parametrize("pool", ["prefill", "decode"])
@pytest.mark.parametrize("interface", [{}, {"network_interface": "eth0"}], ids=["any", "named"])
def test_emitted_files_of_a_pool_pass(pool: str, interface: dict[str, str]) -> None:
    assert verification_codes(pool_files(pool, **interface)) == set()


def pool_files(pool: str, **launch: str) -> dict[str, str]:
    """Return the files of a pool with two engines on one host."""
    tree = spec("llama-3.1-8b", "dgx-h100", job={"pool": pool}, layout=POOL, launch=launch)
    return compiled.emitted(plan_of(tree | EMIT))


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        ("kv_producer", "kv_consumer", {"A14"}),
        ("NixlConnector", "LMCacheConnectorV1", {"A14"}),
        (MANY_PORTS, MANY_PORTS.replace("100", "1"), {"A18"}),
        ("export VLLM_NIXL_SIDE_CHANNEL_HOST=$address", "true", {"A18"}),
        ("address=$(hostname -I", "address=$(hostname -i", {"A18"}),
    ],
)
def test_a_change_of_a_pool_is_found(old: str, new: str, codes: set[str]) -> None:
    files = pool_files("prefill")
    assert old in files["vllm/serve.sh"]
    text = files["vllm/serve.sh"].replace(old, new)
    assert verification_codes(files | {"vllm/serve.sh": text}) - {"A15"} == codes


def test_a_pool_without_its_flag_is_found() -> None:
    files = pool_files("decode")
    lines = files["vllm/serve.sh"].split("\n")
    text = "\n".join(line for line in lines if "--kv-transfer-config" not in line)
    assert {"A14", "A18"} <= verification_codes(files | {"vllm/serve.sh": text})
