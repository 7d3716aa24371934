"""What pricing a layout needs, computed once a problem: links, rates, parameters by layer kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from parc.backends.base import Framework
from parc.compiler.cost.counts import params
from parc.compiler.cost.kernels.hardware_fit import KernelFit
from parc.compiler.cost.setup import efficiency
from parc.compiler.cost.setup.calibrated import calibrated_row, hardware_class
from parc.compiler.cost.setup.efficiency import Efficiency
from parc.compiler.cost.setup.links import Links, Reach, reach
from parc.compiler.cost.setup.stages import StageClass, StageLoad, stage_classes
from parc.compiler.ir import LayerKind, Layout, Mesh, Problem, Split

T = TypeVar("T")
FOUR_BIT = 0.9
"""What multiplications in 4 bit lose between a single kernel and a step, over those in 8 bit;
fitted to 8 published runs of dense models."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Reach of every communication group of one set of degrees."""

    tp: Reach
    cp: Reach
    cp_a2a: Reach
    """Of a hierarchy: neighbours that exchange heads for tokens; else of one rank."""
    cp_p2p: Reach
    """Of a hierarchy: the ring over these; else all of ``cp``."""
    dp_cp: Reach
    ep: Reach
    etp: Reach
    edp: Reach
    dp_shard_cp: Reach
    """Ranks that share one dense state; all of dp_cp but in hybrid sharding."""
    edp_shard: Reach
    """The same of an expert's state."""
    dp_replicate: Reach
    """Copies of a shard."""
    pp_stride: int
    cp_stride: int


def _gemm_factor(row: Efficiency, precision: str) -> float:
    """Matrix multiplications of a step over those of single kernels."""
    if precision in ("bf16", "fp16"):
        return row.gemm
    return row.gemm_low * (FOUR_BIT if precision == "nvfp4" else 1.0)


