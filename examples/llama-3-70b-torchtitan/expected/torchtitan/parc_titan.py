"""Configuration for torchtitan 0.3.0: python -m torchtitan.train --module parc_titan --config run.

torchtitan imports this module from PYTHONPATH, which must contain this folder.
"""

from functools import partial

from torch import nn
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.config_utils import (
    get_attention_config,
    make_ffn_config,
    make_gqa_config,
)
from torchtitan.models.common.param_init import depth_scaled_std, skip_param_init
from torchtitan.models.llama3 import parallelize_llama
from torchtitan.models.llama3.model import Llama3Model, Llama3TransformerBlock
from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.trainer import Trainer

SIZES = dict(
    dim=8192,
    n_layers=80,
    n_heads=64,
    n_kv_heads=8,
    head_dim=128,
    hidden_dim=28672,
    vocab_size=128256,
    norm_eps=1e-05,
    enable_weight_tying=False,
)
ROPE = dict(
    dim=128,
    max_seq_len=8192,
    theta=500000.0,
    scaling="none",
)


def weights(std: float) -> dict:
    return {"weight": partial(nn.init.trunc_normal_, std=std), "bias": nn.init.zeros_}


def norm() -> RMSNorm.Config:
    ones = {"weight": nn.init.ones_}
    return RMSNorm.Config(
        normalized_shape=SIZES["dim"], eps=SIZES["norm_eps"], param_init=ones
    )


def block(layer: int) -> Llama3TransformerBlock.Config:
    out = weights(depth_scaled_std(0.02, layer))
    return Llama3TransformerBlock.Config(
        attention_norm=norm(),
        ffn_norm=norm(),
        attention=make_gqa_config(
            dim=SIZES["dim"],
            n_heads=SIZES["n_heads"],
            n_kv_heads=SIZES["n_kv_heads"],
            head_dim=SIZES["head_dim"],
            wqkv_param_init=weights(0.02),
            wo_param_init=out,
            inner_attention=get_attention_config("flex"),
            fuse_qkv=True,
            rope=ComplexRoPE.Config(**ROPE),
        ),
        feed_forward=make_ffn_config(
            dim=SIZES["dim"],
            hidden_dim=SIZES["hidden_dim"],
            w1_param_init=weights(0.02),
            w2w3_param_init=out,
        ),
    )


def model() -> ModelSpec:
    dim, vocab, tied = SIZES["dim"], SIZES["vocab_size"], SIZES["enable_weight_tying"]
    first = skip_param_init if tied else partial(nn.init.normal_, std=1.0)
    config = Llama3Model.Config(
        dim=dim,
        vocab_size=vocab,
        enable_weight_tying=tied,
        tok_embeddings=Embedding.Config(
            num_embeddings=vocab, embedding_dim=dim, param_init={"weight": first}
        ),
        norm=norm(),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=weights(dim**-0.5)),
        layers=[block(layer) for layer in range(SIZES["n_layers"])],
    )
    return ModelSpec(
        name="llama3",
        flavor="parc",
        model=config,
        parallelize_fn=parallelize_llama,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=None,
        state_dict_adapter=Llama3StateDictAdapter,
    )


def stages(layers: list[int]) -> list[list[str]]:
    """Return the module names of each virtual stage from its number of layers."""
    parts, first = [], 0
    for count in layers:
        parts.append([f"layers.{number}" for number in range(first, first + count)])
        first += count
    return [["tok_embeddings", *parts[0]], *parts[1:-1], [*parts[-1], "norm", "lm_head"]]


def run() -> Trainer.Config:
    spec = model()
    return Trainer.Config(
        model_spec=spec,
        hf_assets_path="./assets/hf",
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(global_vocab_size=spec.model.vocab_size)
        ),
        optimizer=default_adamw(lr=0.0001, betas=(0.9, 0.95), eps=1e-08, weight_decay=0.1),
        lr_scheduler=LRSchedulersContainer.Config(
            warmup_steps=10,
            total_steps=1000,
            decay_type="cosine",
            min_lr_factor=0.1,
        ),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),
        training=TrainingConfig(
            local_batch_size=64,
            global_batch_size=512,
            seq_len=8192,
            steps=1000,
            mixed_precision_param="bfloat16",
            mixed_precision_reduce="float32",
            disable_cuda_graphs=True,
            max_norm=1.0,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=1,
            data_parallel_shard_degree=8,
            fsdp_reshard_after_forward="never",
            context_parallel_degree=2,
            tensor_parallel_degree=4,
            enable_sequence_parallel=True,
            expert_parallel_degree=1,
            pipeline_parallel_degree=4,
            pipeline_parallel_schedule="ZBVZeroBubble",
            pipeline_parallel_microbatch_size=1,
            module_fqns_per_model_part=stages([10, 11, 10, 10, 10, 10, 10, 9]),
        ),
        checkpoint=CheckpointManager.Config(
            enable=False,
            interval=315,
        ),
        activation_checkpoint=SelectiveAC.Config(),
        debug=DebugConfig(seed=1234),
    )
