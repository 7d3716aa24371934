"""``parc init`` with lists of hosts of several types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from parc.compiler.catalog.find_hardware import find_gpus, narrow_gpus
from parc.compiler.cli.commands import init
from tests.cli.specs import parc

TYPES = {"cpu1": "(null)", "a1": "gpu:a100:4", "a2": "gpu:a100:4", "h1": "gpu:h100:8"}
"""Host -> gres, of a cluster with several types of hosts. A partition has the type's name."""
MIXED = "NODELIST GRES STATE PARTITION\n" + "".join(
    f"{host} {gres} idle {part}\n"
    for host, gres in TYPES.items()
    for part in ("all", host.rstrip("12"))
)


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (("--gpu", "h100"), "h1"),
        (("--gpu", "a100"), "a[1-2]"),
        (("--partition", "h"), "h1"),
        (("--partition", "a"), "a[1-2]"),
        (("--partition", "all", "--gpu", "h100-nvl-94gb"), "h1"),
    ],
)
def test_a_type_and_a_partition_select_hosts_of_a_list(
    tmp_path: Path, words: tuple[str, ...], hosts: str
) -> None:
    nodes, switches = tmp_path / "sinfo.txt", tmp_path / "topology.txt"
    nodes.write_text(MIXED)
    # The topology lists all hosts: those that the list leaves out must not come back.
    switches.write_text(f"SwitchName=leaf Nodes={','.join(TYPES)}\n")
    listed = ("--from-slurm", str(nodes), "--from-slurm", str(switches))
    text = parc("init", "--model", "qwen3-0.6b", *listed, *words).stdout
    assert re.findall(r'nodes: "?([^"}]*)', text) == [hosts]
    # Each host is in two partitions, so only the user can choose one.
    launch = re.search(r"\nlaunch:\n  slurm: {partition: (\w+)}", text)
    assert (launch[1] if launch else None) == (words[1] if "--partition" in words else None)


def test_hosts_without_a_common_partition_need_a_choice(tmp_path: Path) -> None:
    nodes = tmp_path / "sinfo.txt"
    rows = ("n1 gpu:h100:8 idle a", "n2 gpu:h100:8 idle a", "n3 gpu:h100:8 idle b")
    nodes.write_text("\n".join(("NODELIST GRES STATE PARTITION", *rows, "")))
    words = ("init", "--model", "qwen3-0.6b", "--from-slurm", str(nodes))
    result = parc(*words)
    assert result.exit_code == 2
    assert "select one of a, b, such as --partition a" in result.stderr
    assert 'nodes: "n[1-2]"' in parc(*words, "--partition", "a").stdout


def test_hosts_that_only_the_topology_contains_are_left_out_with_a_note(tmp_path: Path) -> None:
    nodes, switches = tmp_path / "sinfo.txt", tmp_path / "topology.txt"
    nodes.write_text("NODELIST GRES STATE PARTITION\nn1 gpu:h100:8 idle a\nn2 gpu:h100:8 idle a\n")
    switches.write_text("SwitchName=s1 Nodes=n[1-2],login1\nSwitchName=s2 Nodes=n[3-6],cpu[1-9]\n")
    files = (str(nodes), str(switches))
    for words in (
        ("init", "--model", "qwen3-0.6b", "--from-slurm", files[0], "--from-slurm", files[1]),
        ("import", "auto", *files),
    ):
        result = parc(*words)
        assert result.exit_code == 0
        assert re.findall(r'nodes: "?([^"}]*)', result.stdout) == ["n[1-2]"]
        assert "left out: login1, n3, n4 and 11 more" in result.stderr


def test_a_list_without_a_host_of_the_type_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sinfo.txt").write_text(MIXED)
    listed = ("init", "--from-slurm", str(tmp_path / "sinfo.txt"))
    result = parc(*listed, "--gpu", "b200", "--partition", "a")
    assert "no GPU hosts with GPU type b200 in partition a" in result.stderr
    assert "PARC-I03" in parc(*listed).stderr
    assert "--gpu or --partition" in parc(*listed).stderr


def table(*rows: str) -> str:
    """Return a table of sinfo: hosts g1, g2, ... with these types and features."""
    lines = [f"g{index} gpu:{row.replace('/', ':4 idle ')}" for index, row in enumerate(rows, 1)]
    return "\n".join(["NODELIST GRES STATE AVAIL_FEATURES", *lines, ""])


