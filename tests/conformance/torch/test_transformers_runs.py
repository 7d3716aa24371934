"""The programs that build models with transformers train: four ranks reach one process's losses.

Every family and strategy was run in the same way by hand; this file keeps one run per program.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.real_runs import reference, run_script, write_planned_files
from tests.conformance.torch.test_accelerate_runs import CPU_RANKS, set_fp32

pytestmark = pytest.mark.conformance
REFERENCE = Path(__file__).with_name("reference_transformers.py")
SIZES = {
    **{"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 128},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
"""Keys that all families here share."""
MIXTRAL = SIZES | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
QWEN3 = SIZES | {"model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": False}
ERNIE = SIZES | {
    **{"model_type": "ernie4_5_moe", "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32},
    "tie_word_embeddings": False,
}
"""A model whose class sets the router to zeros, where it is created and nowhere else."""
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
LFM2 = SIZES | {
    **{"model_type": "lfm2", "layer_types": ["conv", "full_attention"]},
    "block_auto_adjust_ff_dim": False,
}
FALCON_H1 = SIZES | {
    **{"model_type": "falcon_h1", "mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8},
    **{"mamba_d_state": 16, "tie_word_embeddings": False},
}
JAMBA = SIZES | {
    **{"model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 1},
    **{"num_experts": 4, "mamba_d_state": 8},
}
DEEPSEEK_V4 = SIZES | {
    **{"model_type": "deepseek_v4", "num_hidden_layers": 3, "num_key_value_heads": 1},
    **{"layer_types": ["sliding_attention", *COMPRESSED], "sliding_window": 8, "hc_mult": 2},
    **{"compress_rates": dict(zip(COMPRESSED, (4, 8), strict=True)), "num_hash_layers": 1},
    **{"head_dim": 32, "qk_rope_head_dim": 16, "q_lora_rank": 32, "o_groups": 2, "o_lora_rank": 16},
    **{"index_n_heads": 2, "index_head_dim": 32, "index_topk": 4, "tie_word_embeddings": False},
    **{"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
}
UNSET_WEIGHTS = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
import hf_model
torch.use_deterministic_algorithms(True)  # also fills new memory with nan
model = hf_model.build_model()
hf_model.initialize(model)
tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
print("unset:", [name for name, one in tensors.items() if not one.isfinite().all()])
print("router:", *[float(one.norm()) for name, one in tensors.items() if "gate.weight" in name])
"""
OPTIMIZER: dict[str, Any] = {
    **{"learning_rate": 0.01, "lr_decay": "constant", "warmup_steps": 0, "gradient_clipping": 0.5},
    **{"adam_beta1": 0.8, "adam_beta2": 0.9, "adam_epsilon": 1e-6, "weight_decay": 0.3},
}


def write_files(config: dict[str, Any], spec: dict[str, Any], folder: Path) -> None:
    """Write the files of a spec whose model is ``config``, changed for a CPU: fp32."""
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(config))
    whole = {
        **{"parc": 1, "name": "tiny", "model": "model/config.json"},
        "cluster": {"node": {"base": "dgx-h100", "gpus_per_node": 4, "nvlink_domain": 4}},
        **spec,
        "job": {"sequence_length": 32, "global_batch": 8, "steps": 3} | OPTIMIZER | spec["job"],
        "layout": {"micro_batch": 1} | spec["layout"],
        "emit": [*spec["emit"], "torchrun"],
    }
    whole["cluster"]["nodes"] = 1
    write_planned_files(whole, folder)


def losses(output: str) -> list[float]:
    return [float(one) for one in re.findall(r"step \d+ loss (\d+\.\d{6})", output)]


