"""``parc import``: fragments for a spec, and diagnostics about files."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir.serialize import as_json
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.model_spec import ModelSpec
from parc.compiler.tools.importers.import_files import import_formats
from parc.compiler.tools.importers.site_fragment import site_of_fragment
from parc.compiler.topology.readers.reader_state import Fragment
from tests.cli.specs import SPEC, parc
from tests.compiled import example_files
from tests.goldens import emitted_by

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    path.parents[2]
    for path in ROOT.glob("examples/*/expected/megatron/args.sh")
    if (path.parents[1] / "slurm/job.sbatch").is_file()
)
TREE = """\
SwitchName=leaf1 Nodes=r01n[01-02]
SwitchName=leaf2 Nodes=r02n[01-02]
SwitchName=core Switches=leaf[1-2]
"""
FRAGMENT = """\
# parc import slurm-topology
cluster:
  racks:
    - {name: leaf1, nodes: "r01n[01-02]", above: [core]}
    - {name: leaf2, nodes: "r02n[01-02]", above: [core]}
"""


def written(folder: Path, text: str, name: str = "topology.conf") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_the_command_accepts_and_lists_every_kind_with_a_reader() -> None:
    command = import_module("parc.compiler.cli.commands.import")
    assert set(command.KINDS) == {"auto", *import_formats()}
    assert [kind for kind in import_formats() if kind not in command.command.help] == []


def test_a_fragment_is_printed_and_goes_into_a_spec(tmp_path: Path) -> None:
    result = parc("import", "slurm-topology", written(tmp_path, TREE))
    assert (result.exit_code, result.stdout, result.stderr) == (0, FRAGMENT, "")
    racks = SPEC[SPEC.index("  racks:") : SPEC.index("job:")]
    spec = SPEC.replace(racks, FRAGMENT.partition("cluster:\n")[2])
    assert parc("check", written(tmp_path, spec, "spec.yaml")).exit_code == 0


def test_the_kind_is_detected_and_standard_input_is_read() -> None:
    result = parc("import", "auto", "-", given=TREE)
    assert (result.exit_code, result.stdout) == (0, FRAGMENT)


def test_the_text_decoder_of_a_vision_model_is_selected_after_its_file_name(tmp_path: Path) -> None:
    text = {"model_type": "qwen3_vl_text", "hidden_size": 4096}
    given = json.dumps({"model_type": "qwen3_vl", "text_config": text})
    whole = written(tmp_path, given, "config.json")
    result = parc("import", "hf-config", f"{whole}#text_config")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "family: qwen3_vl_text" in result.stdout
    refused = parc("import", "hf-config", whole)
    assert refused.exit_code == 1
    assert "#text_config" in refused.stderr
    absent = parc("import", "hf-config", f"{whole}#text")
    assert "the config has no mapping under the key 'text'" in absent.stderr


def test_json_has_the_same_fragment_and_the_notes(tmp_path: Path) -> None:
    result = parc("import", "auto", written(tmp_path, TREE), "--format", "json")
    document = json.loads(result.stdout)
    assert document["format"] == 1
    assert document["spec"] == YAML(typ="safe").load(FRAGMENT)
    assert document["notes"] == []


@pytest.mark.parametrize("style", ["yaml", "json"])
def test_only_a_fragment_of_parc_is_overwritten(tmp_path: Path, style: str) -> None:
    source, target = written(tmp_path, TREE), tmp_path / "out"
    words = ("import", "auto", source, "-o", str(target), "--format", style)
    for _ in range(2):
        result = parc(*words)
        assert (result.exit_code, result.stdout) == (0, f"wrote {target}\n")
    printed = parc("import", "auto", source, "--format", style).stdout
    assert target.read_text("utf-8") == printed
    target.write_text("mine\n", encoding="utf-8")
    result = parc(*words)
    assert result.exit_code == 2
    assert "was not written by parc import; it is not overwritten" in result.stderr
    assert target.read_text("utf-8") == "mine\n"


def test_several_files_become_one_fragment(tmp_path: Path) -> None:
    hosts = [{"id": f"i-{n}", "networkPath": [{"id": f"leaf{n}"}]} for n in (1, 2)]
    files = [written(tmp_path, json.dumps({"data": [h]}), f"{h['id']}.json") for h in hosts]
    result = parc("import", "lambda", *files)
    assert result.exit_code == 0
    assert result.stdout.endswith("{name: leaf1, nodes: i-1}\n    - {name: leaf2, nodes: i-2}\n")


def test_places_and_nvlink_domains_can_come_from_different_files(tmp_path: Path) -> None:
    first = {"items": [{"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.count": "8"}}}]}
    labels = first["items"][0]["metadata"]["labels"]  # type: ignore[index]
    other = json.loads(json.dumps(first))
    labels["fabric.topograph.run/tier-0"] = "leaf1"  # type: ignore[index]
    files = [
        written(tmp_path, json.dumps(each), name) for each, name in ((first, "a"), (other, "b"))
    ]
    result = parc("import", "k8s-nodes", *files)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "{name: leaf1, nodes: n1}" in result.stdout


def test_racks_of_one_tool_and_states_of_another_become_one_cluster(tmp_path: Path) -> None:
    nodes = [{"name": f"r0{r}n0{n}", "gres": "gpu:8"} for r in (1, 2) for n in (1, 2)]
    nodes[3]["state"] = ["DOWN"]  # type: ignore[assignment]
    files = [written(tmp_path, TREE), written(tmp_path, json.dumps({"nodes": nodes}), "nodes")]
    result = parc("import", "auto", *files)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        FRAGMENT.replace("slurm-topology", "scontrol-nodes and slurm-topology").replace(
            "cluster:\n", "cluster:\n  node: {gpus_per_node: 8}\n"
        )
        + "  unavailable: r02n02\n"
    )


def test_a_job_restricts_the_cluster_to_its_hosts(tmp_path: Path) -> None:
    job = {"job_state": ["RUNNING"], "job_id": 7, "nodes": "r01n02,r02n01", "partition": "main"}
    nodes = {"nodes": [{"name": "r01n01", "gres": "gpu:8", "state": ["DOWN"]}]}
    files = [
        written(tmp_path, TREE),
        written(tmp_path, json.dumps(nodes), "nodes"),
        written(tmp_path, json.dumps({"jobs": [job]}), "job"),
    ]
    result = parc("import", "auto", *files)
    assert (result.exit_code, result.stderr) == (0, "")
    racks = result.stdout.partition("racks:\n")[2]
    assert racks == (
        "    - {name: leaf1, nodes: r01n02, above: [core]}\n"
        "    - {name: leaf2, nodes: r02n01, above: [core]}\n"
        "launch:\n  slurm: {partition: main}\n"
    )


def test_two_files_that_contradict_each_other_are_reported(tmp_path: Path) -> None:
    one = written(tmp_path, TREE, "a.conf")
    two = written(tmp_path, TREE.replace("leaf1", "leaf3").replace("leaf[1-2]", "leaf[2-3]"), "b")
    result = parc("import", "auto", one, two)
    assert result.exit_code == 1
    assert (
        "error[PARC-I03]: two files have different switches or domains for host r01n01"
        in result.stderr
    )
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("hello",), "error[PARC-I05]: cannot detect the format of"),
        (
            ("train_esm2 --num-gpus 8 --num-attention-heads 20\n",),
            "error[PARC-I05]: train_esm2 is not a program of Megatron",
        ),
        (
            (TREE, "#SBATCH -N 2"),
            "error[PARC-I05]: files of these kinds cannot be combined: sbatch, slurm",
        ),
        (
            ("SwitchName=a Nodes b\nBlockName=c",),
            "error[PARC-I01]: this part of the line is not key=value",
        ),
    ],
)
def test_bad_files_are_reported_on_standard_error(
    tmp_path: Path, texts: tuple[str, ...], message: str
) -> None:
    files = [written(tmp_path, text, f"file{index}") for index, text in enumerate(texts)]
    result = parc("import", "auto", *files, "-o", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_too_large_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        import_module("parc.compiler.tools.importers.import_files"), "MOST_BYTES", 10
    )
    result = parc("import", "auto", written(tmp_path, TREE))
    assert result.exit_code == 1
    assert "error[PARC-I06]" in result.stderr


def test_a_missing_file_and_an_unknown_kind_are_usage_errors(tmp_path: Path) -> None:
    assert parc("import", "auto", str(tmp_path / "none")).exit_code == 2
    assert parc("import", "slurm", written(tmp_path, TREE)).exit_code == 2


def test_settings_that_are_not_carried_over_are_reported_and_the_fragment_is_printed(
    tmp_path: Path,
) -> None:
    script = written(tmp_path, "--tensor-model-parallel-size 2 --my-flag 1\n", "args")
    result = parc("import", "megatron-args", script)
    assert result.exit_code == 0
    assert "advice[PARC-I04]: not carried over: --my-flag 1" in result.stderr
    assert "  tp: 2\n" in result.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_emitted_megatron_files_read_back_as_the_layout_and_model_of_the_plan(
    example: Path,
) -> None:
    folder = example / "expected"
    plan = json.loads(emitted_by(example.name)["plan.json"])
    result = parc("import", "auto", str(folder / "megatron" / "args.sh"), "--format", "json")
    assert result.exit_code == 0
    spec = json.loads(result.stdout)["spec"]
    written = {key: plan["layout"][key] for key in ("tp", "cp", "pp", "ep", "etp", "micro_batch")}
    assert {key: spec["layout"].get(key) for key in written} == written
    text = plan["layout"]["split"]["text"]
    assert spec["layout"].get("pipeline_layout", text) == text
    assert spec["layout"]["vpp"] == plan["layout"]["vpp"]
    assert spec["layout"]["zero_stage"] == plan["layout"]["zero_stage"]
    assert spec["layout"]["sequence_parallel"] == plan["layout"]["sequence_parallel"]
    job = plan["problem"]["job"]
    for key in ("sequence_length", "global_batch", "precision", "steps"):
        assert spec["job"][key] == job[key]
    sink = Sink()
    read = ModelSpec.model_validate_json(json.dumps(spec["model"]))
    model = as_json(resolve_model(read, Library(), sink))
    assert sink.diagnostics == ()
    named = {key: plan["problem"]["model"][key] for key in ("name", "family", "source")}
    assert {**model, **named} == plan["problem"]["model"]
    slurm = parc("import", "auto", str(folder / "slurm" / "job.sbatch"), "--format", "json")
    cluster = json.loads(slurm.stdout)["spec"]["cluster"]
    assert cluster["node"]["gpus_per_node"] == plan["problem"]["cluster"]["node"]["gpus"]


SBATCH = """\
#!/bin/bash
#SBATCH --partition=gpu --account=lab --constraint=h100
#SBATCH --nodes=4 --gpus-per-node=8 --time=1-00:00:00 --job-name=run
#SBATCH --container-image=/a.sqsh
export NCCL_DEBUG=INFO HF_TOKEN=hunter2
srun bash -c 'module load cuda/12.4; module load mpi; ulimit -l unlimited; torchrun train.py'
"""
SITE = """\
cluster:
  node: {gpus_per_node: 8}
