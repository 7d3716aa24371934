"""Lint never passes without a check: unknown launchers, job sizes, checks shared with a spec."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.tools.importers.format_fragment import fragment_tree
from parc.compiler.tools.importers.import_files import import_files
from parc.compiler.tools.lint.launch_lines import read_job_size
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from parc.compiler.tools.lint.script import ScriptSink, read_script
from tests.compiled import emitted
from tests.compiled import planned as training_plan
from tests.lint.scripts import MEGATRON, codes
from tests.search.serving_specs import planned
from tests.search.serving_specs import spec as serving_spec

pytestmark = pytest.mark.usefixtures("few_requests")

UNKNOWN = {
    "verl": "python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8\n",
    "lmdeploy": "python3 -m lmdeploy serve api_server org/model --tp 8\n",
    "torchtitan": "torchrun --nproc-per-node 8 train.py --parallelism.tensor_parallel_degree 8\n",
    "bionemo": "train_esm2 --num-gpus 8 --num-attention-heads 20 --hidden-size 1280\n",
    "batch script": "#SBATCH --nodes=2\nsrun ./my_program --tp 8\n",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_launcher_that_parc_does_not_know_is_an_error_unless_allowed(name: str) -> None:
    assert codes(UNKNOWN[name]) == ["I09"]
    assert codes(UNKNOWN[name], LintOptions(allow_unknown=True)) == []
    assert codes(UNKNOWN[name], LintOptions(framework="none")) == []


def test_a_command_of_which_nothing_can_be_checked_is_an_error_unless_allowed() -> None:
    assert codes('vllm serve "$@"\n') == ["I10"]
    assert codes('vllm serve "$@"\n', LintOptions(allow_unknown=True)) == []
    assert codes("vllm serve org/model -tp 2\n") == []


def test_a_launch_without_a_context_length_is_checked_against_the_layout_rules() -> None:
    script = MEGATRON.replace("--max-position-embeddings 4096", "")
    assert script != MEGATRON
    assert "B01" in codes(script.replace("--global-batch-size 128", "--global-batch-size 130"))


PCIE = "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size {tp}\n"


def test_slow_reductions_over_pcie_are_reported_as_in_a_check_of_the_spec() -> None:
    options = LintOptions(cluster="l40s-8")
    assert codes(PCIE.format(tp=8), options) == ["T10"]
    assert codes(PCIE.format(tp=2), LintOptions(cluster="l40s-8", gpus=2)) == []
    assert codes(PCIE.format(tp=2), LintOptions(cluster="dgx-h100", gpus=2)) == []


@pytest.mark.parametrize(
    ("engine_layout", "cluster", "nodes"),
    [
        ({"tp": 8}, "l40s-8", 1),
        ({"tp": 4, "pp": 2}, "l40s-8", 1),
        ({"tp": 8, "pp": 1}, "dgx-h100", 1),
        ({"tp": 16}, "dgx-h100", 2),
    ],
)
def test_lint_reports_what_check_reports_about_the_layout_of_a_service(
    engine_layout: dict[str, int], cluster: str, nodes: int
) -> None:
    tree = serving_spec(
        "llama-3.1-70b",
        cluster,
        nodes,
        layout={**engine_layout, "replicas": 1},
        job={"checkpoint": "meta-llama/Llama-3.1-70B", "max_model_len": 8192},
    )
    plan, sink = planned(tree)
    assert plan is not None
    checked = {one.code.removeprefix("PARC-") for one in sink.diagnostics}
    sizes = {"tp": 1, "pp": 1, **engine_layout}
    command = (
        "vllm serve meta-llama/Llama-3.1-70B --max-model-len 8192 "
        f"--tensor-parallel-size {sizes['tp']} --pipeline-parallel-size {sizes['pp']}\n"
    )
    options = LintOptions(cluster=cluster, gpus=8 * nodes)
    found, skipped = lint_text(command, "run.sh", options)
    linted = {one.code.removeprefix("PARC-") for one in found.diagnostics}
    assert linted == checked - {one.code for one in skipped}


@pytest.mark.parametrize("cluster", ["dgx-h100", "l40s-8"])
@pytest.mark.parametrize("tp", [2, 8, 16])
def test_lint_reports_what_check_reports_about_the_layout_of_a_training_job(
    cluster: str, tp: int
) -> None:
    spec = {
        "parc": 1,
        "name": "x",
        "model": "llama-3.1-8b",
        "cluster": {"node": cluster, "nodes": 4},
        "job": {"sequence_length": 1024, "global_batch": 64, "learning_rate": 1e-4},
        "layout": {"tp": tp, "pp": 1, "cp": 1, "micro_batch": 1, "recompute": "full"},
        "emit": ["megatron"],
    }
    plan, sink = training_plan(spec)
    assert plan is not None, [one.finding.message for one in sink.diagnostics]
    args = emitted(plan)["megatron/args.sh"]
    start = 'torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py "${MEGATRON_ARGS[@]}"\n'
    found, skipped = lint_text(args + start, "run.sh", LintOptions(cluster=cluster))
    linted = {one.code.removeprefix("PARC-") for one in found.diagnostics}
    checked = {one.code.removeprefix("PARC-") for one in sink.diagnostics}
    # M16, G04 and G05 compare with other layouts, which only a search evaluates. G12 is about a
    # precision that a spec leaves open.
    assert linted == checked - {one.code for one in skipped} - {"M16", "G04", "G05", "G12"}


def memory_codes(layout: dict[str, Any], *flags: str) -> tuple[Any, ...]:
    """Return the codes about memory that check and lint report, and those that lint skips."""
    spec: Any = {
        "parc": 1,
        "name": "x",
        "model": "llama-3.1-8b",
        "cluster": {"node": "dgx-h100", "nodes": 4},
        "job": {"sequence_length": 8192, "global_batch": 64, "learning_rate": 1e-4},
        "layout": {"pp": 1, "cp": 1, "zero_stage": 0, "vpp": 1, **layout},
        "emit": ["megatron"],
    }
    codes = {"R17", "G02", "R15"}
    plan, sink = training_plan(spec)
    checked = {one.code.removeprefix("PARC-") for one in sink.diagnostics} & codes
    # A layout that does not fit has no plan, so the flags are those of GPUs with more memory.
    plan = plan or training_plan(spec | {"cluster": {"node": "dgx-b300", "nodes": 4}})[0]
    assert plan is not None
    args = emitted(plan)["megatron/args.sh"].replace("\n)", f"\n{' '.join(flags)}\n)")
    start = 'torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py "${MEGATRON_ARGS[@]}"\n'
    found, skipped = lint_text(args + start, "run.sh", LintOptions(cluster="dgx-h100"))
    linted = {one.code.removeprefix("PARC-") for one in found.diagnostics} & codes
    return checked, linted, {one.code for one in skipped} & codes


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ({"tp": 8, "micro_batch": 1, "recompute": "full"}, set()),
        ({"tp": 1, "micro_batch": 1, "recompute": "full"}, {"R17"}),
        ({"tp": 4, "micro_batch": 4, "recompute": "selective"}, {"G02"}),
    ],
)
def test_lint_reports_what_check_reports_about_memory(
    layout: dict[str, Any], expected: set[str]
) -> None:
    assert memory_codes(layout) == (expected, expected, set())


def test_memory_is_not_checked_if_a_flag_changes_it_in_an_unknown_way() -> None:
    layout = {"tp": 1, "micro_batch": 1, "recompute": "full"}
    checked, linted, skipped = memory_codes(layout, "--optimizer-cpu-offload")
    assert (checked, linted, skipped) == ({"R17"}, set(), {"R17", "G02", "R15"})


@pytest.mark.parametrize(
    ("directives", "flags", "size"),
    [
        ("--nodes=4 --gpus-per-node=8", "--nnodes $SLURM_NNODES", (4, 8)),
        ("-N 4 --gres=gpu:h100:8", "--nproc-per-node $SLURM_GPUS_ON_NODE", (4, 8)),
        ("--nodes=2 --gpus=8", "", (2, 4)),
        ("--nodes=4 --gres=shard:8", "", (4, None)),
        ("--nodes=2 --ntasks-per-node=4 --gpus-per-task=1", "", (2, 4)),
        ("--nodes=4 --gpus-per-node=8", "--nnodes 2", (2, 8)),
        ("--nodes=4 --gpus-per-node=8", "--nnodes ${NNODES:-1}", (None, 8)),
        ("--gpus-per-node=8", "", (None, 8)),
    ],
)
def test_directives_give_the_size_of_a_job_unless_a_launcher_says_otherwise(
    directives: str, flags: str, size: tuple[int | None, int | None]
) -> None:
    script = read_script(f"#SBATCH {directives}\nsrun torchrun {flags} train.py\n", "run.sh")
    found = read_job_size(script)
    assert (found.nodes, found.gpus_per_node) == size


@pytest.mark.parametrize("text", ["--num_gpus 8 --num_nodes 2", "--num_nodes=2 --num_gpus=8"])
def test_the_launcher_of_a_backend_gives_the_size_of_a_job(text: str) -> None:
    script = f"deepspeed {text} pretrain_gpt.py --tensor-model-parallel-size 2\n"
    found = read_job_size(read_script(script, "run.sh"))
    assert (found.nodes, found.gpus_per_node) == (2, 8)
    found = import_files("megatron-args", [(script, "run.sh")], Sink())
    assert found is not None
    spec = fragment_tree(found.fragment, Sink())
    assert spec["cluster"] == {"node": {"gpus_per_node": 8}, "nodes": 2}


@pytest.mark.parametrize(("kind", "field"), [("alibi", "none"), ("mrope", "rope"), ("$P", None)])
def test_a_position_embedding_without_a_field_is_not_imported_as_learned(
    kind: str, field: str | None
) -> None:
    flags = f"--num-layers 2 --hidden-size 64 --position-embedding-type {kind}"
    text = f"torchrun pretrain_gpt.py {flags} --max-position-embeddings 64\n"
    found = import_files("megatron-args", [(text, "run.sh")], Sink())
    assert found is not None
    assert fragment_tree(found.fragment, Sink())["model"]["position"].get("kind") == field


@pytest.mark.parametrize(("nodes", "found"), [(1, []), (2, ["L09"])])
def test_localhost_is_no_rendezvous_of_several_hosts(nodes: int, found: list[str]) -> None:
    script = f"M=localhost\ntorchrun --nnodes {nodes} --node_rank $R --master_addr $M run.py\n"
    assert codes(script, LintOptions(framework="none")) == found


def test_no_fix_copies_an_interface_that_reaches_no_other_host() -> None:
    script = "export NCCL_SOCKET_IFNAME={}\ntorchrun --nnodes 2 run.py\n"
    options = LintOptions(framework="none")
    sink, _ = lint_text(script.format("lo"), "run.sh", options)
    fixes = {one.code: one.finding.fix for one in sink.diagnostics}
    assert fixes == {"PARC-N01": "", "PARC-N02": ""}
    sink, _ = lint_text(script.format("ib0"), "run.sh", options)
    assert [one.finding.fix for one in sink.diagnostics] == ["export GLOO_SOCKET_IFNAME=ib0"]


def test_a_fix_removes_only_flags_that_the_script_has() -> None:
    sink = ScriptSink("run.sh", "--a 1\n")
    spans = {"layout.pp": Span("run.sh", 1, 1, 3)}
    sink.locate(spans, {"layout.pp": "--a", "layout.pipeline_layout": "--b"}, spans["layout.pp"])
    for path in ("layout.pp", "layout.pipeline_layout"):
        sink.report("P01", Finding("wrong", fix=f"remove {path}, so that PARC chooses it"))
    assert [one.finding.fix for one in sink.diagnostics] == ["remove --a", ""]


def test_a_warning_about_the_model_does_not_end_the_checks() -> None:
    options = LintOptions(model="bloom-176b")
    sink, _ = lint_text(MEGATRON, "run.sh", options)
    assert "PARC-K06" in [one.code for one in sink.diagnostics]
    assert "B01" in sink.checked