class Pricing:
    """Memo of one problem. Its tables only ever grow by pure functions of the problem."""

    def __init__(
        self, problem: Problem, framework: Framework, kernels: KernelFit, hardware: str = ""
    ) -> None:
        """``framework`` gives meshes and the padded vocabulary, ``kernels`` their timings."""
        self.problem = problem
        self.framework = framework
        self.kernels = kernels
        key = hardware or hardware_class(problem.cluster.gpu, framework.stack)
        self.efficiency = calibrated_row(efficiency.efficiency(key), problem.calibration)
        self.links = Links.of(problem.cluster, kernels, self.efficiency)
        self.gemm_factor = _gemm_factor(self.efficiency, problem.job.precision)
        self.gemm = kernels.gemm(problem.job.precision).device_only()
        # The output projection stays in 16 bit whatever the layers run in.
        self.head_gemm = kernels.gemm("bf16").device_only()
        self._memo: dict[Hashable, Any] = {}
        self._classes: dict[int, tuple[Split, tuple[StageClass, ...]]] = {}

    def memo(self, key: Hashable, price: Callable[[], T]) -> T:
        """``price()``, computed once a key; the key must name all that the price depends on."""
        try:
            return cast(T, self._memo[key])
        except KeyError:
            value = self._memo[key] = price()
            return value

    def groups(self, layout: Layout) -> Groups:
        """Where the groups of ``layout`` sit."""
        degrees = (layout.tp, layout.cp, layout.dp, layout.pp, layout.ep, layout.etp, layout.order)
        # Without ZeRO all ranks may be replicas, and the mesh then says so.
        key = (*degrees, layout.cp_a2a, layout.dp_replicate, layout.zero_stage == 0)
        return self.memo(("groups", key), lambda: self._reach_groups(layout))

    def _reach_groups(self, layout: Layout) -> Groups:
        dense, expert = self.framework.meshes(layout)
        copies = layout.dp_replicate
        return Groups(
            dp_shard_cp=self._part(dense, ("dp_shard", "cp"), ("dp", "cp"), copies),
            edp_shard=self._part(expert, ("dp_shard",), ("dp",), copies),
            dp_replicate=self._replicas(dense, copies),
            tp=self._reach(dense, "tp"),
            cp=self._reach(dense, "cp"),
            cp_a2a=self._reach(dense, "cp_a2a"),
            cp_p2p=self._reach(dense, "cp_p2p" if layout.cp_a2a > 1 else "cp"),
            dp_cp=self._reach(dense, "dp", "cp"),
            ep=self._reach(expert, "ep"),
            etp=self._reach(expert, "tp"),
            edp=self._reach(expert, "dp"),
            pp_stride=dense.axis("pp").stride,
            cp_stride=dense.axis("tp").size * (dense.size("cp") - layout.cp_a2a),
        )

    def _part(
        self, mesh: Mesh, shard: tuple[str, ...], whole: tuple[str, ...], copies: int
    ) -> Reach:
        """Reach of a shard: its axes, or the first ranks of all where the mesh has none for it."""
        together = self._reach(mesh, *whole)
        if copies == 1:
            return together
        if any(axis.name == "dp_shard" for axis in mesh.axes):
            return self._reach(mesh, *shard)
        size = max(together.size // copies, 1)
        return Reach(size, min(together.local, size))

    def _replicas(self, mesh: Mesh, copies: int) -> Reach:
        """Reach of the copies of one shard."""
        if any(axis.name == "dp_replicate" for axis in mesh.axes):
            return self._reach(mesh, "dp_replicate")
        return Reach(copies, 1)

    def _reach(self, mesh: Mesh, *names: str) -> Reach:
        """Reach of the groups over the axes ``names``; few sizes and strides exist."""
        axes = mesh.select_axes(*names)
        key = ("reach", *((axis.size, axis.stride) for axis in axes))
        return self.memo(key, lambda: reach(axes, self.links.domain))

    def classes(self, split: Split) -> tuple[StageClass, ...]:
        """Distinct stages of ``split``; keyed by identity, splits are shared between layouts."""
        entry = self._classes.get(id(split))
        if entry is None or entry[0] is not split:
            entry = (split, stage_classes(self.problem.model, split))
            self._classes[id(split)] = entry
        return entry[1]

    def layer_parameters(self, kind: LayerKind, layout: Layout) -> tuple[float, float]:
        """(dense, expert) parameters of one layer on one rank."""
        degrees = (layout.tp, layout.etp, layout.ep)
        return params.kind_params_on_rank(self.problem.model, kind, degrees)

    def stage_parameters(self, layout: Layout, load: StageLoad) -> tuple[float, float]:
        """(dense, expert) parameters that a rank of a stage holds."""
        key = (layout.tp, layout.etp, layout.ep, layout.pp > 1, load)
        return self.memo(("stage", key), lambda: self._count_stage(layout, load))

    def _count_stage(self, layout: Layout, load: StageLoad) -> tuple[float, float]:
        """Sum the parts.

        The first stage adds the embedding, the last the final norm and the head (a copy of the
        embedding where they are tied and pp > 1); a stage with multi-token prediction that is
        not the first keeps a copy of the embedding, as Megatron-Core does.
        """
        model = self.problem.model
        dense = expert = 0.0
        for kind, count in zip(model.kinds, load.counts, strict=True):
            if count:
                layer_dense, layer_expert = self.layer_parameters(kind, layout)
                dense += count * layer_dense
                expert += count * layer_expert
        table = self.framework.padded_vocab(model, layout.tp) * model.hidden / layout.tp
        if load.embedding:
            dense += table + params.position_params(model)
        if load.final_norm:
            dense += params.final_norm_params(model)
        if load.loss and (not model.tied_embeddings or layout.pp > 1):
            dense += table
        if load.mtp_layers:
            mtp_dense, mtp_expert = params.mtp_params_on_rank(
                model, tp=layout.tp, etp=layout.etp, ep=layout.ep
            )
            dense += load.mtp_layers * mtp_dense
            expert += load.mtp_layers * mtp_expert
            if not load.embedding:
                dense += table
        return dense, expert