launch:
  env: {NCCL_DEBUG: INFO, HF_TOKEN: {from: environment}}
  slurm: {partition: gpu, account: lab, constraint: h100, container_image: "/a.sqsh"}
"""


def test_a_site_file_has_what_jobs_share_and_no_secret(tmp_path: Path) -> None:
    result = parc("import", "sbatch", written(tmp_path, SBATCH), "--site")
    assert result.exit_code == 0
    lines = result.stdout.splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith("#")) == SITE
    assert "hunter2" not in result.output
    spec = "parc: 1\nname: a\nmodel: llama-3-8b\nsite: site.yaml\n"
    spec += "cluster: {node: dgx-h100, nodes: 1}\njob: {sequence_length: 8192, global_batch: 64}\n"
    written(tmp_path, result.stdout, "site.yaml")
    assert parc("check", written(tmp_path, spec, "spec.yaml")).exit_code == 0


def test_modules_at_the_start_of_the_setup_become_modules_of_the_site() -> None:
    setup = ("module load cuda/12.4", "module load mpi", "ulimit -l unlimited", "module load x")
    site = site_of_fragment(Fragment(spec={"launch": {"setup": setup}, "name": "a"})).spec
    rest = ["ulimit -l unlimited", "module load x"]
    assert site == {"launch": {"setup": rest}, "modules": ["cuda/12.4", "mpi"]}


def test_a_command_of_apptainer_becomes_a_container(tmp_path: Path) -> None:
    command = "srun apptainer exec --nv -B /data:/data,$HOME/x --env A=1 --cleanenv image.sif"
    script = f"#!/bin/bash\n#SBATCH -N 2\n{command} torchrun pretrain_gpt.py --num-layers 4\n"
    result = parc("import", "sbatch", written(tmp_path, script, "job.sbatch"))
    launch = YAML(typ="safe").load(result.stdout)["launch"]
    assert launch["program"] == "pretrain_gpt.py"
    assert launch["slurm"] == {
        "container_image": "image.sif",
        "container_runtime": "apptainer",
        "container_mounts": ["/data:/data"],
    }
    for left in ("--bind $HOME/x", "apptainer --env A=1", "apptainer --cleanenv"):
        assert f"not carried over, line 3: {left}" in result.stdout


def test_an_emitted_batch_script_is_recognized(tmp_path: Path) -> None:
    text = example_files("gpt2-small")["slurm/job.sbatch"]
    result = parc("import", "sbatch", written(tmp_path, text, "job.sbatch"))
    assert "PARC wrote this file: import its folder" in result.stdout
    assert "not carried over" not in result.stdout


def test_an_error_after_many_other_findings_is_reported(tmp_path: Path) -> None:
    lines = [f"./prepare_{number} --now" for number in range(80)]
    script = "\n".join([*lines, "vllm serve org/model --tensor-parallel-size"])
    result = parc("import", "vllm-args", written(tmp_path, script, "serve.sh"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error[PARC-I02]: --tensor-parallel-size has no value" in result.stderr


def test_the_format_is_detected_if_only_files_are_named(tmp_path: Path) -> None:
    source = written(tmp_path, TREE)
    assert parc("import", source).stdout == parc("import", "auto", source).stdout
    assert parc("import", "-", given=TREE).exit_code == 0


def test_a_file_with_the_name_of_a_format_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("squeue").write_text(TREE, "utf-8")
    assert parc("import", "squeue").stdout == parc("import", "slurm-topology", "squeue").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sbatch",), "no file after KIND, which is sbatch"),
        (("sbtch", "x"), "'sbtch' is neither a KIND nor a file; did you mean sbatch?"),
        (("none",), "'none' is neither a KIND nor a file; the kinds are auto, "),
    ],
)
def test_words_that_name_no_file_are_an_error_of_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = parc("import", *words)
    assert result.exit_code == 2
    assert message in result.stderr
