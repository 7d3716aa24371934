"""Rules on the optimizer, on the ZeRO stage, and on its combination with offload and pipelines."""

from __future__ import annotations

from parc.backends.deepspeed.derived_config import MIN_WARMUP_STEPS, SCHEDULERS
from parc.backends.shared.common_rules import decay_rule, only_value_rules
from parc.backends.shared.valid_values import format_setting, nearest_value
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import WORLD_FIELDS, Rule


def _violates_zero_with_pipeline(problem: Problem, layout: Layout) -> bool:
    # Micro-batches of a pipeline accumulate whole gradients, which stages 2 and 3 partition
    # (deepspeed/runtime/pipe/engine.py asserts it).
    return layout.pp > 1 and layout.zero_stage > 1


def _explain_zero_with_pipeline(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"deepspeed cannot combine ZeRO-{layout.zero_stage} and pipeline parallelism",
        label=f"zero_stage {layout.zero_stage}, must be 0 or 1 because pp is {layout.pp}",
        help="valid zero_stage with pp > 1: 0, 1",
        fix="layout.zero_stage: 1",
        causes=(Cause("layout.pp", f"pp {layout.pp}"),),
        targets=("deepspeed",),
    )


def _zero3_feature(layout: Layout) -> str:
    """Return the name of a feature in ``layout`` that needs ZeRO-3, or "" if there is none."""
    if layout.offload.parameters != "none":
        return "offload of parameters"
    plus = layout.zero_plus
    if plus.hpz > 1:
        return "a secondary copy of the weights (hpz)"
    if plus.quantized_weights:
        return "quantized weights"
    return "quantized gradients" if plus.quantized_gradients else ""


def _violates_zero_stage(problem: Problem, layout: Layout) -> bool:
    # DeepSpeed's config check accepts all of these at stages 0 to 2, and only stage 3 reads them.
    if layout.zero_stage < 3 and _zero3_feature(layout):
        return True
    # offload_optimizer is a feature of ZeRO stages 1 to 3.
    return layout.zero_stage == 0 and layout.offload.optimizer != "none"


def _explain_zero_stage(problem: Problem, layout: Layout) -> Finding:
    what, stage = _zero3_feature(layout), layout.zero_stage
    least = 3 if what else 1
    return Finding(
        message=f"{what or 'offload of the optimizer'} needs ZeRO-{least}"
        + (": DeepSpeed silently ignores it at lower stages" if what else ""),
        label=f"zero_stage {stage}, must be at least {least}",
        help=f"valid zero_stage: {format_values(range(least, 4))}",
        fix=f"layout.zero_stage: {least}",
        targets=("deepspeed",),
    )


def _violates_nvme_path(problem: Problem, layout: Layout) -> bool:
    # The config check accepts a missing path; only the engine asserts it, on all ranks, after the
    # launch.
    return layout.offload.uses_nvme and not layout.offload.nvme_path.strip()


def _explain_nvme_path(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="offload to NVMe needs a folder",
        label="nvme_path is empty; DeepSpeed would fail at start",
        help="set nvme_path to a folder on the local NVMe of every host",
        fix="layout.offload.nvme_path: /local_nvme",
        targets=("deepspeed",),
    )


def _violates_nvme_optimizer(problem: Problem, layout: Layout) -> bool:
    away = layout.offload
    return away.parameters == "nvme" and away.optimizer != "nvme"


def _explain_nvme_optimizer(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="weights on NVMe require the optimizer state on NVMe too",
        label=f"offload.optimizer is {layout.offload.optimizer}, must be nvme",
        help="valid offload.optimizer if offload.parameters is nvme: nvme",
        fix="layout.offload.optimizer: nvme",
        targets=("deepspeed",),
    )


def _violates_hpz(problem: Problem, layout: Layout) -> bool:
    # A secondary copy spans hpz consecutive ranks (deepspeed/utils/groups.py), which with tp > 1
    # would belong to different parts of a tensor.
    hpz = layout.zero_plus.hpz
    return hpz > 1 and (layout.world % hpz != 0 or layout.tp > 1)


def _explain_hpz(problem: Problem, layout: Layout) -> Finding:
    hpz, world = layout.zero_plus.hpz, layout.world
    gpus = problem.cluster.node.gpus
    if layout.tp > 1:
        label = (
            f"{hpz} consecutive ranks store {layout.tp} different tensor-parallel parts of weights"
        )
        return Finding(
            message="deepspeed cannot combine hpz (ZeRO++) and tensor parallelism",
            label=label,
            help="valid tp with hpz: 1",
            fix="layout.tp: 1",
            causes=(Cause("layout.tp", f"tp {layout.tp}"),),
            targets=("deepspeed",),
        )
    # hpz divides the whole world, not dp: _create_zero_param_parallel_group counts all ranks.
    good = [n for n in divisors(world) if n > 1]
    return Finding(
        message=f"{world} ranks cannot be divided into groups of hpz={hpz}",
        label=f"{world} % {hpz} = {world % hpz}, must be 0",
        help=f"valid hpz: {format_values(good)}; best is the number of GPUs per host, {gpus}",
        fix=format_setting("layout.zero_plus.hpz", nearest_value(good, gpus)),
        causes=(Cause("cluster", f"the cluster has {problem.cluster.gpus} usable GPUs"),),
        targets=("deepspeed",),
    )


