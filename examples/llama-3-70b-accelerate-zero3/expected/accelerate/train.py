"""Train a Llama with the sizes in accelerate/job.json. Requires torch, accelerate and transformers; start
it with torchrun/launch.sh, which runs `accelerate launch` with config.yaml in this folder.

Data: random tokens, or the files of int32 token ids that `data` in job.json lists.
"""

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, DummyOptim, GradientAccumulationPlugin
from learning_rate import learning_rate
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, LlamaConfig

JOB = json.loads(Path(__file__).with_name("job.json").read_text("utf-8"))
SEED = JOB["seed"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Sequences(Dataset):
    """Training sequences; sequence n does not depend on the number of ranks."""

    def __init__(self, steps: int) -> None:
        self.count = steps * JOB["global_batch"]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict:
        length = JOB["sequence_length"]
        if JOB["data"]:
            path = JOB["data"][number % len(JOB["data"])]
            size = os.path.getsize(path) // 4
            place = number * length % (size - length + 1)
            tokens = torch.from_file(path, size=size, dtype=torch.int32)[place : place + length].long()
        else:
            generator = torch.Generator().manual_seed(SEED + number)
            vocab = JOB["model"]["vocab_size"]
            tokens = torch.randint(vocab, (length,), generator=generator)
        return {"input_ids": tokens, "labels": tokens}


def accumulation() -> GradientAccumulationPlugin:
    """Return the accumulation settings.

    With FSDP2, the gradients of every micro-batch are reduce-scattered, because unsharded
    gradients would need too much memory.
    """
    return GradientAccumulationPlugin(
        num_steps=JOB["gradient_accumulation_steps"],
        sync_each_batch=os.environ.get("ACCELERATE_USE_FSDP") == "true",
    )


def set_reduce_format(accelerator: Accelerator) -> None:
    """Let FSDP2 reduce gradients in the planned format; Accelerate's default is that of the weights."""
    plugin = accelerator.state.fsdp_plugin
    if plugin.mixed_precision_policy is not None:
        plugin.mixed_precision_policy = dataclasses.replace(
            plugin.mixed_precision_policy, reduce_dtype=DTYPES[JOB["reduce_dtype"]]
        )


def build() -> torch.nn.Module:
    """Return the model; with DeepSpeed's ZeRO-3, transformers creates it in shards."""
    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_config(LlamaConfig(**JOB["model"], use_cache=False))
    if JOB["gradient_checkpointing"]:
        model.gradient_checkpointing_enable()
    return model


def optimizer_of(model: torch.nn.Module, accelerator: Accelerator) -> torch.optim.Optimizer:
    """Return AdamW; with DeepSpeed a dummy, because ds_config.json defines optimizer and schedule."""
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        return DummyOptim(model.parameters())
    return torch.optim.AdamW(
        model.parameters(),
        lr=JOB["learning_rate"],
        betas=(JOB["adam_beta1"], JOB["adam_beta2"]),
        eps=JOB["adam_epsilon"],
        weight_decay=JOB["weight_decay"],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=JOB["steps"])
    args = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_plugin=accumulation())  # other settings: config.yaml
    if accelerator.is_fsdp2:
        set_reduce_format(accelerator)
    model = build()
    optimizer = optimizer_of(model, accelerator)
    loader = DataLoader(Sequences(args.steps), batch_size=JOB["micro_batch"])
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if JOB["load_dir"]:
        accelerator.load_state(JOB["load_dir"])
    step, losses, start = 0, [], time.perf_counter()
    for batch in loader:
        if accelerator.distributed_type != DistributedType.DEEPSPEED:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, JOB)
        with accelerator.accumulate(model):
            if accelerator.is_fsdp2:  # all-reduce over replicas once per step
                model.set_requires_all_reduce(accelerator.sync_gradients)
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients and JOB["max_norm"]:
                accelerator.clip_grad_norm_(model.parameters(), JOB["max_norm"])
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
        if not accelerator.sync_gradients:
            continue
        step += 1
        mean = accelerator.reduce(torch.stack(losses).mean(), "mean").item()
        seconds = time.perf_counter() - start
        accelerator.print(f"step {step} loss {mean:.6f} seconds {seconds:.3f}", flush=True)
        losses, start = [], time.perf_counter()
        if JOB["checkpoint_dir"] and step % JOB["checkpoint_interval"] == 0:
            accelerator.save_state(f"{JOB['checkpoint_dir']}/step-{step}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
