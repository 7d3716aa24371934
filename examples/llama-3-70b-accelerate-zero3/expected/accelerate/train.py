"""Train the model of accelerate/job.json with a plain loop. Requires torch, accelerate and transformers;
run it with `accelerate launch` and config.yaml in this folder, once per host.

hf_model.py builds the model, data.py reads the training data.
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
from data import announce, sequence
from hf_model import build_model, loss_of, pretrained_model
from learning_rate import learning_rate
from start import ADAPTERS, EXPORT, SAVE, Start, find_start, pretrained_weights
from torch.utils.data import DataLoader, Dataset

JOB = json.loads(Path(__file__).with_name("job.json").read_text("utf-8"))
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Sequences(Dataset):
    """Training sequences; sequence n does not depend on the number of ranks."""

    def __init__(self, steps: int, vocab: int) -> None:
        self.count, self.vocab = steps * JOB["global_batch"], vocab

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> torch.Tensor:
        return sequence(number, self.vocab)


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
    torch.manual_seed(JOB["seed"])
    model = pretrained_model() if pretrained_weights() else build_model()
    if JOB["gradient_checkpointing"]:
        model.gradient_checkpointing_enable()
    return model.train()


def optimizer_of(model: torch.nn.Module, accelerator: Accelerator) -> torch.optim.Optimizer:
    """Return AdamW; with DeepSpeed a dummy, because its config defines optimizer and schedule."""
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        return DummyOptim(model.parameters())
    return torch.optim.AdamW(
        [one for one in model.parameters() if one.requires_grad],
        lr=JOB["learning_rate"],
        betas=(JOB["adam_beta1"], JOB["adam_beta2"]),
        eps=JOB["adam_epsilon"],
        weight_decay=JOB["weight_decay"],
        fused=True,  # one kernel instead of ten: the other implementations move 2.5 times the bytes
    )


def newest(folder: str) -> str | None:
    """Return the newest checkpoint in a folder, if any."""
    names = [str(one) for one in Path(folder).glob("step-*")]
    return max(names, key=step_of, default=None)


def step_of(checkpoint: str) -> int:
    """Return the number of steps of a checkpoint."""
    return int(checkpoint.rpartition("-")[2])


def load(accelerator: Accelerator, start: Start, steps: int) -> int:
    """Load the checkpoint from which the run starts, if any, and return its number of steps."""
    if not start.checkpoint:
        return 0
    done = step_of(start.checkpoint)
    start.check_steps(done, steps)
    accelerator.load_state(start.checkpoint)
    return done


def export(accelerator: Accelerator, model: torch.nn.Module) -> None:
    """Save the trained weights in the format of Hugging Face or peft."""
    whole, state = accelerator.unwrap_model(model), accelerator.get_state_dict(model)
    main, folder = accelerator.is_main_process, f"{SAVE}/{EXPORT}"
    if ADAPTERS and main:
        from adapters import save_adapter

        save_adapter(whole, folder, state)
    elif not ADAPTERS:
        whole.save_pretrained(folder, is_main_process=main, state_dict=state)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=JOB["steps"])
    args = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_plugin=accumulation())  # other settings: config.yaml
    if accelerator.is_main_process:
        announce()
    start = find_start(newest, "step-N", reads_weights=False)
    if accelerator.is_fsdp2:
        set_reduce_format(accelerator)
    model = build()
    optimizer = optimizer_of(model, accelerator)
    loader = DataLoader(Sequences(args.steps, model.config.vocab_size), batch_size=JOB["micro_batch"])
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step, losses, begin = load(accelerator, start, args.steps), [], time.perf_counter()
    batches = accelerator.skip_first_batches(loader, step * JOB["gradient_accumulation_steps"])
    for tokens in batches:
        if accelerator.distributed_type != DistributedType.DEEPSPEED:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, JOB)
        with accelerator.accumulate(model):
            if accelerator.is_fsdp2:  # all-reduce over replicas once per step
                model.set_requires_all_reduce(accelerator.sync_gradients)
            loss = loss_of(model, tokens)
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
        seconds = time.perf_counter() - begin
        accelerator.print(f"step {step} loss {mean:.6f} seconds {seconds:.3f}", flush=True)
        losses, begin = [], time.perf_counter()
        due = step % JOB["checkpoint_interval"] == 0 or step == args.steps
        if SAVE and due:
            accelerator.save_state(f"{SAVE}/step-{step}")
    if SAVE:
        export(accelerator, model)
    accelerator.end_training()


if __name__ == "__main__":
    main()
