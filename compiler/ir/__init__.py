"""The nouns: frozen, typed, each saying only what is known by then."""

from parc.compiler.ir.cluster import Cluster, Fabric, Gpu, Host, Level, NodeType, Rack
from parc.compiler.ir.estimate import AxisTraffic, Estimate, StageMemory, StepTime
from parc.compiler.ir.layout import NO_RECOMPUTE, Chunk, Layout, Recompute, Split
from parc.compiler.ir.model import (
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Model,
    Position,
)
from parc.compiler.ir.placement import (
    DENSE_GROUPS,
    EXPERT_GROUPS,
    Axis,
    Crossing,
    Mesh,
    Placement,
)
from parc.compiler.ir.plan import Artifact, Candidate, Plan, Search
from parc.compiler.ir.problem import Goals, Job, Launch, Limit, Pins, Precision, Problem, SlurmJob

__all__ = [
    "DENSE_GROUPS",
    "EXPERT_GROUPS",
    "NO_RECOMPUTE",
    "Artifact",
    "Attention",
    "Axis",
    "AxisTraffic",
    "Candidate",
    "Chunk",
    "Cluster",
    "Crossing",
    "Estimate",
    "Experts",
    "Fabric",
    "FeedForward",
    "Goals",
    "Gpu",
    "Host",
    "Job",
    "LatentAttention",
    "Launch",
    "Layout",
    "Level",
    "Limit",
    "Mesh",
    "Model",
    "NodeType",
    "Pins",
    "Placement",
    "Plan",
    "Position",
    "Precision",
    "Problem",
    "Rack",
    "Recompute",
    "Search",
    "SlurmJob",
    "Split",
    "StageMemory",
    "StepTime",
]
