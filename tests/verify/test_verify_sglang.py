"""Verification of SGLang's script: sound files pass, changes of flags and processes are found."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests import compiled
from tests.compiled import verification_codes
from tests.search.serving_specs import plan_of, spec
from tests.verify.damage import swapped

pytestmark = pytest.mark.usefixtures("few_requests")

V3 = {"precision": "fp8", "max_model_len": 4096, "checkpoint": "deepseek-ai/DeepSeek-V3"}
EMIT = {"emit": ["rankmap", "slurm", "sglang"]}
HOSTS = {"node": "hgx-h200", "racks": [{"name": "a", "nodes": "h[1-4]"}]}
SCRIPT = "sglang/serve.sh"
LAYOUTS: dict[str, dict[str, object]] = {
    "wide": {"dp": 32, "tp": 1, "ep": "on", "replicas": 1, "all2all": "deepep_low_latency"},
    "deep": {"tp": 8, "pp": 2, "dp": 1, "ep": "off", "replicas": 2, "stage_layers": [31, 30]},
    "both": {"tp": 4, "pp": 2, "dp": 4, "ep": "on", "replicas": 1, "redundant_experts": 32},
    "many": {"tp": 4, "dp": 2, "ep": "on", "replicas": 4, "all2all": "deepep_high_throughput"},
}


@cache
def emitted(name: str) -> dict[str, str]:
    """Return the files of DeepSeek-V3 on four hosts with one of the layouts."""
    launch = {"args": ["--enable-metrics"], "env": {"A": "1"}}
    features = {"speculative": {"method": "mtp", "tokens": 2}, "kv_offload": {"size": "100GB"}}
    job = V3 | (features if name == "many" else {})
    tree = spec("deepseek-v3", "hgx-h200", job=job, layout=LAYOUTS[name], launch=launch)
    return compiled.emitted(plan_of(tree | EMIT | {"cluster": HOSTS}))


def without_line(text: str, number: int) -> str:
    """Return ``text`` without one line."""
    lines = text.split("\n")
    return "\n".join([*lines[:number], *lines[number + 1 :]])


@pytest.mark.parametrize("name", LAYOUTS)
def test_emitted_files_pass(name: str) -> None:
    assert verification_codes(emitted(name)) == set()


DEFAULTS = ("--pp-size 1", "--kv-cache-dtype auto", "--deepep-mode auto")
"""Flags with SGLang's own default, whose absence changes nothing."""
OVERRIDDEN = "--ep-size"
"""Flag that SGLang overrides if there is an all-to-all backend."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_missing_flag_and_every_changed_number_is_found(name: str) -> None:
    files = emitted(name)
    lines = files[SCRIPT].split("\n")
    first, last = lines.index("common=("), lines.index(")")
    missed = []
    for at in range(first + 1, last):
        line = lines[at].strip()
        exchanges = "--moe-a2a-backend" in files[SCRIPT]
        if line.startswith("#") or (exchanges and line.startswith(OVERRIDDEN)):
            continue
        changed = [without_line(files[SCRIPT], at)]
        if re.search(r" [0-9]+$", line):
            edited = [*lines[:at], lines[at] + "1", *lines[at + 1 :]]
            changed.append("\n".join(edited))
        missed += [
            line
            for number, text in enumerate(changed)
            if not verification_codes(files | {SCRIPT: text})
            and not (number == 0 and line in DEFAULTS)
        ]
    assert missed == []


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        ("deep", "--node-rank 1", "--node-rank 0", "A05"),
        ("deep", "--nnodes 2", "--nnodes 1", "A07"),
        ("deep", "--tp-size 8", "--tp-size 4", "A05"),
        ("deep", "--pp-size 2", "--pp-size x", "A04"),
        ("deep", '"${hosts[2]}":29501', '"${hosts[2]}":29502', "A18"),
        ("deep", "PARTITION='31,30'", "PARTITION='30,31'", "A14"),
        ("deep", "hosts=(h1 h2", "hosts=(h2 h1", "A02"),
        ("deep", "nodes=4", "nodes=5", "A07"),
        ("wide", "--attn-dp-size 32", "--attn-dp-size 16", "A01"),
        ("wide", "--port 8000", "--port 8001", "A14"),
        ("wide", "start 0,1,2,3,4,5,6,7", "start 0,1,2,3,4,5,6", "A05"),
        ("wide", "--moe-a2a-backend deepep", "--moe-a2a-backend mori", "A14"),
        ("both", "--ep-num-redundant-experts 32", "--ep-num-redundant-experts 16", "A14"),
        ("many", "--deepep-mode normal", "--deepep-mode low_latency", "A14"),
        ("many", "--model-path deepseek-ai/DeepSeek-V3", "--model-path other/model", "A14"),
        ("many", "--enable-metrics", "--enable-mixed-chunk", "A14"),
        ("many", "python3 -m sglang.launch_server", "python3 -m sglang.other", "A04"),
        ("many", "kill -TERM", "kill -KILL", "A18"),
    ],
)
def test_a_change_is_found(name: str, old: str, new: str, code: str) -> None:
    assert code in verification_codes(swapped(SCRIPT, old, new)(emitted(name)))


@pytest.mark.parametrize("size", ["0", "999999999"])
@pytest.mark.parametrize("flag", ["--tp-size", "--pp-size", "--attn-dp-size"])
def test_a_damaged_size_is_reported(flag: str, size: str) -> None:
    files = emitted("both")
    text = re.sub(rf"{flag} \d+", f"{flag} {size}", files[SCRIPT])
    assert verification_codes(files | {SCRIPT: text}) & {"A01", "A04", "A07"}


@pytest.mark.parametrize(
    ("old", "new"),
    [(":8000", ":8001"), ("hosts=(h1 h2", "hosts=(h2 h1"), ("-eq 4", "-eq 3"), ('  "$@"', "")],
)
def test_a_change_of_the_router_is_found(old: str, new: str) -> None:
    files = emitted("many")
    assert "A18" in verification_codes(swapped("sglang/router.sh", old, new)(files))


@pytest.mark.parametrize(("pool", "ports"), [("prefill", 2), ("decode", 0)])
def test_each_prefill_engine_of_a_host_has_its_own_bootstrap_port(pool: str, ports: int) -> None:
    files = pool_files(pool)
    found = re.findall(r"--disaggregation-bootstrap-port (\d+)", files[SCRIPT])
    assert found == ["8998", "8999"][:ports]
    assert "sglang/router.sh" not in files
    assert verification_codes(files) == set()


def pool_files(pool: str) -> dict[str, str]:
    """Return the files of a pool with two engines on one host."""
    tree = spec("llama-3.1-8b", "dgx-h100", job={"pool": pool}, layout={"tp": 4, "replicas": 2})
    return compiled.emitted(plan_of(tree | EMIT))


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("--disaggregation-mode prefill", "--disaggregation-mode decode", "A14"),
        ("--disaggregation-mode prefill", "", "A14"),
        ("bootstrap-port 8999", "bootstrap-port 8998", "A18"),
    ],
)
def test_a_change_of_a_pool_is_found(old: str, new: str, code: str) -> None:
    files = pool_files("prefill")
    assert old in files[SCRIPT]
    assert code in verification_codes(files | {SCRIPT: files[SCRIPT].replace(old, new)})
