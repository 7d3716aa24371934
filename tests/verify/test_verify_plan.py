"""Verification of a plan: sound files pass, damage gets its code, no text raises an exception."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.backends.megatron.stages.layout_string import Stage, format_layout_string
from parc.backends.megatron.verify_arguments import WrittenFlags, read_arguments
from parc.backends.megatron.verify_stages import verify_layers
from parc.backends.preflight.backend import BACKEND as PREFLIGHT
from parc.backends.preflight.backend import EXPECTED
from parc.backends.rankmap.backend import BACKEND
from parc.backends.registry import backend
from parc.backends.shared.render import shell_word
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Layout, Plan
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_plan import verify_artifacts
from tests.compiled import Files
from tests.placement.placement_plans import NVL72, cluster, estimate, layout, with_hosts
from tests.placement.placement_plans import plan as placed
from tests.property_settings import examples
from tests.verify.damage import Edit, dropped, swapped


def plan(*given: Any, **more: Any) -> Plan:
    """Return a plan on the hosts in list order, so that damage is easy to describe."""
    made = placed(*given, **more)
    return with_hosts(made, made.problem.cluster.hosts[: len(made.placement.hosts)])


def args_file(of: Layout, *extra: str) -> str:
    layers = sum(of.split.stage_layers(stage) for stage in range(of.pp))
    lines = [
        f"--num-layers {layers}",
        f"--tensor-model-parallel-size {of.tp}",
        f"--pipeline-model-parallel-size {of.pp}",
        f"--context-parallel-size {of.cp} # a comment",
        f"--expert-model-parallel-size {of.ep}",
        f"--expert-tensor-parallel-size={of.etp}",
        f"--micro-batch-size {of.micro_batch}",
        f"--global-batch-size '{of.dp * 4}'",
        *(["--use-tp-pp-dp-mapping"] if of.order == "tp-cp-ep-pp-dp" else []),
        *extra,
    ]
    body = "\n".join(f"  {line}" for line in lines)
    return f"# shellcheck shell=bash\nMEGATRON_ARGS=(\n{body}\n)\n"


def files_of(of: Plan, *extra: str) -> Files:
    hosts = "".join(f"{host.name}\n" for host in of.placement.hosts)
    nodes, each = len(of.placement.hosts), of.placement.ranks_per_node
    launch = (
        f'first={of.placement.hosts[0].name}\nsource "$here/../megatron/args.sh"\n'
        f"exec torchrun --nnodes={nodes} --nproc-per-node={each} x\n"
    )
    job = f"#SBATCH --nodes={nodes}\n#SBATCH --gpus-per-node=8\nnodes={nodes}\n"
    job += 'source "$PARC_DIR/slurm/order_hosts.sh" "$PARC_DIR/slurm/hostfile"\n'
    lock = {
        "format": 1,
        "decisions": {
            "hosts": [host.name for host in of.placement.hosts],
            "order": of.layout.order,
            "versions": {"megatron": "0.19", "rankmap": "1", "slurm": "24.11", "torchrun": "2.13"},
        },
    }
    return {
        "parc.lock": json.dumps(lock),
        **{artifact.path: artifact.text for artifact in BACKEND.emit(of)},
        "megatron/args.sh": args_file(of.layout, *extra),
        "slurm/hostfile": hosts,
        "slurm/job.sbatch": job,
        "slurm/order_hosts.sh": "true\n",
        "torchrun/launch.sh": launch,
        "torchrun/hosts": hosts,
    }


def codes(files: Files) -> list[str]:
    return [diagnostic.code.removeprefix("PARC-") for diagnostic in messages(files)]


def messages(files: Files):  # type: ignore[no-untyped-def]
    sink = Sink()
    verify_artifacts(files, sink)
    return sink.diagnostics


DENSE = plan(cluster(4, 4), layout(tp=4, pp=2, dp=8))
ROUTED = plan(
    cluster(18, 18, node=NVL72), layout(pp=2, dp=64, ep=64, etp=1), estimate(ep=1e9), experts=64
)
SWAPPED = plan(cluster(4, 4), layout(tp=4, pp=2, dp=8, order="tp-cp-ep-pp-dp"))
FOLDED = plan(cluster(4, 4), layout(tp=4, cp=2, pp=2, dp=4, ep=2, etp=2), experts=8)
INTERLEAVED = plan(cluster(4, 4), layout(tp=8, pp=4, vpp=2, dp=2))
SOUND = files_of(DENSE)


@pytest.mark.parametrize("of", [DENSE, ROUTED, SWAPPED, FOLDED])
def test_sound_files_pass(of: Plan) -> None:
    assert messages(files_of(of)) == ()


def test_interleaved_stages_pass() -> None:
    flag = "--num-virtual-stages-per-pipeline-rank 2"
    assert messages(files_of(INTERLEAVED, flag)) == ()


LEVELS = plan(cluster(4, 4), replace(layout(tp=2, cp=8, pp=2, dp=2), cp_a2a=4))
"""Plan with hierarchical context parallelism."""


def test_two_levels_of_context_ranks_must_match_the_arguments() -> None:
    flag = "--hierarchical-context-parallel-sizes"
    assert messages(files_of(LEVELS, f"{flag} 4 2")) == ()
    assert codes(files_of(LEVELS, f"{flag} 2 4")) == ["A06", "A06"]
    assert codes(files_of(LEVELS, f"{flag} 4 4")) == ["A05"]
    assert codes(files_of(LEVELS, f"{flag} 8")) == ["A05"]
    assert codes(files_of(LEVELS, f"{flag} four 2")) == ["A04"]


ARGS, CSV, JSON = "megatron/args.sh", "rankmap.csv", "rankmap.json"
HOSTS, JOB, LAUNCH = "slurm/hostfile", "slurm/job.sbatch", "torchrun/launch.sh"
ROW_9 = "9,1,r01n02,1,1,r01,r01n02,0,2,0,1,0,1,2"
DAMAGE = [
    ("a coordinate", swapped(CSV, ROW_9, ROW_9[:-1] + "3"), {"A01", "A06"}),
    ("a coordinate that is not a number", swapped(CSV, ROW_9, ROW_9[:-1] + "x"), {"A01", "A06"}),
    (
        "the other order",
        swapped(ARGS, "\n)", "\n  --use-tp-pp-dp-mapping\n)"),
        {"A01", "A05", "A06"},
    ),
    (
        "another tp",
        swapped(ARGS, "tensor-model-parallel-size 4", "tensor-model-parallel-size 2"),
        None,
    ),
    (
        "tp that does not divide the world",
        swapped(ARGS, "model-parallel-size 4", "model-parallel-size 3"),
        {"A05"},
    ),
    (
        "ep on a dense map",
        swapped(ARGS, "expert-model-parallel-size 1", "expert-model-parallel-size 2"),
        None,
    ),
    ("two hosts swapped", swapped(HOSTS, "r01n01\nr01n02", "r01n02\nr01n01"), {"A02"}),
    ("a missing host", swapped(HOSTS, "r01n02\n", ""), {"A02"}),
    ("a host in upper case", swapped("torchrun/hosts", "r01n02", "R01n02"), {"A02"}),
    ("a missing file", dropped(ARGS), {"A03"}),
    ("a missing script", dropped(LAUNCH), {"A03"}),
    ("a missing job", dropped(JOB), {"A03"}),
    ("a missing page", dropped("rankmap.md"), {"A03"}),
    ("another lock", swapped("parc.lock", "r01n02", "r01n09"), {"A02"}),
    ("a lock of another order", swapped("parc.lock", "ep-dp-pp", "ep-pp-dp"), {"A05"}),
    ("a lock without decisions", swapped("parc.lock", "decisions", "x"), {"A04"}),
    ("a missing table", dropped(CSV), {"A03"}),
    ("a missing document", dropped(JSON), {"A03"}),
    ("a missing host file", dropped(HOSTS), {"A03"}),
    ("a missing cell", swapped(CSV, ROW_9, ROW_9[:-2]), {"A04"}),
    ("another header", swapped(CSV, "node_rank", "node-rank"), {"A04"}),
    ("an open quote", swapped(CSV, ROW_9, '"' + ROW_9), {"A04"}),
    ("an open quote in bash", swapped(ARGS, "'", ""), {"A04"}),
    ("text after the array", lambda f: {**f, ARGS: f[ARGS] + "MEGATRON_ARGS+=(x)\n"}, {"A04"}),
    ("an expansion", swapped(ARGS, "--micro-batch-size 1", "--micro-batch-size $X"), {"A04"}),
    ("a number too long", swapped(ARGS, "--num-layers 32", "--num-layers " + "9" * 5000), {"A04"}),
    ("no JSON", swapped(JSON, "{", ""), {"A04"}),
    ("a device twice", swapped(CSV, ROW_9, "9,1,r01n02,0,0" + ROW_9[14:]), {"A05"}),
    (
        "a host twice",
        lambda f: {**f, CSV: f[CSV].replace("r01n02", "r01n01")},
        {"A02", "A05", "A06"},
    ),
    ("a missing rank", swapped(CSV, ROW_9 + "\n", ""), None),
    ("another group", swapped(JSON, '"within":[[4,1]]', '"within":[[4,2]]'), {"A06"}),
    (
        "groups of excessive size",
        swapped(JSON, '"within":[[4,1]]', '"within":[[99999999999,1]]'),
        {"A06"},
    ),
    ("a group of text", swapped(JSON, '"within":[[4,1]]', '"within":[["a"]]'), {"A06"}),
    ("another order", swapped(JSON, "ep-dp-pp", "ep-pp-dp"), {"A06"}),
    ("another size", swapped(JSON, '"etp":4', '"etp":2'), {"A06"}),
    ("another rack", swapped(JSON, '"rack":"r01"', '"rack":"r09"'), {"A06"}),
    ("another world", swapped(JSON, '"world": 64', '"world": 32'), {"A06"}),
    ("more nodes", swapped(LAUNCH, "--nnodes=8", "--nnodes=9"), {"A07"}),
    ("fewer ranks per host", swapped(LAUNCH, "--nproc-per-node=8", "--nproc-per-node=4"), {"A07"}),
    ("another master", swapped(LAUNCH, "first=r01n01", "first=r02n01"), {"A07"}),
    ("fewer nodes", swapped(JOB, "#SBATCH --nodes=8", "#SBATCH --nodes=4"), {"A07"}),
    ("another count", swapped(JOB, "\nnodes=8", "\nnodes=7"), {"A07"}),
    ("fewer GPUs", swapped(JOB, "gpus-per-node=8", "gpus-per-node=4"), {"A07"}),
    ("an additional layer", swapped(ARGS, "--num-layers 32", "--num-layers 33"), {"A08"}),
    ("a batch that is not whole", swapped(ARGS, "'32'", "'36'"), {"A09"}),
]


@pytest.mark.parametrize(("edit", "expected"), [pytest.param(e, c, id=i) for i, e, c in DAMAGE])
def test_damage_gets_its_code(edit: Edit, expected: set[str] | None) -> None:
    found = set(codes(edit(SOUND)))
    assert found == expected if expected is not None else "A05" in found or "A01" in found


def test_a_finding_names_the_first_ranks_and_the_line() -> None:
    (first, *_) = messages(swapped(CSV, ROW_9, ROW_9[:-1] + "3")(SOUND))
    assert first.finding.message == "1 of 64 ranks have a wrong value in the column edp"
    assert first.finding.label == "rank 9 has '3', must be '2'"
    assert (first.span.file, first.span.line) == ("rankmap.csv", 11)


@pytest.mark.parametrize(
    ("flags", "whole"),
    [
        ("--decoder-first-pipeline-num-layers 14", True),
        ("--decoder-first-pipeline-num-layers 14 --decoder-last-pipeline-num-layers 17", False),
        ("--decoder-first-pipeline-num-layers 14 --decoder-last-pipeline-num-layers 18", True),
        ("--account-for-loss-in-pipeline-split", False),
        ("--account-for-loss-in-pipeline-split --account-for-embedding-in-pipeline-split", True),
        ("--pipeline-model-parallel-layout 'Et*15|t*17,L'", True),
        ("--pipeline-model-parallel-layout 'Et*15|(tt|)*8tL'", True),
        ("--pipeline-model-parallel-layout 'Et*3|(t*13|)*2,t*3,L'", True),
        ("--pipeline-model-parallel-layout 'Et*3|(t*13|)*2,t*4,L'", False),
        ("--pipeline-model-parallel-layout 'Et*15|t*16,L'", False),
        ("--pipeline-model-parallel-layout 'Et*15|t*10|t*7,L'", False),
        ("--pipeline-model-parallel-layout 'Et*15|t*17mL'", False),
        ("--mtp-num-layers 1 --pipeline-model-parallel-layout 'Et*15|t*17mL'", True),
        ("--pipeline-model-parallel-layout 'E(t*999999)*999999|L'", False),
        ("--pipeline-model-parallel-layout 'nonsense'", False),
        ("--num-virtual-stages-per-pipeline-rank 3", False),
        ("--hybrid-layer-pattern 'M-M*M-M*M-M*M-M*|M-M*M-M*M-M*M-M*'", True),
        ("--hybrid-layer-pattern 'M-M*M-M*M-M*M-M*|M-M*M-M*M-M*M-M-M'", False),
        ("--hybrid-layer-pattern 'M-M*M-M*M-M*M-M*|M-M*M-M*M-M*M-M|*'", False),
        ("--hybrid-layer-pattern 'M-M*M-M*M-M*M-M*|M-M*M-M*M-M*M-/MM'", False),
    ],
)
def test_layers_are_conserved(flags: str, whole: bool) -> None:
    assert codes(files_of(DENSE, flags)) == ([] if whole else ["A08"])


@given(st.lists(st.integers(1, 9), min_size=2, max_size=40))
def test_each_layout_string_of_the_split_is_read_back(layers: list[int]) -> None:
    last = len(layers) - 1
    text = format_layout_string(tuple(Stage(k == 0, n, 0, k == last) for k, n in enumerate(layers)))
    flags = {
        "num-layers": (str(sum(layers)),),
        "pipeline-model-parallel-size": (str(len(layers)),),
        "pipeline-model-parallel-layout": (text,),
    }
    sink = Sink()
    verify_layers(WrittenFlags(flags), sink)
    assert not sink.diagnostics


def test_each_launch_command_of_a_script_is_checked() -> None:
    probe = "torchrun --nnodes=8 --nproc-per-node=8 check\n"
    files = swapped(LAUNCH, "exec torchrun --nnodes=8", f"{probe}exec torchrun --nnodes=7")(SOUND)
    (found,) = messages(files)
    assert found.code == "PARC-A07"
    assert files[LAUNCH].splitlines()[found.span.line - 1].startswith("exec torchrun --nnodes=7")


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (swapped(EXPECTED, "", ""), set()),
        (swapped(EXPECTED, '"r01n02"', '"r01n09"'), {"A02"}),
        (swapped(EXPECTED, '"world":64', '"world":63'), {"A07"}),
        (swapped(EXPECTED, '"tp":{"size":4', '"tp":{"size":8'), {"A06"}),
        (swapped(EXPECTED, '"tp":{', '"other":{'), {"A06"}),
        (swapped(EXPECTED, '"format":1', '"format":2'), {"A04"}),
    ],
)
def test_the_expectations_of_preflight_must_match_the_rank_map(
    edit: Edit, wanted: set[str]
) -> None:
    files = SOUND | {artifact.path: artifact.text for artifact in PREFLIGHT.emit(DENSE)}
    assert set(codes(edit(files))) == wanted


def test_the_array_is_parsed_like_bash() -> None:
    text = "MEGATRON_ARGS=(\n  --a 'x y' \"it's\" z\\ z --b=1 # no\n  --c 'don'\"'\"'t' ')'\n)\n"
    read = read_arguments(text).flags
    assert read == {"a": ("x y", "it's", "z z"), "b": ("1",), "c": ("don't", ")")}


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_each_quoted_word_is_read_back(value: str) -> None:
    read = read_arguments(f"MEGATRON_ARGS=(\n  --a {shell_word(value)}\n)\n").flags
    assert read == {"a": (value,)} or value.startswith("--")


@pytest.mark.parametrize(
    "text", ["", "MEGATRON_ARGS=(", "MEGATRON_ARGS=(x)", "y\nMEGATRON_ARGS=()"]
)
def test_text_that_is_not_an_array_is_malformed(text: str) -> None:
    with pytest.raises(MalformedFileError):
        read_arguments(text)


def test_files_of_the_launch_backends_pass() -> None:
    hosts = {name: text for name, text in SOUND.items() if name not in (JOB, LAUNCH)}
    problem = replace(DENSE.problem, emit=("megatron", "rankmap", "slurm", "torchrun"))
    versions = (*DENSE.problem.versions, ("slurm", "24.11"), ("torchrun", "2.13"))
    of = replace(DENSE, problem=replace(problem, versions=versions))
    made = {a.path: a.text for name in ("slurm", "torchrun") for a in backend(name).emit(of)}
    assert messages({**hosts, **made}) == ()
    for file in ("megatron/args.sh", "torchrun/hosts", HOSTS):
        assert codes(dropped(file)({**hosts, **made})) == ["A03"]


def test_a_folder_without_files_to_verify_is_reported() -> None:
    assert codes({}) == ["A03"]
    assert codes({"plan.json": "{}"}) == ["A03", "A04"]


@examples(75)
@given(
    st.sampled_from(sorted(SOUND)), st.integers(0, 4000), st.integers(0, 40), st.text(max_size=12)
)
def test_no_damage_raises(file: str, at: int, length: int, new: str) -> None:
    text = SOUND[file]
    at %= len(text)
    messages({**SOUND, file: text[:at] + new + text[at + length :]})


@examples(30)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda s: (
            st.lists(s)
            | st.dictionaries(
                st.sampled_from(
                    ["format", "groups", "hosts", "ranks", "sizes", "tp", "within", "across"]
                ),
                s,
            )
        ),
    )
)
def test_no_document_raises(tree: object) -> None:
    whole = json.loads(SOUND[JSON])
    if isinstance(tree, dict):
        tree = {**whole, **tree, "format": 1}
    messages({**SOUND, JSON: json.dumps(tree)})


@pytest.mark.parametrize(("racks", "dp", "seconds"), [(64, 128, 2), (512, 1024, 15)])
def test_large_maps_are_verified_quickly(racks: int, dp: int, seconds: float) -> None:
    """Measured: 0.06 s and 1 s. A quadratic loop exceeds the limits, a busy machine does not."""
    files = files_of(plan(cluster(*[32] * racks), layout(128, tp=8, pp=16, dp=dp)))
    start = time.process_time()
    assert messages(files) == ()
    assert time.process_time() - start < seconds