def _violates_whole_hosts(problem: Problem, layout: Layout) -> bool:
    # all_to_all_quant_reduce divides the world size by the devices of a host to count the hosts
    # (deepspeed/runtime/comm/coalesced_collectives.py).
    gpus = problem.cluster.node.gpus
    return layout.zero_plus.quantized_gradients and layout.world % gpus != 0


def _explain_whole_hosts(problem: Problem, layout: Layout) -> Finding:
    gpus, world = problem.cluster.node.gpus, layout.world
    return Finding(
        message=f"quantized gradients need whole hosts of {gpus} GPUs; the job has {world} ranks",
        label=f"{world} % {gpus} = {world % gpus}, must be 0",
        help=f"use a multiple of {gpus} ranks",
        fix="layout.zero_plus.quantized_gradients: false",
        causes=(Cause("cluster.node", f"each host has {gpus} GPUs"),),
        targets=("deepspeed",),
    )


def _violates_gradient_type(problem: Problem, layout: Layout) -> bool:
    job = problem.job
    return layout.zero_stage == 0 and job.precision == "bf16" and job.gradient_precision == "fp32"


def _explain_gradient_type(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="without ZeRO, DeepSpeed accumulates gradients in the type of the weights",
        label="zero_stage 0 with bf16 weights and fp32 gradients",
        help="use zero_stage 1, 2 or 3, or gradient_precision bf16",
        fix="layout.zero_stage: 1",
        causes=(Cause("job.gradient_precision", "fp32"),),
        targets=("deepspeed",),
    )


_PLUS = ("zero_stage", "zero_plus", "offload")
ZERO_RULES: tuple[Rule, ...] = (
    Rule(
        "P12",
        ("layout.zero_stage", "layout.pp"),
        _violates_zero_with_pipeline,
        _explain_zero_with_pipeline,
        ("pp", "zero_stage"),
    ),
    Rule(
        "R14",
        ("layout.zero_stage", "layout.zero_plus", "layout.offload"),
        _violates_zero_stage,
        _explain_zero_stage,
        _PLUS,
    ),
    Rule(
        "R19",
        ("layout.offload.nvme_path", "layout.offload"),
        _violates_nvme_path,
        _explain_nvme_path,
        ("offload",),
    ),
    Rule(
        "R19",
        ("layout.offload.optimizer", "layout.offload"),
        _violates_nvme_optimizer,
        _explain_nvme_optimizer,
        ("offload",),
    ),
    Rule(
        "D23",
        ("layout.zero_plus.hpz", "layout.tp"),
        _violates_hpz,
        _explain_hpz,
        ("zero_plus", *WORLD_FIELDS),
    ),
    Rule(
        "D23",
        ("layout.zero_plus.quantized_gradients", "cluster"),
        _violates_whole_hosts,
        _explain_whole_hosts,
        ("zero_plus", *WORLD_FIELDS),
    ),
    Rule(
        "R05",
        ("layout.zero_stage", "job.gradient_precision"),
        _violates_gradient_type,
        _explain_gradient_type,
        ("zero_stage",),
    ),
)


def _violates_min_learning_rate(problem: Problem, layout: Layout) -> bool:
    return problem.job.lr_decay == "linear" and problem.job.min_learning_rate > 0


def _explain_min_learning_rate(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="DeepSpeed's linear decay (WarmupDecayLR) always ends at 0",
        label=f"min_learning_rate {problem.job.min_learning_rate:g}, must be 0",
        help="valid min_learning_rate: 0; with lr_decay cosine any value",
        fix="job.min_learning_rate: 0",
        causes=(Cause("job.lr_decay", "lr_decay is linear"),),
        targets=("deepspeed",),
    )


def _violates_min_warmup(problem: Problem, layout: Layout) -> bool:
    job = problem.job
    return job.warmup_steps < MIN_WARMUP_STEPS and not job.warmup_fraction


def _explain_min_warmup(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"DeepSpeed's schedules warm up for at least {MIN_WARMUP_STEPS} steps",
        label=f"warmup_steps {problem.job.warmup_steps}, must be at least {MIN_WARMUP_STEPS}",
        help=f"valid warmup_steps: {MIN_WARMUP_STEPS} or more; or set warmup_fraction instead",
        fix=f"job.warmup_steps: {MIN_WARMUP_STEPS}",
        targets=("deepspeed",),
    )


OPTIMIZER_RULES: tuple[Rule, ...] = (
    decay_rule("deepspeed", tuple(SCHEDULERS)),
    *only_value_rules("deepspeed"),
    Rule(
        "E11",
        ("job.min_learning_rate", "job.lr_decay"),
        _violates_min_learning_rate,
        _explain_min_learning_rate,
        (),
    ),
    Rule("E11", ("job.warmup_steps",), _violates_min_warmup, _explain_min_warmup, ()),
)
