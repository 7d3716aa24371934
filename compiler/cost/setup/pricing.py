"""Quantities that evaluate a layout, computed once per problem: links, rates, parameters."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from parc.backends.base import Framework
from parc.compiler.cost.counts import params
from parc.compiler.cost.kernels.hardware_fit import KernelFit
from parc.compiler.cost.setup.calibrated import calibrated_efficiency, efficiency_for_stack
from parc.compiler.cost.setup.links import GroupSpan, Links, group_span
from parc.compiler.cost.setup.stages import EqualStageGroup, StageContents, group_equal_stages
from parc.compiler.ir import Efficiency, LayerKind, Layout, Mesh, PipelineSplit, Problem

T = TypeVar("T")
FOUR_BIT = 0.9
"""Factor from the step-level efficiency of 8-bit multiplications to that of 4-bit ones; fitted to 8
published runs of dense models."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Spans over NVLink domains of the communication groups of one layout."""

    tp: GroupSpan
    cp: GroupSpan
    cp_a2a: GroupSpan
    """Neighbours that exchange heads for tokens in hierarchical context parallelism; one rank if
    it has no hierarchy."""
    cp_p2p: GroupSpan
    """Ring over those neighbours; all of ``cp`` if there is no hierarchy."""
    dp_cp: GroupSpan
    ep: GroupSpan
    etp: GroupSpan
    edp: GroupSpan
    dp_shard_cp: GroupSpan
    """Ranks that share one dense state: all of dp_cp, or a part of it in hybrid sharding."""
    edp_shard: GroupSpan
    """Ranks that share one state of an expert."""
    dp_replicate: GroupSpan
    """Ranks that hold copies of one shard."""
    pp_stride: int
    cp_stride: int


def _gemm_factor(row: Efficiency, precision: str) -> float:
    """Return the time of GEMMs within a training step divided by that of isolated kernels."""
    if precision in ("bf16", "fp16"):
        return row.gemm
    return row.gemm_low * (FOUR_BIT if precision == "nvfp4" else 1.0)


