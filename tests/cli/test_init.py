"""Tests of ``parc init``: each starter spec compiles as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import parc as parc_module
from parc.compiler.catalog.find_hardware import find_gpu, node_for_gpu
from parc.compiler.catalog.library import Library
from tests.cli.specs import parc
from tests.docs.test_snippets import CONFIG

pytestmark = pytest.mark.usefixtures("few_requests")

NODES = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=48
   Gres=gpu:a100:4(S:0-1)
   Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=2

NodeName=n2 Arch=x86_64 CoresPerSocket=48
   Gres=gpu:a100:4(S:0-1)
   Sockets=2 State=DOWN*+DRAIN ThreadsPerCore=2
   Reason=no power [root@host]

NodeName=n3 Arch=x86_64 CoresPerSocket=48
   Gres=gpu:a100:4(S:0-1)
   Sockets=2 State=MIXED ThreadsPerCore=2
"""


def uncomment_fields(text: str) -> str:
    """Return the starter spec with its commented fields switched on."""
    return re.sub(
        r"(?m)^(\s*)# (?=(?:data|\w+_\w+|tokens|ttft|tpot|layout|launch):|  slurm:)", r"\1", text
    )


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "\nmodel: llama-3-8b "),
        (("--kind", "finetune", "--model", "qwen3-0.6b", "--gpu", "V100", "--gpus", "4"), "fp16"),
        (("--kind", "serve", "--model", "gpt2-small", "--gpu", "l4", "--gpus", "1"), "l4-24gb"),
        (
            ("--kind", "serve", "--model", "llama-65b", "--gpu", "b300", "--gpus", "4"),
            "checkpoint:",
        ),
        (("--kind", "serve", "--model", "gpt-oss-20b", "--gpus", "1"), "precision: mxfp4"),
    ],
)
def test_a_starter_spec_compiles_without_an_edit(words: tuple[str, ...], part: str) -> None:
    result = parc("init", *words)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("# yaml-language-server: $schema=")
    assert part in result.stdout
    checked = parc("check", "-", given=result.stdout)
    assert checked.exit_code == 0, checked.stdout


def test_a_model_without_a_program_gets_one_of_the_user() -> None:
    result = parc("init", "--model", "grok-1", "--gpus", "64")
    assert result.exit_code == 0, result.output
    assert "has no program for this model: write it.\n" in result.stdout
    assert "program: train.py" in result.stdout


# The two other combinations of a kind and a number of GPUs run in the conformance suite.
@pytest.mark.parametrize(
    ("kind", "gpus"),
    [
        pytest.param("train", "", id="train chosen"),
        pytest.param("serve", "8", id="serve 8"),
        pytest.param("train", "8", id="train 8", marks=pytest.mark.conformance),
        pytest.param("serve", "", id="serve chosen", marks=pytest.mark.conformance),
    ],
)
@pytest.mark.parametrize("name", Library().names("sites"))
def test_each_site_of_the_catalog_compiles(name: str, kind: str, gpus: str) -> None:
    words = ["--model", "qwen3-0.6b", "--kind", kind, "--preset", name]
    words += ["--gpus", gpus] if gpus else []
    result = parc("init", *words)
    assert result.exit_code == 0, result.output
    assert f"site: {name}\n" in result.stdout
    facts = Library().entry("sites", name)
    assert facts["source"]
    assert ("kubernetes" in facts["launch"]) == ("emit: [kubernetes, " in result.stdout)
    # L29 lists the commands that a site runs on each host.
    warned = set(re.findall("PARC-[A-Z][0-9]+", parc("check", "-", given=result.stdout).output))
    assert warned <= {"PARC-L29"}


@pytest.mark.parametrize("kind", ["train", "serve"])
def test_the_commented_fields_of_a_starter_spec_are_valid(kind: str) -> None:
    text = parc("init", "--kind", kind, "--model", "qwen3-0.6b", "--gpus", "1").stdout
    edited = uncomment_fields(text)
    assert edited.count("#") < text.count("#") - 3
    checked = parc("check", "-", given=edited)
    assert checked.exit_code == 0, checked.stdout


