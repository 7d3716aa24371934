"""Small problems and layouts for the tests of placement, rank map and verification."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.megatron.meshes import megatron_group_families, megatron_meshes
from parc.compiler.ir import (
    NO_OFFLOAD,
    NO_RECOMPUTE,
    NO_ZERO_PLUS,
    Attention,
    AxisTraffic,
    Cluster,
    Estimate,
    Experts,
    Fabric,
    FeedForward,
    Goals,
    Gpu,
    GroupFamily,
    Host,
    Layout,
    Mesh,
    Model,
    ModelChunk,
    NodeType,
    Pins,
    PipelineSplit,
    PlacementPolicy,
    Plan,
    Position,
    Problem,
    Rack,
    Search,
    StageMemory,
    StepTime,
)
from parc.compiler.ir.estimate import Run
from parc.compiler.placement.place_ranks import place_ranks
from tests.generations import generation
from tests.spec_defaults import job, launch

HOPPER = generation("hopper")
GPU = Gpu("h100", "nvidia", "hopper", (9, 0), 80 * 10**9, 3350.0, (("bf16", 989.4),), "test")
NODE = NodeType("dgx-h100", 8, 8, 450.0, "nvlink", 8, 400.0, (), 112, "test", None, (), ())
NVL72 = NodeType("gb200-nvl72", 4, 72, 900.0, "nvlink", 4, 400.0, (), 72, "test", None, (), ())
FABRIC = Fabric("infiniband-ndr", "infiniband", 2e-6, 2.0, "test", 0)


class MegatronOrder:
    """Meshes of Megatron, for tests that need no other part of a framework."""

    def device_meshes(self, layout: Layout) -> tuple[Mesh, Mesh]:
        return megatron_meshes(layout)

    def group_families(self, layout: Layout) -> tuple[GroupFamily, ...]:
        return megatron_group_families(layout)


def racks(*sizes: int, domain: int = 1) -> tuple[Rack, ...]:
    """Return racks of the given sizes; ``domain`` hosts share an NVLink domain."""
    return tuple(_rack(index, size, domain) for index, size in enumerate(sizes, start=1))


def _rack(index: int, size: int, domain: int) -> Rack:
    name = f"r{index:02d}"
    hosts = []
    for number in range(1, size + 1):
        host = f"{name}n{number:02d}"
        shared = f"{name}.{(number - 1) // domain}" if domain > 1 else host
        hosts.append(Host(host, name, shared, ()))
    return Rack(name, tuple(hosts))


def cluster(*sizes: int, node: NodeType = NODE) -> Cluster:
    """Return a cluster of named racks of ``node`` without spares."""
    domain = max(1, node.nvlink_domain // node.gpus)
    placed = racks(*sizes, domain=domain)
    return Cluster(GPU, node, FABRIC, placed, (), (), named=True, generation=HOPPER, upper=())


def layout(layers: int = 32, order: str = "tp-cp-ep-dp-pp", **degrees: int) -> Layout:
    """Return a layout with parallel sizes by keyword (default 1) and an even split of layers."""
    sizes = {"tp": 1, "cp": 1, "pp": 1, "vpp": 1, "dp": 1, "ep": 1, **degrees}
    sizes.setdefault("etp", sizes["tp"])
    return Layout(
        tp=sizes["tp"],
        cp=sizes["cp"],
        pp=sizes["pp"],
        vpp=sizes["vpp"],
        dp_replicate=1,
        dp_shard=sizes["dp"],
        ep=sizes["ep"],
        etp=sizes["etp"],
        micro_batch=1,
        schedule="interleaved" if sizes["vpp"] > 1 else "1f1b",
        sequence_parallel=sizes["tp"] > 1,
        zero_stage=1,
        recompute=NO_RECOMPUTE,
        split=_even(layers, sizes["pp"], sizes["vpp"]),
        order=order,
        cp_comm="p2p",
        cp_a2a=1,
        offload=NO_OFFLOAD,
        zero_plus=NO_ZERO_PLUS,
        cuda_graphs=False,
    )


def _even(layers: int, pp: int, vpp: int) -> PipelineSplit:
    each = layers // (pp * vpp)
    chunks = tuple(
        tuple(
            ModelChunk(
                first_layer=(turn * pp + stage) * each,
                layers=each,
                embedding=stage == 0 and turn == 0,
                mtp_layers=0,
                loss=stage == pp - 1 and turn == vpp - 1,
            )
            for turn in range(vpp)
        )
        for stage in range(pp)
    )
    return PipelineSplit("even", False, False, "", chunks)


def model(layers: int = 32, experts: int = 0) -> Model:
    """Return a small model; placement depends only on its layers and experts."""
    routed = Experts(
        experts,
        2,
        1024,
        0,
        False,
        (True,) * layers,
        False,
        "softmax",
        False,
        1,
        1,
        "none",
        1.0,
        0.0,
    )
    return Model(
        name="tiny",
        family="llama",
        layers=layers,
        hidden=1024,
        vocab=32000,
        attention=Attention(16, 16, 64, False, False, "none", None, None, False, 0, False),
        ffn=FeedForward(4096, True, "silu", False),
        experts=routed if experts else None,
        norm="rmsnorm",
        norm_epsilon=1e-5,
        init_std=None,
        norms_per_layer=2,
        final_norm=True,
        position=Position("rope", 10000.0, 1.0, "none", 1.0, 8192, 8192, 1.0, 0.0),
        tied_embeddings=False,
        mtp_layers=0,
        source="test",
        left_out="",
        linear=None,
        mamba=None,
        pattern="",
    )


def problem(on: Cluster, of: Model | None = None, policy: PlacementPolicy | None = None) -> Problem:
    """Return a pretraining job of the model ``of`` on the cluster ``on``."""
    return Problem(
        name="tiny",
        model=of or model(),
        cluster=on,
        job=job(sequence_length=4096, global_batch=4096, steps=10),
        goals=Goals("throughput", 0.08, 0.01, "allow", ()),
        pins=Pins(placement=policy),
        launch=launch(program="pretrain_gpt.py"),
        emit=("megatron", "rankmap"),
        framework="megatron",
        versions=(("megatron", "0.19"), ("rankmap", "1")),
        digest="0" * 64,
        calibration=(),
    )


def estimate(dp_bytes: float = 10e9, pp_bytes: float = 1e9, **others: float) -> Estimate:
    """Return an estimate with the given traffic per axis, all of it exposed."""
    traffic = {"dp_cp": dp_bytes, "pp": pp_bytes, **others}
    rows = tuple(AxisTraffic(axis, size, "fabric", 50.0) for axis, size in traffic.items())
    memory = StageMemory(0, 1e9, 1e9, 1e9, 1e9, 0.0, 0.0, 1e9, 0.0, 0.0, 0.0, 0.0)
    time = StepTime(1.0, 0.0, 9.0, 9.0, 9.0, 9.0, 0.0, 9.0, 0.0)
    return Estimate((memory,), 70e9, time, rows, 1e15, 0.4, 1e5, 0.9, 1.1)


RUN = Run(
    steps=1,
    tokens=1,
    productive_seconds=1.0,
    wall_seconds=1.0,
    effective_share=1.0,
    expected_failures=0.0,
    finish_probability=1.0,
    failure_interval_seconds=1.0,
    checkpoint_bytes=1.0,
    checkpoint_steps=None,
    best_checkpoint_steps=1,
    save_seconds=1.0,
    restart_seconds=1.0,
    spares=0,
    gpu_hours=1.0,
    energy_kwh=None,
    cost=None,
)


def plan(
    on: Cluster,
    of: Layout,
    costs: Estimate | None = None,
    experts: int = 0,
    policy: PlacementPolicy | None = None,
) -> Plan:
    """Return a placed plan of the layout ``of`` on the cluster ``on``."""
    layers = sum(of.split.stage_layers(stage) for stage in range(of.pp))
    job = problem(on, model(layers, experts), policy)
    costs = costs or estimate()
    placement = place_ranks(job, MegatronOrder(), of, costs)
    return Plan(job, of, costs, placement, Search(1, (), ()), RUN)


def with_hosts(of: Plan, hosts: tuple[Host, ...]) -> Plan:
    """Return the plan on other hosts."""
    return replace(of, placement=replace(of.placement, hosts=hosts))