class Pricing:
    """Results that many layouts of one problem share; they are stored and never change."""

    def __init__(
        self,
        problem: Problem,
        framework: Framework,
        kernels: KernelFit,
        row: Efficiency | None = None,
    ) -> None:
        """Compute the link rates and efficiency factors of the problem's cluster.

        ``row`` replaces the efficiency parameters of the GPU generation for the framework's stack.
        """
        self.problem = problem
        self.framework = framework
        self.kernels = kernels
        row = row or efficiency_for_stack(problem.cluster.generation, framework.stack)
        self.efficiency = calibrated_efficiency(row, problem.calibration)
        self.links = Links.from_cluster(problem.cluster, kernels, self.efficiency)
        self.gemm_factor = _gemm_factor(self.efficiency, problem.job.precision)
        self.gemm = kernels.gemm(problem.job.precision).device_only()
        # The output projection stays in 16 bit for every precision of the layers.
        self.head_gemm = kernels.gemm("bf16").device_only()
        self._memo: dict[Hashable, Any] = {}
        self._classes: dict[int, tuple[PipelineSplit, tuple[EqualStageGroup, ...]]] = {}

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of ``compute()``, which is called once per ``key``.

        The key must contain every quantity that the result depends on.
        """
        try:
            return cast(T, self._memo[key])
        except KeyError:
            value = self._memo[key] = compute()
            return value

    def groups(self, layout: Layout) -> Groups:
        """Return how the communication groups of ``layout`` are distributed over NVLink domains."""
        degrees = (layout.tp, layout.cp, layout.dp, layout.pp, layout.ep, layout.etp, layout.order)
        # Without ZeRO the mesh of some frameworks has an axis of replicas in place of shards.
        key = (*degrees, layout.cp_a2a, layout.dp_replicate, layout.zero_stage == 0)
        return self.memo(("groups", key), lambda: self._compute_groups(layout))

    def _compute_groups(self, layout: Layout) -> Groups:
        """Compute how all communication groups of ``layout`` are spread over NVLink domains.

        The method ``groups`` caches the result.
        """
        dense, expert = self.framework.device_meshes(layout)
        copies = layout.dp_replicate
        return Groups(
            dp_shard_cp=self._shard_span(dense, ("dp_shard", "cp"), ("dp", "cp"), copies),
            edp_shard=self._shard_span(expert, ("dp_shard",), ("dp",), copies),
            dp_replicate=self._replica_span(dense, copies),
            tp=self._axes_span(dense, "tp"),
            cp=self._axes_span(dense, "cp"),
            cp_a2a=self._axes_span(dense, "cp_a2a"),
            cp_p2p=self._axes_span(dense, "cp_p2p" if layout.cp_a2a > 1 else "cp"),
            dp_cp=self._axes_span(dense, "dp", "cp"),
            ep=self._axes_span(expert, "ep"),
            etp=self._axes_span(expert, "tp"),
            edp=self._axes_span(expert, "dp"),
            pp_stride=dense.axis("pp").stride,
            cp_stride=dense.axis("tp").size * (dense.size("cp") - layout.cp_a2a),
        )

    def _shard_span(
        self, mesh: Mesh, shard: tuple[str, ...], whole: tuple[str, ...], copies: int
    ) -> GroupSpan:
        """Return how the ranks that share one sharded state are distributed over NVLink domains.

        If ``copies`` is 1, they are all ranks along the mesh axes ``whole``. Otherwise they are the
        ranks along the axes ``shard``, or, in a mesh without a shard axis, the first 1/copies of
        the ranks along ``whole``.
        """
        together = self._axes_span(mesh, *whole)
        if copies == 1:
            return together
        if any(axis.name == "dp_shard" for axis in mesh.axes):
            return self._axes_span(mesh, *shard)
        # Replicas are the outermost part of the group, so that a shard has its first ranks.
        size = max(together.size // copies, 1)
        return GroupSpan(size, min(together.local, size))

    def _replica_span(self, mesh: Mesh, copies: int) -> GroupSpan:
        """Return how the ranks that store copies of one shard are spread over NVLink domains."""
        if any(axis.name == "dp_replicate" for axis in mesh.axes):
            return self._axes_span(mesh, "dp_replicate")
        # Copies of one shard are assumed to be in different domains.
        return GroupSpan(copies, 1)

    def _axes_span(self, mesh: Mesh, *names: str) -> GroupSpan:
        """Return how the process groups over the mesh axes ``names`` span NVLink domains.

        Results are cached by the sizes and strides of the axes, because meshes share many of them.
        """
        axes = mesh.select_axes(*names)
        key = ("span", *((axis.size, axis.stride) for axis in axes))
        return self.memo(key, lambda: group_span(axes, self.links.domain))

    def classes(self, split: PipelineSplit) -> tuple[EqualStageGroup, ...]:
        """Return the pipeline ranks of ``split``, grouped by equal layers and other modules.

        Results are cached by the identity of ``split``, because layouts share these objects and
        hashing one of them is slow.
        """
        entry = self._classes.get(id(split))
        # A stored reference to the split keeps its id from being reused by another object.
        if entry is None or entry[0] is not split:
            entry = (split, group_equal_stages(self.problem.model, split))
            self._classes[id(split)] = entry
        return entry[1]

    def layer_parameters(self, kind: LayerKind, layout: Layout) -> tuple[float, float]:
        """Return the numbers of (dense, routed-expert) parameters of one layer on one rank."""
        degrees = (layout.tp, layout.etp, layout.ep)
        return params.kind_params_on_rank(self.problem.model, kind, degrees)

    def stage_parameters(self, layout: Layout, load: StageContents) -> tuple[float, float]:
        """Return the numbers of (dense, routed-expert) parameters of a stage on one rank."""
        key = (layout.tp, layout.etp, layout.ep, layout.pp > 1, load)
        return self.memo(("stage", key), lambda: self._count_stage_parameters(layout, load))

    def _count_stage_parameters(self, layout: Layout, load: StageContents) -> tuple[float, float]:
        """Compute the numbers of (dense, routed-expert) parameters of a stage on one rank.

        The first stage adds the embedding, the last one the final norm and the output projection (a
        copy of the embedding if they are tied and pp > 1). Any other stage with
        multi-token-prediction layers keeps a copy of the embedding, as in Megatron-Core.
        """
        model = self.problem.model
        dense = expert = 0.0
        for kind, count in zip(model.kinds, load.counts, strict=True):
            if count:
                layer_dense, layer_expert = self.layer_parameters(kind, layout)
                dense += count * layer_dense
                expert += count * layer_expert
        table = self.framework.padded_vocab(self.problem, layout.tp) * model.hidden / layout.tp
        if load.embedding:
            dense += table + params.position_params(model)
        if load.final_norm:
            dense += params.final_norm_params(model)
        # With one pipeline stage a tied output projection is the embedding itself.
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
