"""The ComputeDomain through which pods on several hosts of an NVLink domain use NVLink.

NVIDIA's DRA driver creates the ResourceClaimTemplate that a ComputeDomain names, and gives an IMEX
channel to each pod that claims from this template. Source: NVIDIA/k8s-dra-driver-gpu,
api/nvidia.com/resource/v1beta1/computedomain.go.
"""

from __future__ import annotations

from typing import Any

CLAIM = "imex"
"""Name of the claim in a pod."""


def compute_domain(name: str, metadata: dict[str, Any], hosts: int) -> dict[str, Any]:
    """Return the ComputeDomain ``name`` for pods on ``hosts`` hosts.

    Hosts of several NVLink domains may share it: the driver forms a group per domain.
    """
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": name, **metadata},
        "spec": {
            # Older drivers start the domain only when this number of hosts has joined.
            "numNodes": hosts,
            "channel": {"resourceClaimTemplate": {"name": _template(name)}},
        },
    }


def claim_channel(spec: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the pod spec ``spec`` with a claim of a channel of the ComputeDomain ``name``."""
    (container,) = spec["containers"]
    resources = {**container["resources"], "claims": [{"name": CLAIM}]}
    return {
        **spec,
        "containers": [{**container, "resources": resources}],
        "resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": _template(name)}],
    }


def _template(name: str) -> str:
    return f"{name}-{CLAIM}"
