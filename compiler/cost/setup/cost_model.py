"""Part of the cost model that is computed once per problem: links, efficiency factors, caches."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

from parc.backends.base import Framework, GraphCapture
from parc.compiler.cost.counts import params
from parc.compiler.cost.counts.adapters import adapter_params
from parc.compiler.cost.kernels.gemm import GemmFit
from parc.compiler.cost.kernels.hardware_fit import KernelFit
from parc.compiler.cost.kernels.layer_kernels import ForwardBackward
from parc.compiler.cost.kernels.scaling import NONE, SCALINGS, scaling_of_job
from parc.compiler.cost.setup.calibrated_parameters import (
    calibrated_efficiency,
    efficiency_for_stack,
)
from parc.compiler.cost.setup.links import GroupSpan, Links, group_span
from parc.compiler.cost.setup.stages import (
    DistinctChunks,
    EqualStageGroup,
    StageContents,
    distinct_chunks,
    group_equal_stages,
    stage_contents,
)
from parc.compiler.ir import (
    CapturedGraphs,
    Efficiency,
    LayerKind,
    Layout,
    Mesh,
    PipelineSplit,
    Problem,
    ProgramTraffic,
)
from parc.compiler.ir.frozen import frozen

T = TypeVar("T")
NO_GRAPHS = CapturedGraphs(frozenset(), 0)

OVERLAPPED_TP_SHARE = 0.5
"""Exposed time of tensor-parallel collectives with user buffers (``job.tp_overlap``), divided by
that without: an assumption. The buffers pipeline each collective with its own matrix
multiplication (TransformerEngine, comm_gemm_overlap). It is near the best value for 77 open runs
with user buffers: their mean error is 4.8 % with 0.3, 4.3 % with 0.5, and 4.6 % with 0.7."""
ONE_RANK = GroupSpan(1, 1)


@frozen
class GroupSpans:
    """Distribution of each process group of one layout over NVLink domains."""

    tp: GroupSpan
    cp: GroupSpan
    cp_a2a: GroupSpan
    """Neighboring ranks that exchange heads for tokens in hierarchical context parallelism.
    Without a hierarchy, the group is a single rank."""
    cp_p2p: GroupSpan
    """Ring of hierarchical context parallelism, with one member per group of neighbors. Without a
    hierarchy, the ring is the whole group ``cp``."""
    dp_cp: GroupSpan
    """Ranks that reduce the gradients of dense parameters once per step: those with equal weights,
    so that the ranks of ``gtp`` are in different groups."""
    ep: GroupSpan
    etp: GroupSpan
    edp: GroupSpan
    dp_shard_cp: GroupSpan
    """Ranks over which one copy of the state of dense parameters is sharded. They are the group
    dp_cp, or a part of this group in hybrid sharding."""
    edp_shard: GroupSpan
    """Ranks over which one copy of the state of expert parameters is sharded."""
    dp_replicate: GroupSpan
    """Ranks that store copies of one shard."""
    gtp: GroupSpan
    """Ranks that share one copy of each dense weight and gather it before use."""
    egtp: GroupSpan
    pp_stride: int
    cp_stride: int


class CostModel:
    """Cost model of one problem, with caches for results that many layouts share."""

    def __init__(
        self,
        problem: Problem,
        framework: Framework,
        kernels: KernelFit,
        row: Efficiency | None = None,
    ) -> None:
        """Compute the link rates and efficiency factors of the problem's cluster.

        ``row`` contains the efficiency parameters. If it is None, the parameters of the GPU
        generation for the framework's software stack are used.
        """
        self.problem = problem
        self.framework = framework
        # Checked once: Python 3.11 compares an object with a protocol name by name.
        self._graph_capture = framework if isinstance(framework, GraphCapture) else None
        self._traffic = framework.program_traffic(problem)
        self.kernels = kernels
        row = row or efficiency_for_stack(problem.cluster.generation, framework.stack)
        if problem.cluster.gpus == 1:
            row = row.on_one_gpu
        self.efficiency = calibrated_efficiency(row, problem.calibration)
        if problem.job.tp_overlap:
            exposed = self.efficiency.tp * OVERLAPPED_TP_SHARE
            self.efficiency = replace(self.efficiency, tp=exposed)
        self.links = Links.from_cluster(problem.cluster, kernels, self.efficiency)
        self.scaling = SCALINGS.get(scaling_of_job(problem.job), NONE)
        self.gemm = kernels.gemm_fit(problem.job.precision).without_gaps_and_casts()
        # The output projection has 16 bit for every precision of the layers.
        self.head_gemm = kernels.gemm_fit("bf16").without_gaps_and_casts()
        self._memo: dict[Hashable, Any] = {}
        self._stages: dict[int, tuple[PipelineSplit, tuple[StageContents, ...]]] = {}
        self._classes: dict[int, tuple[PipelineSplit, tuple[EqualStageGroup, ...]]] = {}
        self._chunks: dict[int, tuple[PipelineSplit, DistinctChunks]] = {}

    def step_gemm_seconds(
        self, isolated_seconds: Callable[[GemmFit], ForwardBackward]
    ) -> ForwardBackward:
        """Return the forward and backward times in seconds of the layers' GEMMs in a training step.

        ``isolated_seconds`` returns the times of the same GEMMs as isolated kernels with a fit. In
        8 or 4 bit, no pass is faster than in 16 bit by more than the ratio of the peak rates.
        """
        wide, factor = self.head_gemm, self.efficiency.gemm
        if not self.problem.job.is_low_precision:
            return isolated_seconds(self.gemm).scaled(factor)
        # The factors and shares of both formats are measured on one GPU type. On another one, whose
        # memory or SMs are faster relative to its peak, their ratio can exceed that of the peaks.
        least = factor * wide.flops_per_second / self.gemm.flops_per_second
        bound = isolated_seconds(wide).scaled(least)
        narrow = isolated_seconds(self.gemm).scaled(
            self.efficiency.gemm_low * self.scaling.gemm_factor
        )
        return ForwardBackward(
            max(narrow.forward, bound.forward), max(narrow.backward, bound.backward)
        )

    def traffic(self, layout: Layout) -> ProgramTraffic:
        """Return the traffic of the program's element-wise kernels at the layout's ZeRO stage."""
        if layout.zero_stage == 0 and self._traffic.replicated is not None:
            return self._traffic.replicated
        return self._traffic

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of ``compute()``. The function is called only once per ``key``.

        The key must contain every quantity on which the result depends.
        """
        try:
            found: T = self._memo[key]
        except KeyError:
            found = self._memo[key] = compute()
        return found

    def captured_graphs(self, layout: Layout) -> CapturedGraphs:
        """Return the CUDA graphs that the framework captures for ``layout``.

        They are empty if the framework captures none (``GraphCapture`` of ``backends/base.py``).
        """
        if not layout.cuda_graphs or self._graph_capture is None:
            return NO_GRAPHS
        return self._graph_capture.captured_graphs(self.problem, layout)

    def group_spans(self, layout: Layout) -> GroupSpans:
        """Return how the process groups of ``layout`` are distributed over NVLink domains."""
        degrees = (layout.tp, layout.cp, layout.dp, layout.pp, layout.ep, layout.etp, layout.order)
        # Without ZeRO the mesh of some frameworks has an axis of replicas in place of shards.
        shared = (layout.cp_a2a, layout.dp_replicate, layout.gtp, layout.egtp)
        key = (*degrees, *shared, layout.zero_stage == 0)
        return self.cached(("groups", key), lambda: self._compute_group_spans(layout))

    def _compute_group_spans(self, layout: Layout) -> GroupSpans:
        """Compute how the process groups of ``layout`` are distributed over NVLink domains.

        The method ``group_spans`` caches the result.
        """
        dense, expert = self.framework.device_meshes(layout)
        copies, hierarchical = layout.dp_replicate, layout.cp_a2a > 1
        cp = self._axes_span(dense, "cp")
        # Ranks that share weights reduce the gradients of these among themselves, per micro-batch.
        dp_cp = self._axes_span(dense, "dp" if layout.gtp == 1 else "dp_shard", "cp")
        edp = self._axes_span(expert, "dp" if layout.egtp == 1 else "dp_shard")
        return GroupSpans(
            dp_shard_cp=self._shard_span(dense, ("dp_shard", "cp"), dp_cp, copies),
            edp_shard=self._shard_span(expert, ("dp_shard",), edp, copies),
            dp_replicate=self._replica_span(dense, copies),
            tp=self._axes_span(dense, "tp"),
            cp=cp,
            cp_a2a=self._axes_span(dense, "cp_a2a") if hierarchical else ONE_RANK,
            cp_p2p=self._axes_span(dense, "cp_p2p") if hierarchical else cp,
            dp_cp=dp_cp,
            ep=self._axes_span(expert, "ep"),
            etp=self._axes_span(expert, "tp"),
            edp=edp,
            gtp=self._axes_span(dense, "gtp"),
            egtp=self._axes_span(expert, "gtp"),
            pp_stride=dense.axis_by_name("pp").stride,
            cp_stride=dense.axis_by_name("tp").size * (dense.group_size("cp") - layout.cp_a2a),
        )

    def _shard_span(
        self, mesh: Mesh, shard: tuple[str, ...], together: GroupSpan, copies: int
    ) -> GroupSpan:
        """Return how the ranks that shard one copy of a state are distributed over NVLink domains.

        These ranks are:
        - if there is a single copy: all ranks of ``together``, the ranks of all copies;
        - if the mesh has an axis dp_shard: the ranks along the axes ``shard``;
        - otherwise: the first 1/``copies`` of the ranks of ``together``.
        """
        if copies == 1:
            return together
        if any(axis.name == "dp_shard" for axis in mesh.axes):
            return self._axes_span(mesh, *shard)
        # Replicas are the outermost part of the group, so that a shard has its first ranks.
        size = max(together.size // copies, 1)
        return GroupSpan(size, min(together.local, size))

    def _replica_span(self, mesh: Mesh, copies: int) -> GroupSpan:
        """Return how the ranks that store copies of one shard are distributed over NVLink domains.

        ``copies`` is the number of copies.
        """
        if any(axis.name == "dp_replicate" for axis in mesh.axes):
            return self._axes_span(mesh, "dp_replicate")
        # Copies of one shard are assumed to be in different domains.
        return GroupSpan(copies, 1)

    def _axes_span(self, mesh: Mesh, *names: str) -> GroupSpan:
        """Return how a process group along the mesh axes ``names`` is spread over NVLink domains.

        The result is cached by the sizes and strides of the axes, because many meshes share these
        axes.
        """
        axes = mesh.select_axes(*names)
        key = ("span", *[(axis.size, axis.stride) for axis in axes])
        return self.cached(key, lambda: group_span(axes, self.links.domain))

    def all_stage_contents(self, split: PipelineSplit) -> tuple[StageContents, ...]:
        """Return the layers and other modules of each pipeline rank of ``split``."""
        # Cached by the identity of the split, because hashing it is slow and layouts share splits.
        entry = self._stages.get(id(split))
        # A stored reference to the split keeps its id from being reused by another object.
        if entry is None or entry[0] is not split:
            model, ranks = self.problem.model, range(len(split.chunks))
            entry = split, tuple(stage_contents(model, split, rank) for rank in ranks)
            self._stages[id(split)] = entry
        return entry[1]

    def equal_stage_groups(self, split: PipelineSplit) -> tuple[EqualStageGroup, ...]:
        """Return the pipeline ranks of ``split`` in groups with equal layers and other modules."""
        # Cached in the same way as ``all_stage_contents``.
        entry = self._classes.get(id(split))
        if entry is None or entry[0] is not split:
            entry = (split, group_equal_stages(self.all_stage_contents(split)))
            self._classes[id(split)] = entry
        return entry[1]

    def distinct_chunks(self, split: PipelineSplit) -> DistinctChunks:
        """Return the model chunks of ``split``; chunks that take equal time are listed once."""
        # Cached in the same way as ``all_stage_contents``.
        entry = self._chunks.get(id(split))
        if entry is None or entry[0] is not split:
            entry = self._chunks[id(split)] = (split, distinct_chunks(self.problem.model, split))
        return entry[1]

    def layer_parameters(self, kind: LayerKind, layout: Layout) -> tuple[float, float]:
        """Return (number of dense, number of routed-expert) parameters of one layer on one rank.

        Weights that the ranks of gtp or egtp share are counted as a whole, as they are gathered.
        """
        degrees = (layout.tp, layout.etp, layout.ep)
        return self.cached(
            ("parameters", kind, degrees),
            lambda: params.layer_kind_params_on_rank(self.problem.model, kind, degrees),
        )

    def adapter_parameters(self, kind: LayerKind) -> int:
        """Return the number of parameters of the LoRA adapters of one layer; 0 without LoRA."""
        lora, model = self.problem.job.lora, self.problem.model
        if lora is None:
            return 0
        return self.cached(("adapters", kind), lambda: adapter_params(model, kind, lora))

    def trained_layer_parameters(self, kind: LayerKind, layout: Layout) -> tuple[float, float]:
        """Return (number of dense, number of routed-expert) parameters of a layer with gradients.

        With LoRA, these are the adapters. Otherwise they are those of ``layer_parameters``.
        """
        if self.problem.job.lora is None:
            return self.layer_parameters(kind, layout)
        return self.adapter_parameters(kind), 0.0

    def trained_stage_parameters(self, layout: Layout, load: StageContents) -> tuple[float, float]:
        """Return (number of dense, number of routed-expert) parameters of a stage with gradients.

        With LoRA, these are the adapters. Otherwise they are those of ``stage_parameters``.
        """
        if self.problem.job.lora is None:
            return self.stage_parameters(layout, load)
        kinds = load.layers_by_kind(self.problem.model).items()
        return sum(count * self.adapter_parameters(kind) for kind, count in kinds), 0.0

    def shared_layer_parameters(self, kind: LayerKind, layout: Layout) -> tuple[float, float]:
        """Return the parameters of one layer that gtp and egtp divide: (dense, routed experts).

        They are all parameters of ``layer_parameters`` except norms and routers.
        """
        dense, expert = self.layer_parameters(kind, layout)
        return dense - params.norm_and_router_params(self.problem.model, kind), expert

    def stage_parameters(self, layout: Layout, load: StageContents) -> tuple[float, float]:
        """Return (number of dense, number of routed-expert) parameters that a rank stores.

        The rank is one of the pipeline stage with the contents ``load``.
        """
        key = (layout.tp, layout.etp, layout.ep, layout.pp > 1, load)
        dense, expert = self.cached(
            ("stage", key), lambda: self._count_stage_parameters(layout, load)
        )
        if layout.gtp == layout.egtp == 1:
            return dense, expert
        kept = self.cached(("kept", load), lambda: self._count_unshared_parameters(load))
        return kept + (dense - kept) / layout.gtp, expert / layout.egtp

    def _count_unshared_parameters(self, load: StageContents) -> float:
        """Return the number of parameters of a stage that gtp does not divide."""
        model = self.problem.model
        layers = load.layers_by_kind(model).items()
        kept = sum(count * params.norm_and_router_params(model, kind) for kind, count in layers)
        kept += load.mtp_layers * params.norm_and_router_params(model, model.last_kind)
        kept += params.final_norm_params(model) if load.final_norm else 0
        return kept + (params.position_table_params(model) if load.embedding else 0)

    def embedding_copies(self, tp: int) -> int:
        """Return the number of copies of the input embedding in a group of ``tp`` ranks."""
        if tp == 1 or self.problem.model.tied_embeddings:
            return 1
        whole = self.cached(
            ("whole embedding",),
            lambda: self.framework.training_memory_model(self.problem).whole_embedding,
        )
        return tp if whole else 1

    def _count_stage_parameters(self, layout: Layout, load: StageContents) -> tuple[float, float]:
        """Compute (number of dense, number of routed-expert) parameters of a stage on one rank.

        Embedding, final norm and output projection are counted on the stages that store them.
        """
        # With tied embeddings and pp > 1, the last stage stores a copy of the embedding. Any other
        # stage with multi-token-prediction layers also stores a copy, as in Megatron-Core.
        model = self.problem.model
        dense = expert = 0.0
        for kind, count in zip(model.kinds, load.counts, strict=True):
            if count:
                layer_dense, layer_expert = self.layer_parameters(kind, layout)
                dense += count * layer_dense
                expert += count * layer_expert
        table = self.framework.padded_vocab(self.problem, layout.tp) * model.hidden / layout.tp
        if load.embedding:
            dense += table * self.embedding_copies(layout.tp) + params.position_table_params(model)
            dense += params.extra_params(model, "embedding")
        if load.final_norm:
            dense += params.final_norm_params(model) + params.extra_params(model, "output")
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
