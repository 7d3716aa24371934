"""Instance types of clouds -> node types of the catalog."""

from __future__ import annotations

_INSTANCE_NODES = {
    "p4d.24xlarge": "aws-p4d",
    "p4de.24xlarge": "aws-p4de",
    "p5.48xlarge": "aws-p5",
    "p5e.48xlarge": "aws-p5e",
    "p5en.48xlarge": "aws-p5en",
    "p6-b200.48xlarge": "aws-p6-b200",
    "p6-b300.48xlarge": "aws-p6-b300",
    "a3-megagpu-8g": "gcp-a3-mega",
    "a3-ultragpu-8g": "gcp-a3-ultra",
    "a4-highgpu-8g": "gcp-a4",
    "Standard_ND96amsr_A100_v4": "azure-nd-a100-v4",
    "Standard_ND96isr_H100_v5": "azure-nd-h100-v5",
    "Standard_ND96isr_H200_v5": "azure-nd-h200-v5",
    "Standard_ND128isr_NDR_GB200_v6": "gb200-nvl72",
    "Standard_ND96isr_MI300X_v5": "azure-nd-mi300x-v5",
}
"""Instance type of a cloud (Kubernetes label ``node.kubernetes.io/instance-type``) -> node type."""


def node_of_instance_type(text: str) -> str:
    """Return the node type of a cloud's instance type, such as p5.48xlarge; empty if unknown."""
    # Instance types of SageMaker are those of EC2 with a prefix.
    return _INSTANCE_NODES.get(text.removeprefix("ml."), "")
