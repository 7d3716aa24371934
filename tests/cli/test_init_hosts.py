"""``parc init`` with lists of hosts of several types."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


def test_a_list_without_a_host_of_the_type_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sinfo.txt").write_text(MIXED)
    listed = ("init", "--from-slurm", str(tmp_path / "sinfo.txt"))
    result = parc(*listed, "--gpu", "b200", "--partition", "a")
    assert "no GPU hosts with GPU type b200 in partition a" in result.stderr
    assert "PARC-I03" in parc(*listed).stderr
    assert "--gpu or --partition" in parc(*listed).stderr
