"""Train a toy model for a few steps with any data parallelism, and print the losses.

    python toy_training.py                                 the reference: one process
    torchrun ... toy_training.py ddp | fsdp | hsdp
    torchrun ... toy_training.py deepspeed CONFIG.json

Rank 0 prints `losses: ...`; equal work prints equal losses. Runs under the Python that has torch
(and DeepSpeed, which must divide the 16 samples of a step); imports neither PARC nor pytest.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

WIDTH, SAMPLES, STEPS, RATE = 32, 16, 4, 0.5
Step = Callable[[Any, Any], Any]


def model() -> Any:
    torch.manual_seed(0)
    block = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH)]
    return torch.nn.Sequential(*block)


def batches() -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(SAMPLES, WIDTH, generator=generator) for _ in range(STEPS)]
    return [(one, one.roll(1, -1)) for one in inputs]


def stepper(parallel: Any) -> Step:
    """Return a function that does forward, backward and SGD on a wrapped model."""
    optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE)

    def step(inputs: Any, targets: Any) -> Any:
        loss = torch.nn.functional.mse_loss(parallel(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def ddp() -> Step:
    dist.init_process_group("gloo")
    return stepper(torch.nn.parallel.DistributedDataParallel(model()))


def fsdp(replicas: int = 1) -> Step:
    """Train with FSDP2, over a mesh of replicas by shards if there is more than one replica."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    world = dist.get_world_size()
    shape = (world,) if replicas == 1 else (replicas, world // replicas)
    names = ("dp_replicate", "dp_shard")[-len(shape) :]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    sharded = model()
    for layer in sharded:
        fully_shard(layer, mesh=mesh)
    return stepper(fully_shard(sharded, mesh=mesh))


def deepspeed() -> Step:
    """Train with the DeepSpeed engine, one micro-batch per step, and plain SGD."""
    import deepspeed

    deepspeed.init_distributed("gloo", verbose=False)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    config = json.loads(Path(sys.argv[2]).read_text())
    config |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config=config)

    def step(inputs: Any, targets: Any) -> Any:
        loss = torch.nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        return loss.detach()

    return step


def main() -> None:
    torch.set_num_threads(1)
    kind = sys.argv[1] if len(sys.argv) > 1 else "reference"
    makers: dict[str, Callable[[], Step]] = {
        "reference": lambda: stepper(model()),
        "ddp": ddp,
        "fsdp": fsdp,
        "hsdp": lambda: fsdp(replicas=2),
        "deepspeed": deepspeed,
    }
    step, rank, world = makers[kind](), int(os.environ.get("RANK", 0)), 1
    if kind != "reference":
        world = dist.get_world_size()
    found = []
    for inputs, targets in batches():
        loss = step(inputs.chunk(world)[rank], targets.chunk(world)[rank])
        if world > 1:
            dist.all_reduce(loss)
        found.append(float(loss) / world)
    if rank == 0:
        print("losses:", *(f"{loss:.6f}" for loss in found), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
