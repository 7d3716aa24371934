"""The nouns: frozen, typed, each saying only what is known by then."""

from parc.compiler.ir.cluster import Cluster, Fabric, Gpu, Host, Level, NodeType, Rack
from parc.compiler.ir.estimate import AxisTraffic, Estimate, StageMemory, StepTime
from parc.compiler.ir.generation import Efficiency, Generation, ServingEfficiency, Stack
from parc.compiler.ir.layout import (
    NO_RECOMPUTE,
    Chunk,
    ContextComm,
    Layout,
    Offload,
    Recompute,
    Schedule,
    Split,
    Variant,
    ZeroPlus,
)
from parc.compiler.ir.locked_plan import LockedPlan
from parc.compiler.ir.model import (
    DENSE,
    ROUTED,
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    LayerKind,
    LinearAttention,
    Mamba,
    Model,
    Position,
)
from parc.compiler.ir.placement import (
    Axis,
    Family,
    Mesh,
    Placement,
    PlacementAlternative,
    Proof,
)
from parc.compiler.ir.plan import Artifact, Candidate, Plan, Search
from parc.compiler.ir.problem import (
    Goals,
    Job,
    KubernetesJob,
    Launch,
    Limit,
    Pins,
    Precision,
    Problem,
    SlurmJob,
    Task,
)
from parc.compiler.ir.program_memory import GradientExchange, ProgramMemory, StateBytes
from parc.compiler.ir.serving import ServingEstimate, ServingLayout
from parc.compiler.ir.serving_plan import ServingPlan, ServingProblem, ServingSearch

AnyPlan = Plan | ServingPlan
"""What backends and reports are given."""
AnyProblem = Problem | ServingProblem

__all__ = [
    "DENSE",
    "NO_RECOMPUTE",
    "ROUTED",
    "AnyPlan",
    "AnyProblem",
    "Artifact",
    "Attention",
    "Axis",
    "AxisTraffic",
    "Candidate",
    "Chunk",
    "Cluster",
    "ContextComm",
    "Efficiency",
    "Estimate",
    "Experts",
    "Fabric",
    "Family",
    "FeedForward",
    "Generation",
    "Goals",
    "Gpu",
    "GradientExchange",
    "Host",
    "Job",
    "KubernetesJob",
    "LatentAttention",
    "Launch",
    "LayerKind",
    "Layout",
    "Level",
    "Limit",
    "LinearAttention",
    "LockedPlan",
    "Mamba",
    "Mesh",
    "Model",
    "NodeType",
    "Offload",
    "Pins",
    "Placement",
    "PlacementAlternative",
    "Plan",
    "Position",
    "Precision",
    "Problem",
    "ProgramMemory",
    "Proof",
    "Rack",
    "Recompute",
    "Schedule",
    "Search",
    "ServingEfficiency",
    "ServingEstimate",
    "ServingLayout",
    "ServingPlan",
    "ServingProblem",
    "ServingSearch",
    "SlurmJob",
    "Split",
    "Stack",
    "StageMemory",
    "StateBytes",
    "StepTime",
    "Task",
    "Variant",
    "ZeroPlus",
]