def test_hosts_come_from_a_list_of_slurm(tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_text(NODES, encoding="utf-8")
    spec = tmp_path / "spec.yaml"
    words = (
        "init",
        "--model",
        "qwen3-0.6b",
        "--from-slurm",
        str(tmp_path / "nodes.txt"),
        "-o",
        str(spec),
    )
    result = parc(*words)
    assert result.exit_code == 0, result.output
    text = spec.read_text("utf-8")
    assert '{name: all, nodes: "n[1-3]"}' in text
    assert "unavailable: n2" in text
    assert "gpus_per_node: 4" in text
    assert parc("check", str(spec)).exit_code == 0
    assert "exists and is not overwritten" in parc(*words).stderr


def test_a_site_file_and_a_list_of_hosts_are_combined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = re.sub("Gres=.*", "Gres=gpu:h100:8", NODES).replace("DOWN*+DRAIN", "IDLE")
    Path("nodes.txt").write_text(nodes.replace("   State=", "   Partitions=long,gpu\n   State="))
    Path("site.yaml").write_text("base: slurm-pyxis-efa\n")
    words = ("init", "--model", "qwen3-0.6b", "--preset", "site.yaml", "--from-slurm", "nodes.txt")
    both = parc(*words).stdout
    assert "site: site.yaml\n" in both
    assert "node:" not in both  # the node type of the site, not the usual host with this GPU
    assert "partition" not in both.partition("# launch:")[0]
    Path("nodes.txt").write_text(Path("nodes.txt").read_text().replace("long,gpu", "gpu", 1))
    assert "  slurm: {partition: gpu}\n" in parc(*words).stdout
    # A list without a GPU type: the features of the hosts, or the node type of the site, have it.
    Path("nodes.txt").write_text(nodes.replace("gpu:h100:8", "gpu:8"))
    assert "node:" not in parc(*words).stdout
    assert "add the type, such as --gpu h100" in parc("init", *words[-2:]).stderr
    features = nodes.replace("gpu:h100:8", "gpu:8\n   AvailableFeatures=ib,h200,gpu")
    Path("nodes.txt").write_text(features)
    assert "node: hgx-h200\n" in parc("init", *words[-2:]).stdout
    Path("nodes.txt").write_text(nodes)
    with Path("site.yaml").open("a") as site:
        site.write("launch: {slurm: {partition: long}}\n")
    assert "{partition: gpu}" not in parc(*words).stdout


OWN_NODE = """\
gpu: h200-sxm-141gb
gpus_per_node: 8
nvlink_domain: 8
link_gb_per_s: 450
link_kind: nvlink
nics: 4
nic_speed: 400
cpu_cores: 96
fabric: infiniband-ndr
"""


@pytest.mark.parametrize(
    ("site", "gpus", "node"),
    [
        ("{node: node.yaml}", 8, None),
        ("{node: node.yaml}", 4, "{base: node.yaml, gpus_per_node: 4, nvlink_domain: 4}"),
        ("{node: {base: hgx-h100, nics: 4}}", 4, "gpus_per_node: 4"),
        (f"{{node: {{{', '.join(OWN_NODE.splitlines())}}}}}", 16, None),
        (f"{{node: {{{', '.join(OWN_NODE.splitlines())}}}}}", 4, "gpus_per_node: 4"),
    ],
)
def test_a_site_can_describe_its_own_hosts(
    site: str, gpus: int, node: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("node.yaml").write_text(OWN_NODE)
    Path("site.yaml").write_text(f"cluster: {site}\n")
    for kind in ("train", "serve"):
        words = ("--kind", kind, "--model", "qwen3-0.6b", "--gpus", str(gpus))
        result = parc("init", *words, "--preset", "site.yaml")
        assert result.exit_code == 0, result.output
        cluster = result.stdout.partition("cluster:")[2].partition("job:")[0]
        assert (node in cluster) if node else ("node:" not in cluster)
        assert parc("check", "-", given=result.stdout).exit_code == 0


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ("{node: hgx-h1000}", "error[PARC-K01]: the catalog has no node type 'hgx-h1000'"),
        ("{node: missing.yaml}", "missing.yaml"),
        ("{node: {name: own, gpu: h200-sxm-141gb}}", "cluster.node does not set gpus_per_node"),
        ("{gpu: h200, node: hgx-h100}", "error[PARC-K01]: the catalog has no GPU 'h200'"),
    ],
)
def test_a_mistake_in_the_hosts_of_a_site_is_reported_at_its_line(
    site: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("site.yaml").write_text(f"cluster: {site}\n")
    result = parc("init", "--preset", "site.yaml", "--gpus", "8")
    assert result.exit_code == 1, result.output
    assert message in result.stderr
    assert " --> site.yaml:1:" in result.stderr


def test_hosts_other_than_those_of_the_site_keep_none_of_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site = "cluster: {gpu: h200-sxm-141gb, node: {base: hgx-h200, nics: 4}}\n"
    Path("site.yaml").write_text(site)
    words = ("--model", "qwen3-0.6b", "--preset", "site.yaml", "--gpu", "a100", "--gpus", "4")
    Path("spec.yaml").write_text(parc("init", *words).stdout)
    plan = parc_module.compile("spec.yaml")
    assert plan.problem.cluster.gpu.name == "a100-sxm-80gb"
    assert plan.problem.cluster.node.nics == Library().entry("nodes", "dgx-a100")["nics"]


def test_a_device_too_small_for_the_logits_of_a_long_sequence_gets_a_shorter_one() -> None:
    result = parc("init", "--model", "gemma-3-1b", "--gpu", "rtx-4090", "--gpus", "1")
    assert result.exit_code == 0, result.output
    assert "sequence_length: 4096\n" in result.stdout


def test_a_model_with_code_in_its_checkpoint_gets_the_flag_with_a_warning() -> None:
    words = ("--model", "llama-3.3-nemotron-super-49b", "--kind", "serve", "--gpus", "8")
    started = parc("init", *words).stdout
    assert (
        "# With this flag vLLM runs code from the checkpoint: review that code first.\n" in started
    )
    assert 'args: ["--trust-remote-code"]' in started
    assert parc("check", "-", given=started).exit_code == 0


def test_a_service_has_no_findings_of_training_programs() -> None:
    result = parc("init", "--model", "gemma-2-9b", "--kind", "serve")
    assert result.exit_code == 0
    assert result.stderr == ""


def test_a_config_without_a_folder_gives_the_name_of_its_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(CONFIG))
    started = parc("init", "--model", "config.json", "--gpus", "8").stdout
    assert "\nname: qwen3\n" in started
    assert "then sbatch build/qwen3/slurm/job.sbatch in the folder of pretrain_gpt.py" in started


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpu", "h9"), "the catalog has no GPU 'h9'"),
        (("--preset", "x"), "the catalog has no site 'x'; valid names: coreweave-sunk, "),
        (("--gpus", "20"), "20 GPUs are not divisible by 8 GPUs per host; use --gpus 16 or 24"),
        (("--from-slurm", "NODES", "--gpus", "16"), "use a multiple of 4 up to 8"),
        (("--from-slurm", "NODES", "--from-kubernetes", "NODES"), "cannot be combined"),
    ],
)
def test_impossible_options_are_usage_errors(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    (tmp_path / "nodes.txt").write_text(NODES, encoding="utf-8")
    result = parc("init", *(word.replace("NODES", str(tmp_path / "nodes.txt")) for word in words))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_job_that_does_not_fit_shows_the_findings() -> None:
    result = parc("init", "--model", "llama-3.1-405b", "--gpus", "1")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "llama-3.1-405b does not fit into memory" in result.stderr


@pytest.mark.parametrize(
    ("text", "gpu", "node"),
    [
        ("h100", "h100-sxm-80gb", "hgx-h100"),
        ("NVIDIA-H100-PCIe", "h100-pcie-80gb", "h100-pcie-8"),
        ("nvidia_a100_40gb", "a100-sxm-40gb", "dgx-a100-40gb"),
        ("Tesla_V100-SXM2-32GB", "v100-sxm-32gb", "dgx-1-v100"),
        ("AMD-Instinct-MI300X-OAM", "mi300x-192gb", "mi300x-8"),
        ("gh200", "gh200-96gb", "gh200-1"),
        ("rtx4090", "rtx-4090-24gb", "l40s-8"),
        ("l4", "l4-24gb", "l40s-8"),
    ],
)
def test_names_of_tools_are_mapped_to_the_catalog(text: str, gpu: str, node: str) -> None:
    assert find_gpu(text) == gpu
    assert node_for_gpu(gpu)[0] == node


def test_a_config_of_several_models_is_planned_as_its_text_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    several = {"model_type": "qwen3_vl", "text_config": {**CONFIG, "model_type": "qwen3_vl_text"}}
    Path("config.json").write_text(json.dumps(several))
    text = parc("init", "--model", "config.json", "--gpus", "8").stdout
    assert '\nmodel: "config.json#text_config" ' in text
    assert "The plan covers only the text decoder." in text
    assert parc("check", "-", given=text).exit_code == 0


@pytest.mark.parametrize(
    ("quantized", "precision"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
            },
            "int4",
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        (None, "bf16"),
    ],
)
def test_a_service_has_the_precision_of_the_checkpoint(
    quantized: object, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps({**CONFIG, "quantization_config": quantized}))
    text = parc("init", "--kind", "serve", "--model", "config.json", "--gpus", "1").stdout
    assert f"  precision: {precision} " in text
    trained = parc("init", "--model", "config.json", "--gpus", "8").stdout
    assert "  precision: bf16\n" in trained


