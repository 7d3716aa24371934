"""Files of several tools that describe the same cluster give the same racks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.tools.importers.import_files import read_files
from parc.compiler.topology.hostlist import compress_hosts_in_order
from parc.compiler.topology.readers.cluster_section import cluster_section
from parc.compiler.topology.readers.registry import detect_format


@dataclass(frozen=True)
class Fabric:
    """A fabric: hosts of every leaf, leaves of every pod, one core above all pods."""

    pods: tuple[tuple[tuple[str, ...], ...], ...]

    @property
    def leaves(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """(leaf, pod, hosts)."""
        return [
            (f"leaf{pod}-{leaf}", f"pod{pod}", hosts)
            for pod, leaves in enumerate(self.pods)
            for leaf, hosts in enumerate(leaves)
        ]

    @property
    def expected(self) -> list[tuple[str, str, list[str]]]:
        """Racks in the form of a spec."""
        return [
            (leaf, compress_hosts_in_order(hosts), [pod, "core"])
            for leaf, pod, hosts in self.leaves
        ]


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Draw up to three pods of up to three leaves, with hosts in any order."""
    shape = draw(
        st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3)
    )
    count = sum(map(sum, shape))
    names = iter(draw(st.permutations([f"n{number:02d}" for number in range(count)])))
    return Fabric(
        tuple(tuple(tuple(next(names) for _ in range(size)) for size in pod) for pod in shape)
    )


def slurm_conf(fabric: Fabric) -> str:
    lines = [
        f"SwitchName={leaf} Nodes={compress_hosts_in_order(hosts)}"
        for leaf, _, hosts in fabric.leaves
    ]
    for pod, leaves in enumerate(fabric.pods):
        lines.append(f"SwitchName=pod{pod} Switches=leaf{pod}-[0-{len(leaves) - 1}]")
    return "\n".join([*lines, f"SwitchName=core Switches=pod[0-{len(fabric.pods) - 1}]"])


def slurm_yaml(fabric: Fabric) -> str:
    entries = [
        {"switch": leaf, "nodes": compress_hosts_in_order(hosts)}
        for leaf, _, hosts in fabric.leaves
    ]
    for pod in range(len(fabric.pods)):
        children = ",".join(leaf for leaf, own, _ in fabric.leaves if own == f"pod{pod}")
        entries.append({"switch": f"pod{pod}", "children": children})
    pods = ",".join(f"pod{pod}" for pod in range(len(fabric.pods)))
    entries.append({"switch": "core", "children": pods})
    return "---\n- topology: t\n  tree: " + json.dumps({"switches": entries})


def graph(fabric: Fabric) -> str:
    return json.dumps(
        {
            "instances": [
                {"id": host, "network_layers": [leaf, pod, "core"]}
                for leaf, pod, hosts in fabric.leaves
                for host in hosts
            ]
        }
    )


def model(fabric: Fabric) -> str:
    pods: dict[str, list[str]] = {}
    for leaf, pod, _ in fabric.leaves:
        pods.setdefault(pod, []).append(leaf)
    switches = {"core": {"switches": list(pods)}}
    switches |= {pod: {"switches": leaves} for pod, leaves in pods.items()}
    blocks = [
        {"switch": leaf, "nodes": [compress_hosts_in_order(hosts)]}
        for leaf, _, hosts in fabric.leaves
    ]
    return f"switches: {json.dumps(switches)}\nblocks: {json.dumps(blocks)}\n"


def aws(fabric: Fabric) -> str:
    return json.dumps(
        {
            "Instances": [
                {"InstanceId": host, "NetworkNodes": ["core", pod, leaf]}
                for leaf, pod, hosts in fabric.leaves
                for host in hosts
            ]
        }
    )


def kubernetes(fabric: Fabric) -> str:
    prefix = "fabric.topograph.run/tier-"
    return json.dumps(
        {
            "apiVersion": "v1",
            "items": [
                {
                    "metadata": {
                        "name": host,
                        "labels": {
                            f"{prefix}2": "core",
                            f"{prefix}1": pod,
                            f"{prefix}0": leaf,
                            "nvidia.com/gpu.count": "8",
                        },
                    }
                }
                for leaf, pod, hosts in fabric.leaves
                for host in hosts
            ],
        }
    )


def cables(fabric: Fabric) -> str:
    lines = []
    for leaf, pod, hosts in fabric.leaves:
        lines.append(f'Switch\t9 "S-{leaf}"\t\t# "{leaf}"')
        lines += [f'[{n}]\t"H-{host}"[1](a)\t\t# "{host} mlx5_0"' for n, host in enumerate(hosts)]
        lines.append(f'[99]\t"S-{pod}"[{leaf.partition("-")[2]}]\t\t# "{pod}"')
        lines += [f'Ca\t1 "H-{host}"\t\t# "{host} mlx5_0"' for host in hosts]
    for number in range(len(fabric.pods)):
        lines += [f'Switch\t9 "S-pod{number}"\t\t# "pod{number}"', f'[99]\t"S-core"[{number}]']
    return "\n".join([*lines, 'Switch\t9 "S-core"\t\t# "core"'])


FORMS: list[Callable[[Fabric], str]] = [slurm_conf, slurm_yaml, graph, model, aws, kubernetes]


def racks(text: str) -> list[tuple[str, str, list[str]]]:
    kind = detect_format(text)
    assert kind is not None
    sink = Sink()
    fragment = read_files([(kind, text, "file")], sink)
    assert fragment is not None, sink.diagnostics
    cluster, _ = cluster_section(fragment, sink)
    assert not sink.diagnostics
    return [(rack["name"], rack["nodes"], rack["above"]) for rack in cluster["racks"]]


@pytest.mark.parametrize("form", FORMS, ids=[form.__name__ for form in FORMS])
@settings(max_examples=25)
@given(fabric=fabrics())
def test_every_format_gives_the_same_racks_and_switches(
    form: Callable[[Fabric], str], fabric: Fabric
) -> None:
    assert racks(form(fabric)) == fabric.expected


@settings(max_examples=25)
@given(fabric=fabrics())
def test_cables_give_the_same_leaves_and_a_tier_for_each_level_that_joins_zones(
    fabric: Fabric,
) -> None:
    sink = Sink()
    fragment = read_files([("ibnetdiscover", cables(fabric), "file")], sink)
    assert fragment is not None, sink.diagnostics
    home = {host.name: host.path for host in fragment.hosts}
    assert home.keys() == {host for _, _, hosts in fabric.leaves for host in hosts}
    tiers = 1 + (len(fabric.leaves) > len(fabric.pods)) + (len(fabric.pods) > 1)
    for leaf, pod, hosts in fabric.leaves:
        wanted = [leaf, *([pod] if len(fabric.leaves) > len(fabric.pods) else [])]
        assert {home[host][: len(wanted)] for host in hosts} == {tuple(wanted)}
        assert {len(home[host]) for host in hosts} == {tiers}


@settings(max_examples=25)
@given(fabric=fabrics())
def test_a_fragment_resolves_to_hosts_under_their_switches(fabric: Fabric) -> None:
    sink = Sink()
    fragment = read_files([("topograph", graph(fabric), "file")], sink)
    assert fragment is not None
    spec = ClusterSpec.model_validate_json(
        json.dumps({"node": "dgx-h100", **cluster_section(fragment, sink)[0]})
    )
    cluster = resolve_cluster(spec, Library(), sink)
    assert cluster is not None, sink.diagnostics
    assert [(host.name, host.switch_path) for host in cluster.hosts] == [
        (host, (leaf, pod, "core")) for leaf, pod, hosts in fabric.leaves for host in hosts
    ]
