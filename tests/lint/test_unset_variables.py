"""Batch scripts of Megatron without CUDA_DEVICE_MAX_CONNECTIONS (N08)."""

from __future__ import annotations

import pytest

from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import MEGATRON, codes

NAME = "CUDA_DEVICE_MAX_CONNECTIONS"
HEAD = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsource v/bin/activate\n"
LAUNCH = "torchrun --nproc-per-node 8 --nnodes 4"
BATCH = MEGATRON.replace("#!/bin/bash\n", HEAD).replace(
    LAUNCH, f"srun {LAUNCH} --rdzv-backend c10d --rdzv-endpoint $HEAD:29500"
)
TP = "--tensor-model-parallel-size 4"


def found(text: str, cluster: str = "dgx-h100") -> list[str]:
    """Return the codes of a script on a cluster."""
    return codes(text, LintOptions(cluster=cluster))


def test_a_batch_script_without_the_variable_is_reported_before_blackwell() -> None:
    assert found(BATCH) == ["N08"]
    assert found(BATCH, "dgx-a100") == ["N08"]
    assert found(BATCH, "dgx-b200") == []
    assert codes(BATCH) == []  # the GPU is unknown


def test_context_parallelism_needs_the_variable_too() -> None:
    context = BATCH.replace(TP, "--context-parallel-size 2").replace(
        "    --sequence-parallel \\\n", ""
    )
    assert found(context) == ["N08"]
    assert "N08" not in found(context.replace("parallel-size 2", "parallel-size 1"))


@pytest.mark.parametrize(
    "text",
    [
        MEGATRON,
        BATCH.replace("source v", f"export {NAME}=1\nsource v"),
        BATCH.replace("source v", f'[ "$X" ] && export {NAME}=1\nsource v'),
        BATCH.replace("source v/bin/activate", "source env.sh"),
        BATCH.replace("srun ", "srun --container-image=nvcr.io/nvidia/pytorch:25.06-py3 "),
        BATCH.replace("srun ", "srun apptainer exec --nv image.sif "),
        BATCH.replace("pretrain_gpt.py", "my_pretraining.py"),
        BATCH.replace("--bf16", "--bf16 $MORE"),
        BATCH.replace(TP, "--tensor-model-parallel-size $TP"),
    ],
)
def test_a_variable_that_may_be_set_elsewhere_causes_no_finding(text: str) -> None:
    assert "N08" not in found(text)