@pytest.mark.parametrize(
    ("rows", "words", "node", "others"),
    [
        (
            ("a100/ib",),
            (),
            "dgx-a100",
            "a100-sxm-40gb, a100-sxm-64gb, a100-pcie-40gb or a100-pcie-80gb",
        ),
        (("a100/ib,hbm40g,512gb",), (), "dgx-a100-40gb", "a100-pcie-40gb"),
        (("a100/sxm4,gpu80gb",), (), "dgx-a100", ""),
        (("a100/ib",), ("--gpu", "a100-sxm-40gb"), "dgx-a100-40gb", ""),
        (("a100/ib",), ("--gpu", "a100_40"), "dgx-a100-40gb", "a100-pcie-40gb"),
        (("a100/hbm40g", "a100/hbm80g"), ("--gpu", "a100-sxm-80gb"), "dgx-a100", ""),
        (("a100/x", "titan/x"), ("--gpu", "a100-sxm-80gb"), "dgx-a100", ""),
        (("titan/x", "titan/x"), ("--gpu", "a100-sxm-80gb"), "dgx-a100", ""),
        (("h100/x",), (), "hgx-h100", "h100-sxm-96gb, h100-pcie-80gb or h100-nvl-94gb"),
    ],
)
def test_a_name_that_several_gpus_have_is_reported_with_the_alternatives(
    tmp_path: Path, rows: Sequence[str], words: Sequence[str], node: str, others: str
) -> None:
    (tmp_path / "sinfo.txt").write_text(table(*rows))
    listed = ("--from-slurm", str(tmp_path / "sinfo.txt"), "--model", "qwen3-0.6b")
    result = parc("init", *listed, *words)
    assert f"base: {node}, gpus_per_node: 4" in result.stdout
    kept = f"# {node} has 8 GPUs and 8 NICs. The NICs are kept"
    assert (kept in result.stdout) == (len(rows) > 1 and rows[0] == rows[1])
    comment = " ".join(line[2:] for line in result.stdout.splitlines() if line.startswith("# "))
    for text in (result.stderr, comment):
        assert re.findall(r"For another one, add --gpu (.*?)(?: to parc init|$)", text.strip()) == (
            [others] if others else []
        )


@pytest.mark.parametrize(
    ("rows", "hosts"),
    [
        (("a100/hbm40g", "a100/hbm80g"), "g2"),
        (("a100/x", "titan/x"), "g1"),
        (("titan/x", "titan/x"), "g[1-2]"),
    ],
)
def test_only_hosts_that_can_have_the_gpu_remain(
    tmp_path: Path, rows: Sequence[str], hosts: str
) -> None:
    (tmp_path / "sinfo.txt").write_text(table(*rows))
    listed = ("--from-slurm", str(tmp_path / "sinfo.txt"), "--model", "qwen3-0.6b")
    text = parc("init", *listed, "--gpu", "a100-sxm-80gb").stdout
    assert re.findall(r'nodes: "?([^"}]*)', text) == [hosts]


def test_hosts_with_other_variants_of_a_gpu_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "sinfo.txt").write_text(table("a100/hbm40g", "a100/hbm80g"))
    result = parc("init", "--from-slurm", str(tmp_path / "sinfo.txt"))
    assert result.exit_code == 2
    assert "(a100-sxm-40gb, a100-sxm-80gb); select one of them, such as --gpu" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "nodes.txt is empty"),
        (b" \n\n", "nodes.txt is empty"),
        (b"\x7fELF\0\1", "nodes.txt is not a text file in UTF-8"),
        (b"\xff\xfe\x80", "nodes.txt is not a text file in UTF-8"),
        (b"g1 gpu:a100:4 idle gpu\n", "cannot detect the format of"),
        (b"slurm_load_node: Unable to contact slurm controller\n", "cannot detect the format"),
        (b"#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n", "nodes.txt lists no hosts"),
        (b"NODELIST GRES\nc1 (null)\n", "no GPU type and no host with gpu in its gres"),
        (b"NODELIST GRES\ng1 gpu:a100_3g.20gb:8\n", "a100_3g.20gb is a part of a GPU (MIG)"),
        (b"NODELIST GRES\ng1 gpu:mi300:8\n", "similar names are mi300x-192gb"),
    ],
)
def test_files_that_are_no_node_lists_are_reported(
    tmp_path: Path, text: bytes, message: str
) -> None:
    (tmp_path / "nodes.txt").write_bytes(text)
    result = parc("init", "--from-slurm", str(tmp_path / "nodes.txt"))
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    if b"gpu:" not in text[14:] and b"NODELIST" not in text:
        assert 'scontrol show nodes, sinfo -N -o "%N %G %T %P"' in result.stderr
        assert "KIND" not in result.stderr


def test_a_wrong_path_of_a_node_list_is_reported(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        assert reason in parc("init", "--from-slurm", str(path)).stderr


def test_a_gpu_with_another_board_or_memory_is_not_taken_for_a_known_one() -> None:
    for name in ("A100-SXM4-48GB", "H100-SXM5-64GB", "V100-PCIE-32GB", "a100_1g.5gb", "mig-1"):
        assert find_gpus(name) == ()
    assert find_gpus("NVIDIA-GH200-480GB") == ("gh200-96gb",)
    assert find_gpus("nvidia_h200") == ("h200-sxm-141gb",)
    assert find_gpus("v100") == ("v100-sxm-32gb", "v100-sxm-16gb")


def test_contradictory_features_do_not_decide_the_gpu() -> None:
    names = find_gpus("a100")
    assert narrow_gpus(names, ("40gb", "80gb")) == names
    assert narrow_gpus(names, ("512gb", "rack7")) == names
    assert narrow_gpus(names, ("nvlink",)) == ("a100-sxm-80gb", "a100-sxm-40gb", "a100-sxm-64gb")


def test_on_a_terminal_the_variant_of_the_gpu_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(("train", "qwen3-0.6b", "a100", "a100-pcie-40gb", 8))
    monkeypatch.setattr(click, "prompt", lambda *_, **__: next(answers))
    assert init._prompt_for_options()["gpu"] == "a100-pcie-40gb"
