"""Laws of the cost of LoRA: what frozen weights and adapters need, and what they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.counts.adapters import adapter_params, projection_widths
from parc.compiler.cost.counts.flops import step_flops
from parc.compiler.cost.counts.params import total_params
from parc.compiler.cost.memory.adapter_inputs import adapter_bytes
from parc.compiler.cost.memory.peak import memory_of_all_stages, peak_bytes
from parc.compiler.cost.step.gradients import data_parallel_bytes
from parc.compiler.evaluate.estimate_run import checkpoint_bytes
from parc.compiler.ir import DENSE, LoraAdapters, Plan
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.compiled import changed, plan_of

SPEC: dict[str, Any] = {
    **{"parc": 1, "name": "tuned", "model": "llama-3-8b"},
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {
        **{"kind": "finetune", "load_dir": "/base", "sequence_length": 4096, "global_batch": 64},
        "lora": {"rank": 16},
    },
    "layout": {"tp": 1, "zero_stage": 3, "micro_batch": 1, "recompute": "none"},
    "emit": ["fsdp", "torchrun"],
}
LLAMA_ADAPTERS = 41_943_040
"""Parameters of adapters of rank 16 for all linear layers of Llama 3 8B, as peft counts them."""
PARAMETERS = 8_030_261_248


def plan(**settings: Any) -> Plan:
    return plan_of(changed(SPEC, settings))


def test_adapters_have_the_parameters_that_peft_counts() -> None:
    problem = plan().problem
    lora = problem.job.lora
    assert lora is not None
    kinds = problem.model.layer_kinds
    assert sum(adapter_params(problem.model, kind, lora) for kind in kinds) == LLAMA_ADAPTERS
    assert total_params(problem.model) == PARAMETERS


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_frozen_weights_have_no_gradients_and_no_optimizer_state(stage: int) -> None:
    found = plan(**{"layout.zero_stage": stage})
    cost_model = cost_model_for(found.problem, framework("fsdp"))
    (memory,) = memory_of_all_stages(cost_model, found.layout)
    shards = 8 if stage else 1
    adapters = LLAMA_ADAPTERS / shards
    assert memory.gradients_bytes == pytest.approx(4 * adapters)
    assert memory.optimizer_bytes == pytest.approx(8 * adapters)
    gathered = 2 * (PARAMETERS + LLAMA_ADAPTERS) if stage == 2 else 0
    assert memory.weights_bytes == pytest.approx(2 * PARAMETERS / shards + 4 * adapters + gathered)


def test_the_search_and_the_estimate_agree_about_the_memory() -> None:
    for stage in (0, 2, 3):
        found = plan(**{"layout.zero_stage": stage})
        cost_model = cost_model_for(found.problem, framework("fsdp"))
        (memory,) = memory_of_all_stages(cost_model, found.layout)
        assert peak_bytes(cost_model, found.layout) == pytest.approx(memory.total_bytes)


def test_only_gradients_of_adapters_are_reduced() -> None:
    moved = {}
    for stage in (0, 2, 3):
        found = plan(**{"layout.zero_stage": stage})
        cost_model = cost_model_for(found.problem, framework("fsdp"))
        moved[stage] = data_parallel_bytes(cost_model, found.layout)[0] / 8  # micro-batches
    every, adapters = 2 * (PARAMETERS + LLAMA_ADAPTERS), LLAMA_ADAPTERS
    assert moved[0] * 8 == pytest.approx(2 * 4 * adapters)
    assert moved[2] == pytest.approx(every + 4 * adapters)
    assert moved[3] == pytest.approx(2 * every + 4 * adapters)


def test_a_frozen_weight_takes_four_flops_per_token_and_an_adapter_six() -> None:
    lora, full = plan().problem, plan(**{"job.lora": None}).problem
    narrow = plan(**{"job.lora.rank": 8}).problem
    tokens = 64 * 4096
    assert step_flops(lora) - step_flops(narrow) == pytest.approx(6 * tokens * LLAMA_ADAPTERS / 2)
    table = 128256 * 4096
    saved = 2 * tokens * (PARAMETERS - table - 65 * 4096)  # neither the embedding nor the norms
    assert step_flops(full) - step_flops(lora) == pytest.approx(saved - 6 * tokens * LLAMA_ADAPTERS)


def test_adapters_save_a_shared_input_once_and_with_dropout_each_its_own() -> None:
    found = plan()
    model, lora = found.problem.model, found.problem.job.lora
    assert lora is not None
    program = framework("fsdp").training_memory_model(found.problem)
    rank, hidden, ffn = 2 * 16, 4096, 14336
    assert adapter_bytes(model, DENSE, program) == (
        2 * hidden + 4 * rank,
        2 * hidden + 2 * ffn + 3 * rank,
    )
    dropped = replace(program, adapters=replace(lora, dropout=0.1))
    assert adapter_bytes(model, DENSE, dropped) == (
        3 * 4 * hidden + 4 * rank,
        3 * (2 * hidden + ffn) + 3 * rank,
    )
    alone = replace(program, adapters=replace(lora, targets=("o_proj",)))
    assert adapter_bytes(model, DENSE, alone) == (rank, 0.0)


def test_lora_takes_less_time_and_memory_than_full_fine_tuning() -> None:
    lora, full = plan(), plan(**{"job.lora": None})
    attention = plan(**{"job.lora.targets": "attention"})
    times = [one.estimate.time.total_seconds for one in (attention, lora, full)]
    peaks = [one.estimate.peak.total_bytes for one in (attention, lora, full)]
    assert times == sorted(times)
    assert peaks == sorted(peaks)
    assert times[0] > times[2] / 2


def test_checkpoints_contain_frozen_weights_only_with_accelerate() -> None:
    for name, frozen in (("fsdp", 0), ("accelerate", 2 * PARAMETERS)):
        found = plan(emit=[name, "torchrun"])
        cost_model = cost_model_for(found.problem, framework(name))
        size = checkpoint_bytes(cost_model, found.layout)
        assert size == pytest.approx(12 * LLAMA_ADAPTERS + frozen)


def test_a_projection_that_a_layer_lacks_has_no_adapter() -> None:
    model = plan().problem.model
    none = LoraAdapters(8, 16, 0.0, ())
    assert adapter_params(model, DENSE, none) == 0
    assert projection_widths(model, DENSE)["k_proj"] == (4096, 1024)
