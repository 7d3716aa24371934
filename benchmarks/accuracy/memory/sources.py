"""Sources of the memory readings, and the locked third of them that no fit may see.

The rule is that of ``sources``: a document is one source, and the locked sources were drawn once,
by the same seed. Sources of training runs that are locked there are locked here too. A functional
test of Megatron on one GPU type is one document, because each has its own file of records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.accuracy.sources import LOCKED, Kind, draw_locked, source_of

FLAGPERF = "FlagOpen/FlagPerf"


def draw_locked_readings(readings: Sequence[tuple[str, Kind]]) -> list[str]:
    """Return the names of the locked sources, sorted, as drawn from ``readings``.

    A reading is (source, kind). Locked sources of training runs stay locked, and count towards the
    locked third.
    """
    return draw_locked(readings, LOCKED)


LOCKED_TESTS = frozenset(
    {
        "gpt-gpt3_15b_8t_release_sm_gb200-h100-80",
        "gpt-gpt3_7b_tp1_pp4_memory_speed-gb200",
        "gpt-gpt3_mcore_te_tp1_pp1_dist_optimizer_fim_dataset-h100-80",
        "gpt-gpt3_mcore_te_tp1_pp2_resume_torch_dist_rope_embeddings-h100-80",
        "gpt-gpt3_mcore_te_tp1_pp4_vp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_untied"
        "-h100-80",
        "gpt-gpt3_mcore_te_tp1_pp4_vp2_account_for_embedding_loss_in_pipeline_split-h100-80",
        "gpt-gpt3_mcore_te_tp2_zp_z3_resume_fsdp_dtensor-h100-80",
        "gpt-gpt3_mcore_te_tp4_pp1_resume_torch_dist_qk_layernorm_test_mode-h100-80",
        "gpt-gpt3_mcore_te_tp4_pp2_frozen_resume_torch_dist_reshard_8x1xNone-h100-80",
        "gpt-gpt3_mcore_tp1_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_param_gather"
        "-h100-80",
        "moe-gpt3_mcore_te_tp1_pp1_te_4experts_groupedGEMM_op_fuser-h100-80",
        "moe-gpt3_mcore_te_tp2_pp2_ep4_etp1_memory_speed-h100-80",
        "moe-gpt3_mcore_te_tp2_pp2_ep4_etp1_selective_recompute_experimental-h100-80",
        "moe-gpt3_mcore_te_tp2_zp_z3_resume_torch_dist_te_8experts2parallel_top2router-h100-80",
        "moe-gpt3_mcore_tp2_cp2_pp2_ep2_te_4experts2parallel-h100-80",
    }
)
"""Locked functional tests of Megatron, as the ids of their readings."""
LOCKED_DOCUMENTS = frozenset(
    {
        "Lightning-AI/litgpt tutorials/resource-tables.md",
        "NVIDIA-NeMo/Megatron-Bridge skills/*.md",
        "bigscience train/tr11-176B-ml/prequel.md",
        "hpcaitech/ColossalAI README.md",
        "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md",
    }
)
"""The other locked sources, as drawn from 59 sources of 237 readings. A source that is added later
is open."""


def is_locked_row(row: Mapping[str, str]) -> bool:
    """Return True if a row of published/memory.csv comes from a locked source."""
    return row["id"] in LOCKED_TESTS or source_of(row["source"]) in LOCKED_DOCUMENTS


def document_of(source: str) -> str:
    """Return the document of a reading for the fit of intervals, where each document counts once.

    All functional tests of Megatron are one, and so are all pages of FlagPerf, whose readings come
    from one program.
    """
    if source.startswith(FLAGPERF):
        return FLAGPERF
    return source_of(source.partition(" test_cases/")[0])