def test_no_service_is_started_from_weights_in_an_unknown_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quantized = {"quant_method": "gptq", "bits": 3}
    Path("config.json").write_text(json.dumps({**CONFIG, "quantization_config": quantized}))
    result = parc("init", "--kind", "serve", "--model", "config.json", "--gpus", "1")
    assert result.exit_code == 1
    assert "the weights of the checkpoint have a format that PARC cannot plan" in result.stderr


@pytest.mark.parametrize("option", ["--model", "--preset"])
def test_a_file_outside_the_folder_of_the_spec_gets_advice_that_works(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = tmp_path / "work", tmp_path / "models"
    folder.mkdir()
    other.mkdir()
    monkeypatch.chdir(folder)
    (other / "file.json").write_text(json.dumps(CONFIG), "utf-8")
    (other / "file.yaml").write_text("cluster: {node: hgx-h100}\n", "utf-8")
    file = other / ("file.json" if option == "--model" else "file.yaml")
    model = () if option == "--model" else ("--model", "qwen3-0.6b")
    words = ("init", *model, option, str(file), "--gpus", "8")
    refused = parc(*words)
    assert "is outside the folder of the spec" in refused.stderr
    assert "--root" not in refused.stderr
    assert "-o FOLDER/spec.yaml" in refused.stderr
    spec = other / "spec.yaml"
    assert parc(*words, "-o", str(spec)).exit_code == 0
    assert parc("check", str(spec)).exit_code == 0


def test_a_service_of_a_config_shows_what_is_wrong_besides_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(
        json.dumps({**CONFIG, "quantization_config": {"quant_method": "fp8"}})
    )
    words = ("--kind", "serve", "--model", "config.json", "--gpus", "8")
    result = parc("init", *words, "--gpu", "v100-sxm-32gb")
    assert result.exit_code == 1
    assert "no kernels for fp8 weights on v100-sxm-32gb" in result.stderr
    assert "job.checkpoint is not set" not in result.stderr


@pytest.mark.parametrize("hosts", [1, 3, 7, 13])
def test_the_batch_per_gpu_is_a_power_of_two(hosts: int) -> None:
    text = parc("init", "--model", "qwen3-0.6b", "--gpus", str(8 * hosts)).stdout
    found = re.search(r"global_batch: (\d+)", text)
    assert found is not None
    per_gpu = int(found[1]) // (8 * hosts)
    assert per_gpu.bit_count() == 1
    assert 256 <= per_gpu * 8 * hosts < 512
