"""Table of topology file formats: a reader and detection patterns for each format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from parc.compiler.diagnostics import Sink
from parc.compiler.ir.frozen import frozen
from parc.compiler.topology.readers.clouds import read_aws, read_gcp, read_lambda, read_oci
from parc.compiler.topology.readers.ibnetdiscover import read_ibnetdiscover
from parc.compiler.topology.readers.k8s_nodes import read_k8s_nodes
from parc.compiler.topology.readers.nvidia_topology import read_nvidia_topology
from parc.compiler.topology.readers.reader_state import Fragment, HostFilter
from parc.compiler.topology.readers.scontrol_nodes import read_scontrol_nodes
from parc.compiler.topology.readers.sinfo_table import SINFO_HEAD
from parc.compiler.topology.readers.slurm_topology import read_slurm_topology
from parc.compiler.topology.readers.topograph import read_topograph

Reader = Callable[[str, str, Sink], Fragment | None]
DETECTED_IN = 65_536
"""Number of characters at the start of a text in which the patterns are searched."""


@frozen
class FileFormat:
    """Topology file format, with its reader and the patterns that detect a file of this format."""

    reader: Reader
    description: str
    """Tools and files of the format, for help texts."""
    signs: tuple[str, ...]
    """Regular expressions; a text that matches one of them has this format."""
    selecting_reader: Callable[[str, str, Sink, HostFilter], Fragment | None] | None = None
    """Reader that leaves out the hosts that a filter does not accept; None if the format does not
    name the GPU types of hosts."""
    confirms: Callable[[str], bool] | None = None
    """Function that returns False for a text that matches a pattern and has another format, such as
    a script that starts another program; None if the patterns suffice."""


FORMATS: dict[str, FileFormat] = {
    "slurm-topology": FileFormat(
        read_slurm_topology,
        "topology.conf, topology.yaml, scontrol show topology",
        (r"(?im)^[ \t]*(SwitchName|BlockName)\s*=", r"(?m)^[ \t]*-[ \t]+topology:"),
    ),
    "scontrol-nodes": FileFormat(
        read_scontrol_nodes,
        "scontrol show nodes (text or --json), sinfo (table or --json)",
        (r'"sinfo"\s*:', r'"gres"\s*:', r"(?m)^NodeName=\S+ Arch=", SINFO_HEAD),
        read_scontrol_nodes,
    ),
    "nvidia-smi-topo": FileFormat(
        read_nvidia_topology,
        "nvidia-smi topo -m, topo -p2p, fabric.clusterUuid and cliqueId as CSV",
        (
            r"(?m)^[ \t]*(\x1b\[4m)?GPU0[ \t]",
            r"(?m)^([\w.-]+:[ \t]*)?[0-9a-fA-F-]{36}[ \t]*,[ \t]*[0-9]+[ \t]*$",
        ),
    ),
    "topograph": FileFormat(
        read_topograph,
        "NVIDIA topograph: models, Slurm output, graph",
        (r'"network_layers"\s*:', r"(?m)^(switches|blocks|capacity_blocks):"),
    ),
    "k8s-nodes": FileFormat(
        read_k8s_nodes,
        "kubectl get nodes -o json",
        (r'"?apiVersion"?\s*:\s*"?v1\b', r'"nvidia\.com/gpu'),
        read_k8s_nodes,
    ),
    "aws": FileFormat(read_aws, "aws ec2 describe-instance-topology", (r'"?NetworkNodes"?\s*:',)),
    "gcp": FileFormat(
        read_gcp,
        "gcloud compute instances list --format json",
        (r'"?physicalHostTopology"?\s*:',),
    ),
    "oci": FileFormat(
        read_oci,
        "OCI compute hosts, rdmaTopologyData",
        (r'"?(customerLocalBlock|localBlockId)"?\s*:',),
    ),
    "lambda": FileFormat(
        read_lambda, "Lambda Cloud topology of instances", (r'"?networkPath"?\s*:',)
    ),
    "ibnetdiscover": FileFormat(
        read_ibnetdiscover,
        "ibnetdiscover, ibdiagnet2.lst",
        (
            r"(?m)^(switchguid|caguid|vendid)=",
            r'(?m)^(Switch|Ca)[ \t]+[0-9]+[ \t]+"',
            r"(?m)^\{ (SW|CA) Ports:",
        ),
    ),
}
"""Formats by name, in the order in which their patterns are tried."""


def detect_format(text: str, formats: Mapping[str, FileFormat] = FORMATS) -> str | None:
    """Return the name of the first format with a pattern that matches the start of ``text``.

    Returns None if no pattern matches, or if the formats with such patterns do not confirm it.
    """
    # Only the start is searched: node lists of large clusters have tens of megabytes.
    head = text[:DETECTED_IN]
    for name, form in formats.items():
        if any(re.search(sign, head) for sign in form.signs) and (
            form.confirms is None or form.confirms(text)
        ):
            return name
    return None