def test_fsdp_trains_experts_with_hybrid_sharding_and_saves_them(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    job = {"checkpoint_dir": str(saved), "checkpoint_interval": 2}
    layout = {"zero_stage": 3, "dp_shard": 2, "recompute": "full"}
    write_files(MIXTRAL, {"job": job, "layout": layout, "emit": ["fsdp"]}, tmp_path)
    output = run_script(tmp_path / "torchrun/launch.sh", "--device", "cpu", "--dtype", "fp32")
    alone = losses(reference(REFERENCE, str(tmp_path / "fsdp")))
    assert "NO DATA: this run trains on random tokens" in output
    assert losses(output) == pytest.approx(alone, abs=2e-6)
    assert len(alone) == 3
    written = json.loads((saved / "hugging-face/config.json").read_text())
    assert written["architectures"] == ["MixtralForCausalLM"]
    assert (saved / "hugging-face/model.safetensors").exists()
    assert {one.name for one in saved.glob("step-*")} == {"step-2", "step-3"}
    assert all((one / ".metadata").exists() for one in saved.glob("step-*"))


def test_fsdp_splits_a_model_by_its_own_plan_resumes_and_saves_whole_weights(
    tmp_path: Path,
) -> None:
    saved = tmp_path / "saved"
    job = {"checkpoint_dir": str(saved), "checkpoint_interval": 2}
    layout = {"tp": 2, "zero_stage": 3, "recompute": "full"}
    tied = QWEN3 | {"tie_word_embeddings": True}
    write_files(tied, {"job": job, "layout": layout, "emit": ["fsdp"]}, tmp_path)
    script, words = tmp_path / "torchrun/launch.sh", ("--device", "cpu", "--dtype", "fp32")
    alone = losses(reference(REFERENCE, str(tmp_path / "fsdp")))
    assert losses(run_script(script, *words, "--steps", "1")) == pytest.approx(alone[:1], abs=2e-6)
    assert losses(run_script(script, *words)) == pytest.approx(alone[1:], abs=2e-6)
    written = (saved / "hugging-face/model.safetensors").read_bytes()
    header = json.loads(written[8 : 8 + int.from_bytes(written[:8], "little")])
    shapes = {name: one["shape"] for name, one in header.items() if name != "__metadata__"}
    assert shapes["model.layers.0.self_attn.q_proj.weight"] == [64, 64]
    assert shapes["model.layers.1.mlp.down_proj.weight"] == [64, 128]


@pytest.mark.parametrize(
    "config", [LFM2, FALCON_H1, JAMBA, DEEPSEEK_V4], ids=lambda one: str(one["model_type"])
)
def test_fsdp_shards_layers_of_unusual_kinds(config: dict[str, Any], tmp_path: Path) -> None:
    write_files(config, {"job": {}, "layout": {"zero_stage": 3}, "emit": ["fsdp"]}, tmp_path)
    output = run_script(tmp_path / "torchrun/launch.sh", "--device", "cpu", "--dtype", "fp32")
    alone = losses(reference(REFERENCE, str(tmp_path / "fsdp")))
    assert losses(output) == pytest.approx(alone, abs=2e-6)
    assert len(set(alone)) == 3


def test_fsdp_keeps_weights_that_are_set_only_where_they_are_created(tmp_path: Path) -> None:
    write_files(ERNIE, {"job": {}, "layout": {"zero_stage": 3}, "emit": ["fsdp"]}, tmp_path)
    program = tmp_path / "unset_weights.py"
    program.write_text(UNSET_WEIGHTS)
    assert reference(program, str(tmp_path / "fsdp")) == "unset: []\nrouter: 0.0\n"


def test_deepspeed_trains_a_model_with_tied_embeddings_in_shards(tmp_path: Path) -> None:
    job = {"warmup_steps": 2}
    spec = {"job": job, "layout": {"zero_stage": 3}, "launch": {"program": "transformers"}}
    tied = QWEN3 | {"tie_word_embeddings": True}
    write_files(tied, {**spec, "emit": ["deepspeed"]}, tmp_path)
    set_fp32(tmp_path / "deepspeed/ds_config.json")
    found = losses(run_script(tmp_path / "torchrun/launch.sh"))
    assert found == pytest.approx(
        losses(reference(REFERENCE, str(tmp_path / "deepspeed"))), abs=2e-6
    )
    assert len(set(found)) == 3


def test_the_trainer_reaches_the_losses_of_a_plain_loop(tmp_path: Path) -> None:
    job = {"gradient_precision": "bf16"}
    spec = {"job": job, "layout": {"zero_stage": 3}, "launch": {"program": "trainer"}}
    write_files(QWEN3, {**spec, "emit": ["accelerate"]}, tmp_path)
    config, program = tmp_path / "accelerate/config.yaml", tmp_path / "accelerate/hf_trainer.py"
    config.write_text(config.read_text().replace("mixed_precision: bf16", "mixed_precision: 'no'"))
    (tmp_path / "accelerate/cpu_ranks.py").write_text(CPU_RANKS.read_text())
    text = program.read_text().replace("import os\n", "import os\nimport cpu_ranks\n", 1)
    program.write_text(text)
    output = run_script(tmp_path / "torchrun/launch.sh", ACCELERATE_TORCH_DEVICE="cpu")
    found = [float(one) for one in re.findall(r"'loss': '?(\d+\.\d+)", output)]
    alone = losses(reference(REFERENCE, str(tmp_path / "accelerate")))
    assert found == pytest.approx(alone, abs=1e-3)  # the Trainer prints four digits
    assert len(alone) == 3


@pytest.mark.parametrize("target", ["fsdp", "deepspeed"])
def test_fine_tuning_starts_with_the_exported_weights_of_another_run(
    target: str, tmp_path: Path
) -> None:
    words = ("--device", "cpu", "--dtype", "fp32") if target == "fsdp" else ()
    base, losses_of = tmp_path / "base", []
    jobs = (
        {"checkpoint_dir": str(base), "warmup_steps": 2},
        {"kind": "finetune", "load_dir": str(base), "warmup_steps": 2},
    )
    for number, job in enumerate(jobs):
        folder = tmp_path / str(number)
        folder.mkdir()
        spec = {"job": job, "layout": {"zero_stage": 3}, "launch": {"program": "transformers"}}
        write_files(QWEN3, {**spec, "emit": [target]}, folder)
        if target == "deepspeed":
            set_fp32(folder / "deepspeed/ds_config.json")
        losses_of.append(losses(run_script(folder / "torchrun/launch.sh", *words)))
    first, second = losses_of
    assert len(first) == len(second) == 3
    assert second[0] < first[0] - 0.01  # the first batch, which the base run has learned
