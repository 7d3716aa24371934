"""Bytes of the buffers of the real MegatronFSDP on CPU ranks, for one case.

    python fsdp_ranks.py MEGATRON_FOLDER '{"strategy": "optim_grads_params", "ranks": 4,
        "copies": 1, "layers": 4, "layer": 8192, "tables": 32768, "communication_unit": 16384}'

``layer`` and ``tables`` are numbers of parameters of one layer, and of the embedding and the output
together; multiples of 64. Prints one line of JSON: the bytes of (``weights``, ``main_weights``,
``gradients``) that rank 0 stores, and the largest bytes of ``gathered`` weights and ``whole``
gradients during two steps.

Streams and events of CUDA are replaced by empty ones: collectives of gloo finish in order. Gloo has
no scaled sum, so that gradients are scaled before they are reduced.

Runs under the Python that has torch and Megatron-Core; imports neither PARC nor pytest.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

import torch
from emulated_gpu import make_megatron_importable

WIDTH = 64


class Nothing:
    """Stream or event that never waits."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: Nothing()


def emulate_cuda() -> None:
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.cuda.current_device = lambda: 0
    torch.cuda.Stream = torch.cuda.Event = Nothing
    torch.cuda.current_stream = Nothing
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_: None


class Layer(torch.nn.Module):
    """Layer that consists of one matrix."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(parameters // WIDTH, WIDTH) / parameters)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states + states @ self.weight.T @ self.weight


class Model(torch.nn.Module):
    """Embedding, layers and output projection."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__()
        rows = case["tables"] // 2 // WIDTH
        self.embedding = torch.nn.Embedding(rows, WIDTH)
        self.layers = torch.nn.ModuleList(Layer(case["layer"]) for _ in range(case["layers"]))
        self.output = torch.nn.Linear(WIDTH, rows, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states = self.embedding(tokens)
        for layer in self.layers:
            states = layer(states)
        return self.output(states)


class Peak:
    """Largest sum of the bytes of all buckets that an allocator holds at a time."""

    def __init__(self) -> None:
        self.now, self.most = {}, 0

    def watch(self, buffer: Any) -> None:
        take, free, key = buffer.allocate_bucket_storage, buffer.free_bucket_storage, id(buffer)

        def taken(*args: Any, **options: Any) -> Any:
            bucket = take(*args, **options)
            self.now[key] = bucket.data.numel() * bucket.data.element_size()
            self.most = max(self.most, sum(self.now.values()))
            return bucket

        def freed(*args: Any, **options: Any) -> Any:
            self.now.pop(key, None)
            return free(*args, **options)

        buffer.allocate_bucket_storage, buffer.free_bucket_storage = taken, freed


def work(rank: int, case: dict[str, Any], store: str) -> None:
    import torch.distributed as dist
    from megatron.core.distributed.fsdp.src.megatron_fsdp import megatron_fsdp as fsdp
    from megatron.core.distributed.fsdp.src.megatron_fsdp.utils import FSDPDistributedIndex
    from torch.distributed.device_mesh import init_device_mesh

    ranks, copies = case["ranks"], case["copies"]
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    names = {"dp_shard_dim": "dp", "tp_dim": "tp"}
    if copies == 1:
        mesh = init_device_mesh("cpu", (ranks, 1), mesh_dim_names=("dp", "tp"))
    else:
        sizes = (copies, ranks // copies, 1)
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("outer", "dp", "tp"))
        names |= {"dp_outer_dim": "outer", "hybrid_fsdp_group": dist.group.WORLD}
    whole = case["strategy"] == "optim_grads_params"
    settings = fsdp.DistributedDataParallelConfig(
        data_parallel_sharding_strategy=case["strategy"],
        overlap_grad_reduce=True,
        overlap_param_gather=True,
        gradient_reduce_div_fusion=False,
        suggested_communication_unit_size=case["communication_unit"],
        bucket_size=case["communication_unit"],
    )
    model = fsdp.MegatronFSDP(
        module=Model(case).to(torch.bfloat16),
        dist_index=FSDPDistributedIndex(device_mesh=mesh, **names),
        ddp_config=settings,
        mixed_precision_policy=fsdp.MixedPrecisionPolicy(
            main_params_dtype=torch.float32, main_grads_dtype=torch.float32, grad_comm_dtype=None
        ),
        fsdp_unit_modules=[Layer] if whole else [],
        device=torch.device("cpu"),
    )
    groups = model.param_and_grad_buffer.parameter_groups
    found = {
        name: sum(_bytes(getattr(group, attribute)) for group in groups)
        for name, attribute in (
            ("weights", "model_weight_buffer"),
            ("main_weights", "main_weight_buffer"),
            ("gradients", "main_grad_buffer"),
        )
    }
    gathered, gradients = Peak(), Peak()
    for group in groups:
        gathered.watch(group.model_weight_buffer)
        gradients.watch(group.main_grad_buffer)
    rows = case["tables"] // 2 // WIDTH
    for _ in range(2):
        model(torch.arange(8).reshape(2, 4) % rows).float().sum().backward()
    model.finish_grad_sync()
    found |= {"gathered": gathered.most, "whole": gradients.most}
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def _bytes(buffer: Any) -> int:
    return buffer.data.numel() * buffer.data.element_size()


def start(rank: int, case: dict[str, Any], store: str) -> int:
    """Start a rank as a copy of this process; return the number of its process."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(rank, case, store)
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def main() -> None:
    make_megatron_importable(sys.argv[1])
    emulate_cuda()
    torch.set_num_threads(1)
    # Imported before the ranks are forked, because it takes seconds.
    import megatron.core.distributed.fsdp.src.megatron_fsdp.megatron_fsdp  # noqa: F401

    case = json.loads(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start(rank, case, f"{folder}/store") for rank in range(case["ranks"])]
        failed = [rank for rank in ranks if os.waitpid(rank, 0)[1]]
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
