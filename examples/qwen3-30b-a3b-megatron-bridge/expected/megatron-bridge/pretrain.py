#!/usr/bin/env python3
"""Pretrain with Megatron-Bridge and the settings of config.yaml, fields of its ConfigContainer.

    pretrain.py [--config-file FILE] [OVERRIDE ...]

An override sets one field, in the syntax of Hydra: train.train_iters=10
"""

from argparse import ArgumentParser
from functools import partial
from pathlib import Path

from megatron.bridge.models.gpt_provider import GPTModelProvider
from megatron.bridge.models.mla_provider import MLAModelProvider
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.config import (
    CheckpointConfig,
    ConfigContainer,
    DistributedDataParallelConfig,
    DistributedInitConfig,
    GPTDatasetConfig,
    LoggerConfig,
    OptimizerConfig,
    ProfilingConfig,
    RNGConfig,
    SchedulerConfig,
    TokenizerConfig,
    TrainingConfig,
    ValidationConfig,
)
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import bf16_mixed
from megatron.bridge.training.pretrain import pretrain
from megatron.bridge.training.utils.checkpoint_utils import checkpoint_exists, is_hf_checkpoint_dir
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from omegaconf import OmegaConf


def recipe(file: str, overrides: list[str]) -> ConfigContainer:
    """Return the configuration in `file`, changed by `overrides`."""
    model = OmegaConf.load(file).model
    provider = MLAModelProvider() if model.multi_latent_attention else GPTModelProvider()
    if model.get("num_moe_experts"):
        # The default has one specification for all layers, which are then all dense or all routed.
        provider.transformer_layer_spec = partial(get_gpt_decoder_block_spec, use_transformer_engine=True)
    config = ConfigContainer(
        model=provider,
        train=TrainingConfig(),
        validation=ValidationConfig(),
        optimizer=OptimizerConfig(),
        scheduler=SchedulerConfig(),
        ddp=DistributedDataParallelConfig(),
        comm_overlap=CommOverlapConfig(tp_comm_overlap=False),
        mixed_precision=bf16_mixed(),
        dataset=GPTDatasetConfig(
            seq_length=0,
            random_seed=0,
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            dataloader_type="single",
        ),
        tokenizer=TokenizerConfig(),
        checkpoint=CheckpointConfig(),
        logger=LoggerConfig(),
        profiling=ProfilingConfig(),
        rng=RNGConfig(),
        dist=DistributedInitConfig(),
    )
    config = process_config_with_overrides(config, file, overrides)
    if config.model.window_size is not None:
        config.model.window_size = tuple(config.model.window_size)
    return config


def choose_checkpoint(checkpoint: CheckpointConfig) -> None:
    """Continue from the run's own checkpoints once there are some, until then from another folder."""
    if checkpoint.save and checkpoint_exists(checkpoint.save):
        checkpoint.load = checkpoint.save
    elif checkpoint.load and checkpoint.load != checkpoint.save:
        if not (checkpoint_exists(checkpoint.load) or is_hf_checkpoint_dir(checkpoint.load)):
            raise SystemExit(f"checkpoint.load: {checkpoint.load} contains no checkpoint")


def main() -> None:
    """Train; data is random tokens if config.yaml has no dataset.data_path."""
    parser = ArgumentParser(allow_abbrev=False)
    parser.add_argument("--config-file", default=str(Path(__file__).with_name("config.yaml")))
    given, overrides = parser.parse_known_args()
    config = recipe(given.config_file, overrides)
    choose_checkpoint(config.checkpoint)
    pretrain(config=config, forward_step_func=forward_step)


if __name__ == "__main__":
    main()
