#!/usr/bin/env python3
"""Train the transformer of model.py with DeepSpeed as planned.

Reads train.json (sizes, topology, stages) in this folder and the --deepspeed_config file. In the
topology, pipe > 1 builds a PipelineModule, sequence > 1 exchanges heads for tokens (Ulysses), and
expert > 1 distributes the experts of DeepSpeed's MoE layers. data.py reads the training data.
"""

import argparse
import json
import math
from pathlib import Path

import deepspeed
import torch
from checkpoints import load, save_if_due, start_of_run
from data import announce, sequence
from deepspeed import comm as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from model import (
    DATA,
    EXPERTS,
    MODEL,
    PIPE,
    PLAN,
    SEQUENCE,
    TENSOR,
    Block,
    Embedding,
    Groups,
    Head,
    TransformerModel,
    logits_of,
    loss_of,
    norm,
)


class Pipeline(PipelineModule):
    """Pipeline of the layers, with the stages that train.json lists."""

    def __init__(self, topology):
        blocks = [LayerSpec(Block, index) for index in range(MODEL["layers"])]
        if MODEL["tied_embeddings"]:
            first = TiedLayerSpec("table", Embedding)
            last = TiedLayerSpec("table", Embedding, forward_fn=logits_of)
        else:
            first, last = LayerSpec(Embedding), LayerSpec(Head)
        super().__init__([first, *blocks, norm(), last], topology=topology, loss_fn=loss_of)

    def _partition_layers(self, method="planned"):
        cuts = [0]
        for stage, layers in enumerate(PLAN["stages"]):
            extra = (stage == 0) + 2 * (stage == PIPE - 1)  # embedding; norm and head
            cuts.append(cuts[-1] + layers + extra)
        self.parts = cuts
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=cuts[stage], stop=cuts[stage + 1])


def batch(number, size, replica, device):
    """Return micro-batch ``number`` of a replica: tokens and labels of this rank's sequence part."""
    rows = []
    for row in range(size):
        rows.append(sequence((number * DATA + replica) * size + row, MODEL["vocab"]))
    ids = torch.stack(rows)
    tokens, labels = ids[:, :-1], ids[:, 1:]
    if SEQUENCE > 1:
        part = dist.get_rank() % SEQUENCE
        tokens, labels = (x.chunk(SEQUENCE, dim=1)[part] for x in (tokens, labels))
    return tokens.contiguous().to(device), labels.contiguous().to(device)


def model_for(config, topology, device):
    """Return the model; ZeRO-3 creates it in shards, so that no rank needs memory for all of it."""
    if PIPE > 1:
        return Pipeline(topology)
    zero = config.get("zero_optimization", {}).get("stage", 0)
    half = torch.bfloat16 if "bf16" in config else torch.float16 if "fp16" in config else None
    torch.set_default_dtype(half or torch.float32)
    try:
        if zero == 3 and TENSOR == 1:
            with deepspeed.zero.Init(config_dict_or_path=config):
                return TransformerModel()
        with torch.device("cpu" if TENSOR > 1 else device):
            return TransformerModel()
    finally:
        torch.set_default_dtype(torch.float32)


def trained_parameters(model):
    parameters = [one for one in model.parameters() if one.requires_grad]
    if EXPERTS is None:
        return parameters
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

    group = {"params": parameters, "name": "all"}
    return split_params_into_different_moe_groups_for_optimizer(group)


def step_of(engine, step, replica, device):
    """Run one optimizer step and return the mean loss of the global batch."""
    micro, count = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    batches = (batch(step * count + n, micro, replica, device) for n in range(count))
    if PIPE > 1:
        return float(engine.train_batch(batches))
    total = torch.zeros((), device=device)
    weight = EXPERTS["aux_loss_coefficient"] if EXPERTS is not None else 0.0
    for tokens, labels in batches:
        loss, routing = engine(tokens, labels)
        # DeepSpeed averages gradients over replicas but sums them over the ranks of a sequence,
        # each of which computes the mean loss of its part: hence the division
        engine.backward((loss + weight * routing) / SEQUENCE)
        engine.step()
        total += loss.detach().float()
    dist.all_reduce(total)
    return float(total) / count / dist.get_world_size()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--local_rank", type=int, default=-1, help="set by the deepspeed launcher")
    arguments = deepspeed.add_config_arguments(parser).parse_args()
    config = json.loads(Path(arguments.deepspeed_config).read_text(encoding="utf-8"))
    deepspeed.init_distributed()
    if math.prod((PIPE, DATA, SEQUENCE, TENSOR)) != dist.get_world_size():
        raise SystemExit(f"train.json needs another number of ranks than {dist.get_world_size()}")
    if dist.get_rank() == 0:
        announce()
    start = start_of_run(reads_pretrained=False)
    device = torch.device(get_accelerator().current_device_name())
    topology = PipeModelDataParallelTopology(PIPE, TENSOR, DATA) if PIPE > 1 else None
    Groups.create(topology)
    if PLAN["recompute"] and PIPE == 1:
        deepspeed.checkpointing.configure(None, deepspeed_config=arguments.deepspeed_config)
    model = model_for(config, topology, device)
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=trained_parameters(model),
        config=config,
        mpu=Groups() if SEQUENCE > 1 else None,
    )
    replica = dist.get_rank() // (SEQUENCE * TENSOR) % DATA
    load(engine, start)
    for step in range(engine.global_steps, PLAN["steps"]):
        loss = step_of(engine, step, replica, device)
        if dist.get_rank() == 0:
            print(f"step {step + 1} loss {loss:.6f}", flush=True)
        save_if_due(engine, step + 1)
    dist.barrier()  # a rank that exits early could break communication of other ranks
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
