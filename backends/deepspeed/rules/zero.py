"""Families P, R and D: what goes with which ZeRO stage, with offload and with ZeRO++."""

from __future__ import annotations

from parc.backends.shared.valid_values import divisors, format_pin, format_values, nearest
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import WORLD_FIELDS, Rule


def _pipeline_broken(problem: Problem, layout: Layout) -> bool:
    return layout.pp > 1 and layout.zero_stage > 1


def _pipeline(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"ZeRO-{layout.zero_stage} and pipeline parallelism exclude each other",
        label=f"zero_stage {layout.zero_stage} with pp {layout.pp}, must be 1 or 0",
        help="legal zero_stage with pp > 1: 0, 1",
        fix="layout.zero_stage: 1",
        causes=(Cause("layout.pp", f"pp {layout.pp}"),),
        targets=("deepspeed",),
    )


def _asked_of_three(layout: Layout) -> str:
    """What the layout asks for that ZeRO-3 alone does; empty: nothing."""
    if layout.offload.parameters != "none":
        return "parameters on the host"
    plus = layout.zero_plus
    if plus.hpz > 1:
        return "a second copy of the weights (hpz)"
    if plus.quantized_weights:
        return "quantized weights"
    return "quantized gradients" if plus.quantized_gradients else ""


def _stage_broken(problem: Problem, layout: Layout) -> bool:
    if layout.zero_stage < 3 and _asked_of_three(layout):
        return True
    return layout.zero_stage == 0 and layout.offload.optimizer != "none"


def _stage(problem: Problem, layout: Layout) -> Finding:
    what, stage = _asked_of_three(layout), layout.zero_stage
    least = 3 if what else 1
    return Finding(
        message=f"{what or 'the optimizer on the host'} needs ZeRO-{least}"
        + (": DeepSpeed ignores it below, without a word" if what else ""),
        label=f"zero_stage {stage}, must be at least {least}",
        help=f"legal zero_stage: {format_values(range(least, 4))}",
        fix=f"layout.zero_stage: {least}",
        targets=("deepspeed",),
    )


def _path_broken(problem: Problem, layout: Layout) -> bool:
    away = layout.offload
    return "nvme" in (away.optimizer, away.parameters) and not away.nvme_path.strip()


def _path(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="offload to NVMe without a folder for it",
        label="nvme_path is empty: DeepSpeed stops when its engine is built",
        help="legal: a folder on the local NVMe of every host",
        fix="layout.offload.nvme_path: /local_nvme",
        targets=("deepspeed",),
    )


def _mixed_broken(problem: Problem, layout: Layout) -> bool:
    away = layout.offload
    return away.parameters == "nvme" and away.optimizer != "nvme"


def _mixed(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="weights on NVMe need the optimizer's state there too",
        label=f"optimizer {layout.offload.optimizer}, must be nvme",
        help="legal with parameters: nvme: optimizer: nvme",
        fix="layout.offload.optimizer: nvme",
        targets=("deepspeed",),
    )


def _hpz_broken(problem: Problem, layout: Layout) -> bool:
    hpz = layout.zero_plus.hpz
    return hpz > 1 and (layout.world % hpz != 0 or layout.tp > 1)


def _hpz(problem: Problem, layout: Layout) -> Finding:
    hpz, world = layout.zero_plus.hpz, layout.world
    gpus = problem.cluster.node.gpus
    if layout.tp > 1:
        label = f"{hpz} consecutive ranks hold tp {layout.tp} parts of one tensor"
        return Finding(
            message="a second copy of the weights (hpz) and tensor parallelism exclude each other",
            label=label,
            help="legal: hpz with tp 1",
            fix="layout.tp: 1",
            causes=(Cause("layout.tp", f"tp {layout.tp}"),),
            targets=("deepspeed",),
        )
    good = [n for n in divisors(world) if n > 1]
    return Finding(
        message=f"{world} ranks cannot be cut into groups of hpz={hpz}",
        label=f"{world} % {hpz} = {world % hpz}, must be 0",
        help=f"legal hpz: {format_values(good)}; best the {gpus} GPUs of a host",
        fix=format_pin("layout.zero_plus.hpz", nearest(good, gpus)),
        causes=(Cause("cluster", f"{problem.cluster.gpus} usable GPUs"),),
        targets=("deepspeed",),
    )


def _hosts_broken(problem: Problem, layout: Layout) -> bool:
    gpus = problem.cluster.node.gpus
    return layout.zero_plus.quantized_gradients and layout.world % gpus != 0


def _hosts(problem: Problem, layout: Layout) -> Finding:
    gpus, world = problem.cluster.node.gpus, layout.world
    return Finding(
        message="quantized gradients are exchanged inside whole hosts first",
        label=f"{world} % {gpus} = {world % gpus}, must be 0",
        help=f"legal: a multiple of {gpus} ranks",
        fix="layout.zero_plus.quantized_gradients: false",
        causes=(Cause("cluster.node", f"{gpus} GPUs a host"),),
        targets=("deepspeed",),
    )


def _type_broken(problem: Problem, layout: Layout) -> bool:
    job = problem.job
    return layout.zero_stage == 0 and job.precision == "bf16" and job.gradient_precision == "fp32"


def _type(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="without ZeRO, DeepSpeed sums gradients in the type of the weights",
        label="zero_stage 0 with bf16 weights and fp32 gradients",
        help="legal: zero_stage 1, 2 or 3, or gradient_precision bf16",
        fix="layout.zero_stage: 1",
        causes=(Cause("job.gradient_precision", "fp32"),),
        targets=("deepspeed",),
    )


_PLUS = ("zero_stage", "zero_plus", "offload")
ZERO_RULES: tuple[Rule, ...] = (
    Rule("P12", ("layout.zero_stage", "layout.pp"), _pipeline_broken, _pipeline,
         ("pp", "zero_stage")),
    Rule("R14", ("layout.zero_stage", "layout.zero_plus", "layout.offload"), _stage_broken, _stage,
         _PLUS),
    Rule("R19", ("layout.offload.nvme_path", "layout.offload"), _path_broken, _path, ("offload",)),
    Rule("R19", ("layout.offload.optimizer", "layout.offload"), _mixed_broken, _mixed,
         ("offload",)),
    Rule("D23", ("layout.zero_plus.hpz", "layout.tp"), _hpz_broken, _hpz,
         ("zero_plus", *WORLD_FIELDS)),
    Rule("D23", ("layout.zero_plus.quantized_gradients", "cluster"), _hosts_broken, _hosts,
         ("zero_plus", *WORLD_FIELDS)),
    Rule("R05", ("layout.zero_stage", "job.gradient_precision"), _type_broken, _type,
         ("zero_stage",)),
)  # fmt: skip
