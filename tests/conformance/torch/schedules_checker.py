"""Print the action tables of the real pipeline schedules, on a CPU, without model or network.

    python schedules_checker.py MEGATRON_FOLDER < cases.jsonl > tables.jsonl

A case: {"tool", "schedule", "ranks", "micro_batches", "chunks", "group"}; tool is ``torch``
(schedule: a name of torch.distributed.pipelining) or ``megatron``. An answer: {"rows": one list
of actions per rank} or {"rejected": the tool's message}.

Runs under the Python that has torch and Megatron-Core; imports neither PARC nor pytest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from emulated_gpu import make_megatron_importable

Case = dict[str, Any]
Rows = list[list[str]]
V_SHAPED = ("ZBVZeroBubble", "DualPipeV")


class Stage:
    """Attributes of a stage that a schedule reads, and a log of the actions that it calls."""

    has_backward = True

    def __init__(self, index: int, stages: int, ranks: int, log: list[str]) -> None:
        import torch

        self.stage_index, self.num_stages, self.group_size = index, stages, ranks
        self.group_rank = index % ranks
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.submod = torch.nn.Identity()
        self.log = log

    def forward_one_chunk(self, micro_batch: int, *_: Any, **__: Any) -> None:
        self.log.append(f"{self.stage_index}F{micro_batch}")

    def backward_one_chunk(self, micro_batch: int, **_: Any) -> None:
        self.log.append(f"{self.stage_index}B{micro_batch}")

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_ops") or name == "perform_reduce_grad":
            return lambda *_, **__: []
        raise AttributeError(name)


def torch_rows(case: Case) -> Rows:
    """Return the actions per rank: schedules with one stage per rank run on the log, the other
    schedules store their order.
    """
    from torch.distributed.pipelining import schedules

    kind = schedules.get_schedule_class(case["schedule"])
    ranks, chunks, count = case["ranks"], case["chunks"], case["micro_batches"]
    if issubclass(kind, schedules.PipelineScheduleSingle):
        return [_step(kind, Stage(rank, ranks, ranks, []), count) for rank in range(ranks)]
    places = range(0, ranks * chunks, ranks)
    if case["schedule"] in V_SHAPED:
        places = range(0, 2 * ranks, 2 * ranks - 1)
    stages = [Stage(index, ranks * chunks, ranks, []) for index in places]
    order = kind(stages, n_microbatches=count).pipeline_order
    return [[str(action) for action in order[rank] if action] for rank in range(ranks)]


def _step(kind: Any, stage: Stage, count: int) -> list[str]:
    schedule = kind(stage, n_microbatches=count)
    schedule._initialize_stage = lambda *_, **__: None
    schedule._check_inputs = lambda *_: ([()] * count, [{}] * count)
    schedule._step_microbatches()
    return stage.log


def megatron_rows(case: Case) -> Rows:
    """Apply the loops of forward_backward_pipelining_with(out)_interleaving to Megatron's own
    tables.
    """
    from megatron.core.pipeline_parallel import schedules

    ranks, chunks, count = case["ranks"], case["chunks"], case["micro_batches"]
    table = schedules.get_schedule_table(count, chunks, case["group"])
    rows = []
    for rank in range(ranks):
        group = SimpleNamespace(size=lambda: ranks, rank=lambda rank=rank: rank)
        sizes = SimpleNamespace(
            pp_group=group,
            virtual_pipeline_model_parallel_size=None if chunks == 1 else chunks,
        )
        _, _, warmup, left = schedules.get_pp_rank_microbatches(
            count, chunks, case["group"], p2p_communicator=sizes
        )
        forward = [f"{chunk * ranks + rank}F{i}" for i, chunk in table]
        backward = [f"{(chunks - 1 - chunk) * ranks + rank}B{i}" for i, chunk in table]
        row = forward[:warmup]
        for k in range(left):
            row += [forward[warmup + k], backward[k]]
        rows.append(row + backward[left:])
    return rows


def answer(case: Case) -> dict[str, Any]:
    try:
        return {"rows": {"torch": torch_rows, "megatron": megatron_rows}[case["tool"]](case)}
    except (ValueError, AssertionError) as rejection:
        return {"rejected": f"{type(rejection).__name__}: {rejection}"}


def main() -> int:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    make_megatron_importable(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
