"""Checking programs accept good cases, reject bad ones, and list ignored settings."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.checker_processes import run_cases
from tests.conformance.good_inputs import (
    ACCELERATE,
    DEEPSPEED,
    GOOD_LWS,
    LLAMA_70B,
    QWEN_MOE,
    titan_module,
)
from tests.conformance.tool_checkers import (
    accelerate_verdicts,
    deepspeed_verdicts,
    kubernetes_verdicts,
    launch_verdicts,
    mesh_verdicts,
    torchtitan_verdicts,
    vllm_verdicts,
)

pytestmark = pytest.mark.conformance
Case = dict[str, Any]
SHARED = Path(__file__).with_name("shared")


def test_a_case_that_ends_its_process_or_breaks_the_checker_is_a_fault(tmp_path: Path) -> None:
    program = tmp_path / "checker.py"
    program.write_text(
        f"import os, sys\nsys.path.insert(0, {str(SHARED)!r})\n"
        "from case_lines import answer_cases\n"
        "def check(case, verdict):\n"
        "    print('noise')\n"
        "    if case['do'] == 'die': os._exit(3)\n"
        "    if case['do'] == 'miss': import no_such_module\n"
        "    if case['do'] == 'reject': raise ValueError('no')\n"
        "answer_cases(check)\n"
    )
    cases = [{"name": do, "do": do} for do in ("die", "miss", "reject", "accept")]
    outcomes = {
        v["name"]: (v["accepted"], v["fault"])
        for v in run_cases([sys.executable, str(program)], cases)
    }
    assert outcomes == {
        "die": (False, True),
        "miss": (False, True),
        "reject": (False, False),
        "accept": (True, False),
    }


def test_the_deepspeed_checker_accepts_rejects_and_lists_keys_that_are_never_read() -> None:
    zero = {"stage": 3, "zero_hpz_partition_size": 8}
    offload = {"stage": 2, "offload_param": {"device": "cpu"}}
    cases = [
        {"config": DEEPSPEED | {"zero_optimization": zero}, "world": 16, "groups": True},
        {"config": DEEPSPEED | {"train_batch_size": 100}, "world": 16},
        {"config": DEEPSPEED | {"zero_optimization": {"stge": 3}}, "world": 16},
        {"config": DEEPSPEED | {"fp16": {"enabled": True}}, "world": 16},
        {"config": DEEPSPEED | {"elasticity": {"enabled": True}}, "world": 16},
        {
            "config": DEEPSPEED
            | {"foo": 1, "aio": {"thread_count": 4}, "pipeline": {"schedule": "1f1b"}},
            "world": 16,
        },
        {"config": DEEPSPEED | {"gradient_clipping": "auto"}, "world": 16},
        {"config": DEEPSPEED | {"zero_optimization": offload}, "world": 16},
        {"config": DEEPSPEED | {"optimizer": {"type": "AdamW", "params": {"rl": 1}}}, "world": 16},
    ]
    verdicts = deepspeed_verdicts(cases)
    assert [v["accepted"] for v in verdicts] == [True, *[False] * 4, True, True, True, False]
    assert verdicts[0]["resolved"]["train_batch_size"] == 128
    assert verdicts[0]["groups"]["hpz"] == list(range(8))
    ignored = ["aio.thread_count", "foo", "pipeline.schedule"]
    assert [v["keys_ignored"] for v in verdicts[5:8]] == [ignored, ["gradient_clipping"], []]
    assert verdicts[7]["keys_without_effect"] == ["zero_optimization.offload_param"]


def test_the_deepspeed_engine_rejects_configs_that_the_parser_accepts() -> None:
    zero2, zero3 = ({"zero_optimization": {"stage": n}} for n in (2, 3))
    tensor = {"tensor_parallel": {"autotp_size": 2}}
    ulysses = {"data_parallel_size": 4, "sequence_parallel_size": 4}
    cases: list[Case] = [
        {"config": DEEPSPEED, "pp": 4, "mp": 2, "rank": 5, "groups": True},
        {"config": DEEPSPEED | zero2, "pp": 2},
        {"config": DEEPSPEED | zero3, "ep": 4},
        {"config": DEEPSPEED | zero2, "ep": 4, "rank": 9, "groups": True},
        {"config": DEEPSPEED | tensor, "rank": 5, "groups": True},
        {"config": DEEPSPEED | ulysses, "rank": 5, "groups": True},
    ]
    verdicts = deepspeed_verdicts([case | {"world": 16, "engine": True} for case in cases])
    assert [v["accepted"] for v in verdicts] == [True, False, False, True, True, True]
    assert verdicts[0]["engine"]["class"] == "PipelineEngine"
    assert verdicts[0]["groups"] == {"pipe": [1, 5, 9, 13], "data": [5, 7], "model": [4, 5]}
    assert {verdicts[1]["stage"], verdicts[2]["stage"]} == {"engine"}
    assert (verdicts[3]["groups"]["ep"], verdicts[3]["groups"]["edp"]) == (
        [8, 9, 10, 11],
        [1, 5, 9, 13],
    )
    assert (verdicts[4]["groups"]["autotp"], verdicts[5]["groups"]["sp"]) == ([4, 5], [4, 5, 6, 7])
    # AutoTP trains half of the batch that the config was checked against, without a message
    engine = verdicts[4]["engine"]
    assert (engine["dp"], engine["train_batch_size"], engine["real_batch_size"]) == (8, 128, 64)


def test_the_torch_device_mesh_is_row_major_and_flattens_pairs() -> None:
    wide = [["pp", 16], ["dp_replicate", 8], ["dp_shard", 32], ["cp", 2], ["tp", 8]]
    cases = [
        {"mesh": [["pp", 2], ["dp", 2], ["cp", 2], ["tp", 2]], "ranks": [5], "digests": True},
        {"mesh": wide, "ranks": [40000], "together": [["dp_shard", "cp"]]},
        {"mesh": [["pp", 0], ["dp", 2]]},
    ]
    verdicts = mesh_verdicts(cases)
    assert [v["accepted"] for v in verdicts] == [True, True, False]
    groups = verdicts[0]["groups"]["5"]
    assert (groups["dp"], groups["dp-cp"]) == ([1, 5], [1, 3, 5, 7])
    assert len(verdicts[0]["digests"]) == 4
    assert verdicts[1]["groups"]["40000"]["dp_shard-cp"] == list(range(39936, 40448, 8))


def test_launchers_number_ranks_in_hostfile_order_and_reject_unknown_flags() -> None:
    static = ["--nnodes", "4", "--nproc-per-node", "8", "--node-rank", "2", "--master-addr", "h1"]
    cases = [
        {"launcher": "torchrun", "argv": [*static, "train.py", "--lr", "1"]},
        {"launcher": "torchrun", "argv": [*static, "--node-ranks", "2", "train.py"]},
        {"launcher": "deepspeed", "argv": ["train.py"], "hostfile": "b slots=2\na slots=2\n"},
        {"launcher": "deepspeed", "argv": ["train.py"], "hostfile": "b 2\n"},
    ]
    verdicts = launch_verdicts(cases)
    assert [v["accepted"] for v in verdicts] == [True, False, True, False]
    assert verdicts[0]["resolved"]["rdzv_backend"] == "static"
    assert verdicts[2]["resolved"]["hosts"] == [["b", [0, 1]], ["a", [0, 1]]]


def test_torchtitan_checks_attributes_sizes_and_schedules_unless_they_are_unused() -> None:
    pp = "p.pipeline_parallel_degree = 4"
    cases = [
        {"module_text": titan_module("p.tensor_parallel_degree = 8"), "world": 256},
        {"module_text": titan_module("p.tensor_paralel_degree = 8"), "world": 256},
        {"module_text": titan_module("p.data_parallel_shard_degree = 3"), "world": 256},
        {"module_text": titan_module("p.tensor_parallel_degree = 16"), "world": 256},
        {"module_text": titan_module(pp, "c.training.local_batch_size = 2"), "world": 256},
        {"module_text": titan_module("import no_such_module"), "world": 256},
        {"module_text": titan_module("p.pipeline_parallel_schedule = 'none'"), "world": 256},
        {"module_text": titan_module(pp, "p.pipeline_parallel_schedule = 'none'"), "world": 256},
    ]
    verdicts = torchtitan_verdicts(cases)
    stages = ["", "parse", "dims", "model", "stages", "parse", "", "stages"]
    assert [v["stage"] for v in verdicts] == stages
    assert verdicts[0]["sizes"]["dp_shard"] == 32
    assert verdicts[0]["groups"]["tp"] == list(range(8))


def test_accelerate_rejects_unknown_top_level_keys_and_ignores_unknown_nested_keys() -> None:
    typo = ACCELERATE.replace("fsdp_config:", "fsdp_config:\n  fsdp_reshard_typo: 1")
    cases = [
        {"yaml_text": ACCELERATE, "args": ["--machine_rank", "3"]},
        {"yaml_text": ACCELERATE + "foo: 1\n"},
        {"yaml_text": ACCELERATE.replace("num_processes: 64", "num_processes: 128")},
        {"yaml_text": ACCELERATE.replace("after_forward: true", "after_forward: FULL_SHARD")},
        {"yaml_text": ACCELERATE, "args": ["--machine_ranks", "3"]},
        {"yaml_text": typo},
    ]
    verdicts = accelerate_verdicts(cases)
    assert [v["stage"] for v in verdicts] == ["", "parse", "parallel", "plugin", "parse", ""]
    resolved = verdicts[0]["resolved"]
    assert (resolved["node_rank"], resolved["nproc_per_node"], resolved["tp"]) == (3, "8", 8)
    assert verdicts[0]["groups"]["dp_shard_cp"] == [0, 8, 16, 24]
    assert (verdicts[0]["keys_ignored"], verdicts[5]["keys_ignored"]) == (
        [],
        ["fsdp_config.fsdp_reshard_typo"],
    )


def test_kubernetes_rejects_wrong_types_enums_and_rules_and_drops_unknown_keys() -> None:
    text = json.dumps(GOOD_LWS)
    texts = [
        text,
        text.replace('"size": 4', '"size": "four"'),
        text.replace("RecreateGroupOnPodRestart", "Sometimes"),
        text.replace('"containerPort": 8000', '"containerPort": "http"'),
        text.replace('"nvidia.com/gpu": "8"', '"nvidia.com/gpu": "8.5"'),
        text.replace("podset-required-topology", "podset-slice-required-topology"),
        text.replace("startupPolicy", "startUpPolicy"),
        text.replace('"containers"', '"priority_class": "x", "containers"'),
    ]
    verdicts = kubernetes_verdicts([{"manifest": json.loads(text)} for text in texts])
    stages = ["", "schema", "schema", "model", "rules", "rules", "", ""]
    assert [v["stage"] for v in verdicts] == stages
    assert verdicts[0]["keys_ignored"] == []
    assert verdicts[6]["keys_ignored"] == ["spec.startUpPolicy"]
    where = "spec.leaderWorkerTemplate.workerTemplate.spec.priority_class"
    assert verdicts[7]["keys_ignored"] == [where]


@pytest.mark.skipif(
    not os.environ.get("PARC_CONFORMANCE_KUBERNETES"), reason="tests/conformance/run installs it"
)
def test_the_schemas_of_each_kubernetes_release_reject_unknown_keys() -> None:
    good = {"manifest": GOOD_LWS, "releases": ["1.32", "1.36"]}
    text = json.dumps(GOOD_LWS).replace('"containers"', '"priority_class": "x", "containers"')
    good_verdict, bad_verdict = kubernetes_verdicts([good, {**good, "manifest": json.loads(text)}])
    assert good_verdict["accepted"]
    assert bad_verdict["stage"] == "openapi"
    assert bad_verdict["error"].startswith("Rejected: Kubernetes 1.32: spec.leaderWorkerTemplate")


def test_vllm_rejects_unknown_flags_and_wrong_sizes_but_not_too_many_engines() -> None:
    def case(words: str, **more: Any) -> Case:
        return {"argv": ["model", *words.split()], "config": LLAMA_70B} | more

    nodes = "--nnodes 4 --node-rank 3 --master-addr 10.0.0.1 --headless"
    cases = [
        case(f"-tp 8 -pp 4 {nodes}", env={"VLLM_PP_LAYER_PARTITION": "19,21,21,19"}),
        case("-tp 8 --no-such-flag"),
        case("-tp 6"),
        case("-tp 16"),
        case(f"-tp 8 -pp 4 {nodes}", env={"VLLM_PP_LAYER_PARTITION": "20,20,20,19"}),
        case("-tp 4 -dp 4"),  # sixteen GPUs on a host of eight
    ]
    verdicts = vllm_verdicts(cases)
    assert [v["stage"] for v in verdicts] == ["", "parse", "config", "config", "config", ""]
    sizes = verdicts[0]["sizes"]
    assert (sizes["pp_layers"], sizes["node_ranks"]) == ([19, 21, 21, 19], list(range(24, 32)))
    assert len(verdicts[5]["sizes"]["node_ranks"]) == 16


def test_vllm_expert_groups_span_data_parallel_replicas() -> None:
    words = ["model", "-tp", "2", "-pp", "2", "-dp", "2", "--enable-expert-parallel"]
    (verdict,) = vllm_verdicts([{"argv": words, "config": QWEN_MOE, "groups": True}])
    groups = {name: sorted(verdict["groups"][name]) for name in ("tp", "pp", "dp", "ep")}
    assert groups == {
        "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
        "pp": [[0, 2], [1, 3], [4, 6], [5, 7]],
        "dp": [[0, 4], [1, 5], [2, 6], [3, 7]],
        "ep": [[0, 1, 4, 5], [2, 3, 6, 7]],
    }
