"""Base class of frameworks: everything that most frameworks have in common, as default.

A backend overrides the members in which its framework differs. ``docs/plugins.md`` lists the
defaults; those about time and memory are assumptions, which ``parc compile`` names.
"""

from __future__ import annotations

from typing import ClassVar

from parc.backends.shared.common_rules import BATCH, GPU_COUNT, HEADS, NO_EXPERTS
from parc.backends.shared.expert_mesh import COLUMNS, expert_mesh, mesh_in_order
from parc.backends.shared.pipeline_split import even_layer_counts, looped_split
from parc.backends.shared.variants import apply_pins
from parc.compiler.diagnostics import CodedFinding, Finding, Sink
from parc.compiler.ir import (
    NO_RECOMPUTE,
    GradientExchange,
    GroupFamily,
    Layout,
    LayoutVariant,
    Mesh,
    Model,
    PipelineSplit,
    Plan,
    Problem,
    ProgramMemory,
    ProgramTraffic,
    Recompute,
    StateBytes,
)
from parc.compiler.ir.program_traffic import FUSED_KERNELS
from parc.compiler.ir.rule import Rule

SET_STAGES = (
    *("first_stage_layers", "last_stage_layers", "pipeline_layout"),
    *("count_embedding", "count_loss"),
)
"""Fields of ``layout`` with which a spec sets the layers of pipeline stages."""


class PlainFramework:
    """A framework with one rank order per job, stages of equal size, and the usual Adam states.

    A subclass defines ``name``, ``versions``, ``strategies``, ``orders``, ``stack``, ``emit`` and
    ``launch_command``.
    """

    name: ClassVar[str]
    versions: ClassVar[tuple[str, ...]]
    orders: ClassVar[tuple[str, ...]]
    """Supported rank orders, the default first: axes from the fastest-varying to the slowest, such
    as ``tp-cp-ep-dp-pp``."""
    strategies: ClassVar[dict[str, str]]
    recomputes_first_layers = False
    gradient_exchange = GradientExchange()

    @property
    def default_version(self) -> str:
        """The newest of ``versions``."""
        return self.versions[-1]

    def layout_variants(self, problem: Problem) -> tuple[LayoutVariant, ...]:
        """Return a variant per ZeRO stage in ``strategies``, the highest first, and stage 0."""
        stages = [stage for stage in (3, 2, 1) if f"zero-{stage}" in self.strategies]
        return apply_pins(problem, (LayoutVariant(stage) for stage in (*stages, 0)))

    def recompute_settings(self, problem: Problem) -> tuple[Recompute, ...]:
        """Return no recomputation, and of whole layers if ``strategies`` has it."""
        full = (Recompute("full", (), "uniform", 1),)
        return (NO_RECOMPUTE, *(full if "recompute-full" in self.strategies else ()))

    def rules(self, problem: Problem) -> tuple[Rule, ...]:
        """Return the rules of every framework: heads, GPUs, batch, experts and stages.

        A subclass adds its own rules to the result of ``super().rules(problem)``.
        """
        experts = () if problem.model.experts else (NO_EXPERTS,)
        return (HEADS, GPU_COUNT, BATCH, *experts, self._split_rule())

    def _split_rule(self) -> Rule:
        """Return the rule that a split of the layers exists.

        For a fixed pp without a split, the search evaluates a placeholder, which this rule rejects.
        """

        def has_no_split(problem: Problem, layout: Layout) -> bool:
            return self.find_split(problem, layout.pp, layout.vpp) is None

        def explain(problem: Problem, layout: Layout) -> Finding:
            return self.why_no_split(problem, layout.pp, layout.vpp).finding

        paths = (*(f"layout.{name}" for name in SET_STAGES), "layout.vpp", "layout.pp")
        return Rule("E11", paths, has_no_split, explain, ("pp", "vpp"))

    def find_split(self, problem: Problem, pp: int, vpp: int) -> PipelineSplit | None:
        """Return stages of equal size; None for model chunks, or if the spec sets the stages."""
        layers = problem.model.layers
        if vpp > 1 or pp > layers or self._set_stages(problem):
            return None
        return looped_split(problem.model, even_layer_counts(layers, pp), pp)

    def split_with_counts(
        self, problem: Problem, split: PipelineSplit, counts: tuple[int, ...]
    ) -> PipelineSplit | None:
        """Return None, because the framework itself splits the layers evenly.

        A framework that is given the layers of each stage returns the result of
        ``shared/pipeline_split.py``, ``split_with_counts``.
        """
        return None

    def why_no_split(self, problem: Problem, pp: int, vpp: int) -> CodedFinding:
        """Return the reason why ``find_split`` returns None."""
        stages = self._set_stages(problem)
        if stages:
            at = f"layout.{stages[0]}"
            finding = Finding(
                f"{self.name} always splits the layers evenly over the stages",
                label=f"{at} sets other stages",
                fix=f"remove {at}",
                targets=(self.name,),
            )
            return CodedFinding("E11", at, finding)
        if vpp > 1:
            finding = Finding(
                f"{self.name} has one model chunk per stage",
                label=f"vpp is {vpp}, must be 1",
                fix="layout.vpp: 1",
                targets=(self.name,),
            )
            return CodedFinding("E11", "layout.vpp", finding)
        layers = problem.model.layers
        finding = Finding(
            f"{layers} layers are fewer than pp {pp} stages",
            help=f"valid pp: 1 to {layers}",
            fix=f"layout.pp: {layers}",
            targets=(self.name,),
        )
        return CodedFinding("E11", "layout.pp", finding)

    def _set_stages(self, problem: Problem) -> tuple[str, ...]:
        """Return the fields of ``layout`` with which the spec sets the layers of stages."""
        return tuple(one for one in SET_STAGES if getattr(problem.pins, one) is not None)

    def rank_orders(self, problem: Problem) -> tuple[str, ...]:
        """Return ``orders``."""
        return self.orders

    def device_meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        """Return (dense mesh, expert mesh), with the axes in the order of ``layout.order``."""
        dense = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp}
        return mesh_in_order(layout.order, dense), expert_mesh(layout)

    def group_families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        """Return one family per axis, each a column of the rank map."""
        return tuple(one for one in COLUMNS if one.name != "etp")

    def default_program(self, model: Model, version: str) -> str:
        """Return an empty text: the program is among the emitted files."""
        return ""

    def environment(self, plan: Plan) -> tuple[tuple[str, str], ...]:
        """Return no variables, because those of every torch job are sufficient."""
        return ()

    def training_memory_model(self, problem: Problem) -> ProgramMemory:
        """Return 16-bit weights, fp32 gradients, and fp32 masters with two moments of Adam."""
        return ProgramMemory(name=self.name, state=StateBytes(2.0, 4.0, 12.0))

    def program_traffic(self, problem: Problem) -> ProgramTraffic:
        """Return the memory traffic of fused kernels, as those of Transformer Engine."""
        return FUSED_KERNELS

    def padded_vocab(self, problem: Problem, tp: int) -> int:
        """Return the next multiple of ``tp``, so that each rank has equally many rows."""
        return -(-problem.model.vocab // tp) * tp

    def check(self, plan: Plan, sink: Sink) -> None:
        """Report nothing: rules and the declared fields reject what the files cannot express."""
