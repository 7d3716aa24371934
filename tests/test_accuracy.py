"""Predictions of the published runs with the shipped parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.accuracy.__main__ import main
from benchmarks.accuracy.cases import Case, make_cases
from benchmarks.accuracy.columns import left_out_sources
from benchmarks.accuracy.groups import (
    class_groups,
    hardware_groups,
    named_groups,
    small_group,
)
from benchmarks.accuracy.hardware_classes import class_row
from benchmarks.accuracy.layouts import balanced_split, expert_tensor_size
from benchmarks.accuracy.pages.cost_page import peer_table, step_time_lines
from benchmarks.accuracy.pages.page import LOCKED, OPEN, REGRET_SETS, locked_table
from benchmarks.accuracy.pages.page_tables import markdown_table, table_under
from benchmarks.accuracy.predict import cost_model_of, estimate_step, layout_with_graphs
from benchmarks.accuracy.regret import mean_and_worst, sweeps
from benchmarks.accuracy.resolve_runs import Resolver
from benchmarks.accuracy.runs import PUBLISHED, read_runs, write_runs
from benchmarks.accuracy.score import score
from benchmarks.accuracy.sources import is_locked, source_of
from benchmarks.accuracy.wide.table import read_training_table
from benchmarks.accuracy.wide.words import (
    features,
    framework,
    network_gbps,
    nics,
    release_features,
    shard,
)
from parc.compiler.cost.step.offload import host_bytes_per_second
from parc.compiler.cost.step.routed_experts import expected_distinct_parts
from tests.project_files import ROOT
from tests.published_runs import cases, ratios

LIMITS = {
    "locked": {
        "FSDP and ZeRO-2/3": 7.0,
        "dense, A100 and H100": 8.1,
        "all dense": 7.4,
        "all MoE": 10.5,
        "small models on one host": 9.0,
    },
    "open": {
        "Selene": 3.0,
        "vTrain multi-node": 7.0,
        # 31 rows of the sixth test with unseen runs are among them; without these, 8.9.
        "FSDP and ZeRO-2/3": 9.8,
        # 85 rows of the fifth test with unseen runs are among them; without these, 6.7 and 7.4.
        "dense, A100 and H100": 7.4,
        "all dense": 8.0,
        # 34 rows of the sixth test; without these, 12.4.
        "all MoE": 13.3,
    },
}
"""Largest mean error of the shipped parameters in %, by sources and group."""
BIG = 20
"""Minimum number of rows in a large group."""
REGRET = {"locked, one host": (5.0, 15.0), "locked, several hosts": (1.5, 5.0), "open": (3.5, 40.0)}
"""Largest mean and largest single regret over a set of sweeps, in %."""


def mape(column: dict[str, float], ids: list[str]) -> float:
    return 100 * score([column[run] for run in ids]).mape


def rows_of(kind: str) -> list[Case]:
    return [case for case in cases() if is_locked(case) == (kind == "locked")]


@pytest.mark.parametrize("kind", LIMITS)
def test_predictions_stay_within_the_error_limits(kind: str) -> None:
    rows = rows_of(kind)
    groups = {**dict(named_groups(rows)), **dict(small_group(rows))}
    found = {group: mape(ratios().shipped, groups[group]) for group in LIMITS[kind]}
    assert {group for group, error in found.items() if error > LIMITS[kind][group]} == set()


@pytest.mark.parametrize("kind", LIMITS)
def test_the_naive_formula_is_less_accurate_on_every_large_group(kind: str) -> None:
    rows = rows_of(kind)
    groups = [*named_groups(rows), *class_groups(rows), *hardware_groups(rows), *small_group(rows)]
    big = [(name, ids) for name, ids in groups if len(ids) >= BIG]
    naive = ratios().naive
    wins = {name for name, ids in big if mape(naive, ids) <= mape(ratios().shipped, ids)}
    assert len(big) >= 8
    assert wins == set()


@pytest.mark.parametrize(("name", "has"), REGRET_SETS)
def test_the_predicted_best_layout_is_close_to_the_measured_best(
    name: str, has: Callable[[Case], bool]
) -> None:
    found = sweeps([case for case in cases() if has(case)])
    assert found
    mean, worst = mean_and_worst([one.regret for one in found])
    assert 100 * mean <= REGRET[name][0]
    assert 100 * worst <= REGRET[name][1]


def test_no_prediction_of_a_locked_row_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    locked = [case.run.id for case in cases() if is_locked(case)]
    assert main(["--rows", "--group", "hopper/transformer-engine"]) == 0
    text = capsys.readouterr().out
    assert not [name for name in locked if f" {name[:44]} " in text]
    assert sum(line[:6].strip().replace(".", "").isdigit() for line in text.splitlines()) > 50


def test_a_row_is_never_predicted_by_a_fit_with_its_source() -> None:
    timed = [case for case in cases() if case.scored]
    pairs = left_out_sources(timed)
    assert sum(len(out) for out, _ in pairs) == len(timed)
    for out, rest in pairs:
        left = {source_of(case.run.source) for case in out}
        assert len(left) == 1
        assert not left & {source_of(case.run.source) for case in rest}
        assert not [case for case in rest if is_locked(case)]


def test_offloaded_activations_cost_two_transfers() -> None:
    case = next(one for one in cases() if one.run.id == "korth-GPT-3-175B-full")
    away = replace(case, run=replace(case.run, overlap=f"{case.run.overlap}+host-checkpoints"))
    kept = 2 * 64 * 2048 * 12288 / 8 * 96 / 8
    rate = host_bytes_per_second(case.problem)
    assert estimate_step(away).total_seconds == pytest.approx(
        estimate_step(case).total_seconds + 2 * kept / rate
    )


def test_a_layout_that_ran_out_of_memory_is_not_preferred() -> None:
    found = sweeps(cases())
    assert sum(sweep.out_of_memory for sweep in found) >= 1
    assert not [sweep.name for sweep in found if sweep.oom_missed]


def test_every_published_run_becomes_a_case_with_the_gpus_of_the_run() -> None:
    runs = read_runs(PUBLISHED / "runs.csv")
    assert len(runs) >= 300
    assert [case.run for case in cases()] == list(runs)
    assert all(case.layout.world == case.run.gpus for case in cases())
    assert all(case.run.source and case.run.cluster for case in cases())


def test_the_compact_table_is_read_back_unchanged(tmp_path: Path) -> None:
    runs = read_runs(PUBLISHED / "runs.csv")
    write_runs(tmp_path / "again.csv", runs)
    written = (tmp_path / "again.csv").read_bytes()
    assert written == (PUBLISHED / "runs.csv").read_bytes()


def test_values_that_a_source_does_not_state_are_assumed_and_counted() -> None:
    run = next(case.run for case in cases() if case.run.id == "korth-Megatron-22B-full")
    silent = replace(run, recompute=None, micro_batch=None, global_batch=None, zero=None)
    silent = replace(silent, sequence_parallel=None, tokens_per_s_per_gpu=1000.0, step_seconds=None)
    made = make_cases((silent,))
    assert set(made.imputed) == {
        *("recompute", "micro_batch", "global_batch", "zero", "sequence_parallel"),
    }
    case = made.cases[0]
    assert case.layout.micro_batches(case.problem.job.global_batch) == 16
    tokens = case.problem.job.global_batch * run.sequence
    assert case.seconds == pytest.approx(tokens / 1000 / run.gpus)


def test_experts_are_split_like_other_weights_if_megatron_is_not_given_their_size() -> None:
    run = replace(cases()[0].run, framework="megatron-lm", source="a paper", gpus=64)
    run = replace(run, tp=4, pp=2, ep=8, etp=None)
    assert expert_tensor_size(run) == 4
    assert expert_tensor_size(replace(run, etp=2)) == 2
    # 4 x 2 x 16 does not divide 64; the recipes of Megatron-Bridge set 1.
    assert expert_tensor_size(replace(run, ep=16)) == 1
    assert expert_tensor_size(replace(run, source="NVIDIA-NeMo/Megatron-Bridge docs")) == 1
    assert expert_tensor_size(replace(run, framework="torchtitan")) == 1


def test_tokens_of_runs_with_local_routing_go_to_the_fewest_possible_ranks() -> None:
    runs = [one for one in cases() if one.run.model.endswith("-local-routing")]
    assert len(runs) == 7
    for case in runs:
        experts = case.problem.model.experts
        assert experts is not None
        assert experts.groups > 1
        fewest = max(1, experts.top_k * case.layout.ep // experts.count)
        assert fewest - 1e-9 < expected_distinct_parts(experts, case.layout.ep) < fewest + 0.5


def test_a_run_whose_sizes_do_not_divide_its_gpus_is_left_out_and_counted() -> None:
    run = replace(cases()[0].run, pp=7)
    made = make_cases((run,))
    assert not made.cases
    assert sum(made.left_out.values()) == 1


WIDE = """\
id,source,model,params_b,layers,hidden,ffn_hidden,heads,kv_heads,head_dim,vocab,experts,topk,\
moe_ffn,seq_len,gpu,num_gpus,gpus_per_node,tp,pp,vpp,cp,ep,etp,dp,sp,zero_stage,fsdp,micro_batch,\
global_batch,precision,recompute,overlap,is_latest,sweep_id,sweep_rank,notes,task,cluster,\
derived_tokens_s_gpu,derived_step_time_s,tier
a,NVIDIA/NeMo docs,Llama-3-8B,8.03,32,4096,14336,32,8,128,128256,,,,8192,h100-80,16,8,1,1,,1,,,\
16,,3,FSDP8,1,128,fp8-cs,,CUDA graph,1,,,,pretrain,8x400G IB,9000,7.28,A
b,paper,Wide-1B,0.953,16,2048,5632,16,16,128,32000,,,,2048,a100-80,8,8,2,1,,1,,,4,1,1,,2,64,bf16,\
full,,1,,,,pretrain,4x100Gb per node,,3.1,B
c,paper,Llama-3-8B,8.03,32,4096,14336,32,8,128,128256,,,,8192,tpuv4,16,4,1,1,,1,,,16,,,,1,128,\
bf16,,,1,,,,pretrain,pod,,7.0,A
d,paper,Llama-3-8B,8.03,32,4096,14336,32,8,128,128256,,,,8192,h100-80,16,8,1,1,,1,,,16,,,,1,128,\
bf16,,,1,,,,pretrain,x,,7.0,C
"""


def test_a_wide_table_is_read_by_the_scoring_rule(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(WIDE, encoding="utf-8")
    table = read_training_table(tmp_path)
    assert [run.id for run in table.runs] == ["a", "b"]
    assert table.left_out == {"no such GPU in the catalog: tpuv4": 1, "not scored": 1}
    llama, wide = table.runs
    assert (llama.model, llama.spec, llama.shard, llama.zero) == ("llama-3-8b", None, 8, 3)
    assert (llama.precision, llama.recipe, llama.overlap) == ("fp8", "fp8-cs", "cuda-graph")
    assert wide.network_gbps == 400
    assert wide.spec is not None
    assert wide.spec.gated
    assert not wide.spec.tied_embeddings


def test_dims_without_a_name_get_the_mlp_that_fits_the_stated_parameters(tmp_path: Path) -> None:
    plain = WIDE.replace("0.953", "0.703")  # one matrix an MLP less, and one table less
    (tmp_path / "train.csv").write_text(plain, encoding="utf-8")
    wide = read_training_table(tmp_path).runs[1]
    assert wide.spec is not None
    assert not wide.spec.gated
    assert wide.spec.tied_embeddings


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("RoCE 1600Gb/s per node", 1600),
        ("8 GPUs/node, 800 Gb/s inter-node per node", 800),
        ("8x200Gb HDR per node", 1600),
        ("4x OmniPath 100Gb per node", 400),
        ("400Gb/s per GPU", None),
        ("network not stated", None),
    ],
)
def test_the_network_bandwidth_is_read_from_text(text: str, gbps: float | None) -> None:
    assert network_gbps(text) == gbps


@pytest.mark.parametrize(("cluster", "count"), [("vTrain configs", 4), ("NVIDIA Selene", 8)])
def test_hosts_with_fewer_nics_have_the_stated_rate(cluster: str, count: int) -> None:
    run = next(case.run for case in cases() if case.run.id == "sc21-7.5B")
    found = Resolver().cluster(replace(run, nics=nics(cluster), network_gbps=800.0))
    assert found is not None
    assert found.node.nics == count
    assert found.node.network_gb_per_s_per_gpu == 800 / 8 / 8


def test_megatron_3_is_read_with_overlap_and_with_gradients_in_fp32() -> None:
    old, new = (
        next(case for case in cases() if case.run.id == name)
        for name in ("sc21-7.5B", "korth-Megatron-22B-full")
    )
    assert release_features(old.run.source, "a100-80") == set()
    found = release_features(new.run.source, "a100-80")
    assert found == {"async-linear"} == set(new.run.overlap.split("+"))
    first, later = (cost_model_of(case).efficiency for case in (old, new))
    assert first.separate_sums
    assert first.shares_first_nic
    assert not first.overlaps_gradients
    assert later.overlaps_gradients
    assert not (later.separate_sums)
    assert not (later.shares_first_nic)
    assert (old.problem.job.gradient_bytes, new.problem.job.gradient_bytes) == (2, 4)


def test_the_launcher_of_nemo_used_flash_attention_2_until_24_05() -> None:
    source = "NVIDIA/NeMo docs (H100: NeMo {}; B200: NeMo 25.04)"
    assert release_features(source.format("24.03.01"), "h100-80") == {"flash-attention-2"}
    assert release_features(source.format("24.09"), "h100-80") == set()
    assert release_features(source.format("24.03.01"), "b200") == set()
    run = next(case for case in cases() if case.run.id == "nemo-longseq-h100-16k")
    assert cost_model_of(run).efficiency.flash_attention_2
    assert not class_row(run.generation).flash_attention_2


def test_graphs_of_published_runs_save_launches_and_no_memory() -> None:
    case = next(one for one in cases() if one.run.id == "gb300vr-qwen3-30b-26.06-bf16-1")
    assert layout_with_graphs(case).cuda_graphs
    assert not case.layout.cuda_graphs
    words = ("", "router-graph", "part-graph", "cuda-graph")
    runs = [replace(case.run, overlap=f"dp-overlap+{word}") for word in words]
    seconds = [estimate_step(replace(case, run=run)).compute_seconds for run in runs]
    assert seconds == sorted(seconds, reverse=True)
    assert len(set(seconds)) == len(words)


def test_nanotron_counts_the_output_projection_as_layers() -> None:
    model = next(case for case in cases() if case.run.id == "nanotron-1.34B-1n").problem.model
    split = balanced_split(model, 2)
    first, last = split.stage_layers(0), split.stage_layers(1)
    assert first + last == model.layers
    layer = 4 * model.hidden**2 + 3 * model.ffn.size * model.hidden
    head = model.vocab * model.hidden
    half = (model.layers * layer + head) / 2
    assert (first - 1) * layer <= half < first * layer
    assert split.chunks[0][0].embedding
    assert split.chunks[1][0].loss


def test_sharding_features_and_frameworks_are_read_from_text() -> None:
    assert shard("jax fsdp=128 x dp=8") == 128
    assert shard("FULL_SHARD") is None
    assert features("EP A2A overlap on; CUDA graph") == {"cuda-graph", "ep-overlap"}
    assert features("EP overlap off") == set()
    assert framework("mosaicml/llm-foundry README") == "composer-fsdp"
    assert framework("a blog") == "other"


def test_rows_are_printed_with_the_terms_of_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "--group", "korth full"]) == 0
    text = capsys.readouterr().out
    assert len(re.findall(r"korth-\S+-full", text)) == 2
    assert "compute=" in text


def test_a_missing_folder_ends_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_the_page_shows_what_the_shipped_parameters_predict() -> None:
    text = (ROOT / "docs" / "accuracy.md").read_text("utf-8")
    locked = markdown_table(locked_table(cases(), ratios()))
    assert table_under(text, LOCKED) == locked, "run make accuracy"
    rows = rows_of("open")
    fitted = table_under(text, OPEN).picked("group", "rows", "fitted", "naive")
    assert fitted.rows == tuple(
        (
            name,
            str(len(ids)),
            *(f"{mape(one, ids):.1f}" for one in (ratios().shipped, ratios().naive)),
        )
        for name, ids in [*named_groups(rows), *class_groups(rows)]
    ), "run make accuracy"


def test_the_readme_states_the_errors_of_locked_sources() -> None:
    accuracy = (ROOT / "docs" / "accuracy.md").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    for text in (step_time_lines(accuracy), peer_table(accuracy)):
        assert f"\n{text}\n" in readme, "run make accuracy"
