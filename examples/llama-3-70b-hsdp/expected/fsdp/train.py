"""Train the model of fsdp/config.json. Run it with torchrun, as one process per GPU.

A model with a `source` in the config is built by transformers, any other by PARC's own decoder. data.py
reads the training data.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from data import announce, sequence
from learning_rate import learning_rate
from parallelize import CONFIG, DTYPES, apply, build_mesh, data_parallel_place, replicate
from start import ADAPTERS, EXPORT, SAVE, Start, find_start
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

if "source" in CONFIG["model"]:
    from hf_model import build_model, initialize, loss_of
else:
    from model import build_model, initialize, loss_of


def micro_batches(step: int, mesh: DeviceMesh) -> Iterator[torch.Tensor]:
    """Yield this rank's micro-batches of a step, equal within a tensor-parallel group."""
    place, places = data_parallel_place(mesh)
    size = CONFIG["micro_batch"]
    for number in range(CONFIG["gradient_accumulation_steps"]):
        first = step * CONFIG["global_batch"] + (number * places + place) * size
        rows = range(first, first + size)
        yield torch.stack([sequence(row, CONFIG["model"]["vocab"]) for row in rows])


def backward(model: nn.Module, tokens: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Accumulate the gradients of one micro-batch and return its loss."""
    ddp = CONFIG["strategy"] == "ddp" and dtype != torch.float32
    with torch.autocast(tokens.device.type, dtype) if ddp else contextlib.nullcontext():
        loss = loss_of(model, tokens)
    (loss / CONFIG["gradient_accumulation_steps"]).backward()
    return loss.detach()


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[torch.Tensor], dtype: torch.dtype
) -> torch.Tensor:
    """Run one optimizer step and return the mean loss of this rank's micro-batches."""
    losses = []
    for number, tokens in enumerate(batches):
        last = number == len(batches) - 1
        waiting: contextlib.AbstractContextManager = contextlib.nullcontext()
        if CONFIG["strategy"] == "ddp" and not last:
            waiting = model.no_sync()
        elif CONFIG["strategy"] == "hsdp":
            model.set_requires_all_reduce(last)  # all-reduce over replicas once per step
        with waiting:
            losses.append(backward(model, tokens, dtype))
    if CONFIG["max_norm"]:
        clip_gradients(optimizer)
    optimizer.step()
    optimizer.zero_grad(set_to_none=CONFIG["strategy"] != "ddp")  # DDP's gradients stay in its buckets
    return torch.stack(losses).mean()


def clip_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Scale all gradients so that their norm is at most ``max_norm``; no group of weights has two meshes."""
    groups = [group["params"] for group in optimizer.param_groups]
    norms = [nn.utils.get_total_norm([one.grad for one in group if one.grad is not None]) for group in groups]
    whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    total = nn.utils.get_total_norm(whole)
    for group in groups:
        nn.utils.clip_grads_with_norm_(group, CONFIG["max_norm"], total)


def settle_buckets(model: nn.Module, tokens: torch.Tensor, dtype: torch.dtype) -> None:
    """Make all gradients views of DDP's buckets, before the first step.

    DDP builds its buckets again after its first backward pass. Gradients that it has not reduced yet
    would be a second copy beside the buckets.
    """
    for stays in (False, True):
        backward(model, tokens, dtype)
        model.zero_grad(set_to_none=not stays)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW; the training loop sets the learning rate before each step.

    Weights on different meshes are in different groups, because no operation of DTensor mixes them:
    tensor parallelism splits only some of the weights of a model of transformers.
    """
    groups: dict[object, list[nn.Parameter]] = {}
    for one in model.parameters():
        if one.requires_grad:
            groups.setdefault(getattr(one, "device_mesh", None), []).append(one)
    return torch.optim.AdamW(
        [{"params": group} for group in groups.values()],
        lr=CONFIG["learning_rate"],
        betas=(CONFIG["adam_beta1"], CONFIG["adam_beta2"]),
        eps=CONFIG["adam_epsilon"],
        weight_decay=CONFIG["weight_decay"],
        fused=True,  # one kernel instead of ten: the other implementations move 2.5 times the bytes
    )


def build(mesh: DeviceMesh, device: torch.device, dtype: torch.dtype | None) -> nn.Module:
    """Return the parallelized model with initialized weights."""
    with torch.device("meta"):
        model = build_model()
    apply(model, mesh, dtype)
    model.to_empty(device=device)
    initialize(model)
    return replicate(model, mesh) if CONFIG["strategy"] == "ddp" else model


def newest(folder: str) -> str | None:
    """Return the newest complete checkpoint in ``folder``, or ``folder`` if it is one."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    found = [folder, *(f"{folder}/{name}" for name in names)]
    whole = [one for one in found if step_of(one) >= 0 and os.path.exists(f"{one}/.metadata")]
    return max(whole, key=step_of, default=None)


def step_of(checkpoint: str) -> int:
    """Return the number of steps of a checkpoint, -1 for other folders."""
    name, _, number = os.path.basename(checkpoint.rstrip("/")).partition("-")
    return int(number) if name == "step" and number.isdigit() else -1


class Checkpoints:
    """Checkpoints of a model and its optimizer; saving is a no-op if no folder is configured.

    Frozen weights are not saved, because the run reads them from job.load_dir.
    """

    options = StateDictOptions(ignore_frozen_params=True)

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def load(self, start: Start, steps: int) -> int:
        """Load the checkpoint from which the run starts, and return the first step to run."""
        if not start.checkpoint:
            return 0
        if start.weights_only:
            weights = {"model": get_model_state_dict(self.model)}
            dcp.load(weights, checkpoint_id=start.checkpoint)
            set_model_state_dict(self.model, weights["model"])
            return 0
        start.check_steps(step_of(start.checkpoint), steps)
        model, optimizer = get_state_dict(self.model, self.optimizer, options=self.options)
        state = {"model": model, "optimizer": optimizer}
        dcp.load(state, checkpoint_id=start.checkpoint)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=StateDictOptions(strict=not ADAPTERS),
        )
        return step_of(start.checkpoint)

    def save(self, step: int, last: int) -> None:
        """Save a checkpoint if one is due after ``step`` steps, and after the last step."""
        if SAVE and (step % CONFIG["checkpoint_interval"] == 0 or step == last):
            model, optimizer = get_state_dict(self.model, self.optimizer, options=self.options)
            state = {"model": model, "optimizer": optimizer}
            dcp.save(state, checkpoint_id=f"{SAVE}/step-{step}")

    def export(self) -> None:
        """Save the trained weights in the format of Hugging Face or peft.

        PARC's own decoder has no such format.
        """
        whole = self.model.module if CONFIG["strategy"] == "ddp" else self.model
        if not SAVE or not hasattr(whole, "save_pretrained"):
            return
        options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
        state = get_model_state_dict(self.model, options=options)
        if dist.get_rank() == 0 and ADAPTERS:
            from adapters import save_adapter

            save_adapter(whole, f"{SAVE}/{EXPORT}", state)
        elif dist.get_rank() == 0:
            whole.save_pretrained(f"{SAVE}/{EXPORT}", state_dict=state)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=CONFIG["steps"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=sorted(DTYPES), help="replaces the planned format")
    args = parser.parse_args()
    device = torch.device(args.device, int(os.environ["LOCAL_RANK"]) if args.device == "cuda" else 0)
    if args.device == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if args.device == "cuda" else "gloo")
    start = find_start(
        newest, "step-N with .metadata", reads_pretrained="source" in CONFIG["model"]
    )
    mesh = build_mesh(args.device)
    dtype = DTYPES[args.dtype] if args.dtype else None
    model = build(mesh, device, dtype)
    optimizer = optimizer_of(model)
    checkpoints = Checkpoints(model, optimizer)
    if dist.get_rank() == 0:
        announce()
    first = checkpoints.load(start, args.steps)
    for step in range(first, args.steps):
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, CONFIG)
        batches = [tokens.to(device) for tokens in micro_batches(step, mesh)]
        number_format = dtype or DTYPES[CONFIG["param_dtype"]]
        if CONFIG["strategy"] == "ddp" and step == first:
            settle_buckets(model, batches[0], number_format)
        loss = train_step(model, optimizer, batches, number_format)
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            mean, seconds = loss.item() / dist.get_world_size(), time.perf_counter() - begin
            print(f"step {step + 1} loss {mean:.6f} seconds {seconds:.3f}", flush=True)
        checkpoints.save(step + 1, args.steps)
    checkpoints.export()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
