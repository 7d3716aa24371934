"""Values of every field of the spec that the law of fields compares, and the specs they are set in.

The fields come from the pydantic models, so that a new field is compared without a change here,
unless its type does not show which values make sense, or the field only counts with other settings.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from parc.compiler.spec.annotations import is_percentage, literal_values, model_of, union_members
from tests.compiled import Spec

RACKS = [
    {"name": "a", "nodes": "a[1-2]", "above": ["pod1", "core"]},
    {"name": "b", "nodes": "b[1-2]", "above": ["pod2", "core"]},
]
CLUSTER = {"node": {"base": "dgx-h100"}, "fabric": {"base": "infiniband-ndr"}, "racks": RACKS}
BATCH = {"sequence_length": 4096, "global_batch": 128}
SIZES = {"tp": 2, "cp": 1, "pp": 2, "vpp": 1, "ep": 1, "micro_batch": 1}
TRAFFIC = {"input_tokens": 1000, "output_tokens": 200}


def _base(model: str, layout: Spec, job: Spec) -> Spec:
    head = {"parc": 1, "name": "law", "model": {"base": model}, "cluster": CLUSTER}
    return {**head, "job": job, "layout": layout}


def _training(model: str, **layout: int) -> Spec:
    return _base(model, {**SIZES, **layout}, BATCH)


def _serving(model: str, **layout: int) -> Spec:
    return _base(model, {"tp": 2, "pp": 1, **layout}, {"kind": "serve", "traffic": TRAFFIC})


DENSE = _training("llama-3-8b")
PLAIN = _training("llama-3-8b", tp=1, pp=1)
PLAIN["model"]["layers"] = 8
EXPERTS = _training("qwen3-30b-a3b", ep=8, etp=1)
LATENT = _training("deepseek-v2-lite", ep=4, etp=1, pp=1)
HYBRID = _training("nemotron-h-8b", pp=1)
LINEAR = _training("qwen3-next-80b-a3b", ep=16, etp=1, pp=1)
TRAINING = (DENSE, PLAIN)
"""Pipelined and split over two ranks, and a layout that every framework supports."""
SERVICE = _serving("llama-3-8b")
WIDE = _serving("llama-3-8b", tp=8, pp=4)
"""One engine over both racks."""
SERVED_EXPERTS = _serving("mixtral-8x7b", tp=4, dp=2)
SERVED_LATENT = _serving("deepseek-v2-lite", tp=1, dp=4)
SERVED_HYBRID = _serving("nemotron-h-8b")
SERVED_LINEAR = _serving("qwen3-next-80b-a3b", tp=8)
SERVED = (_serving("deepseek-v2-lite", tp=4, dcp=2, replicas=2, dp=2, pcp=2),)
SERVING = (SERVICE, WIDE)

LOW_RANK = {"queries": 512, "output": 512}
COMPRESSED = [{"layers": [1, 2, 3], "compression": {"rate": 4}}]
PAIRS: dict[str, tuple[Any, ...]] = {
    r"name|cluster.*\.name|model\.name": ("one", "two"),
    r".*source": ("one", "two"),
    r"site": ("slurm-pyxis-efa", "kubernetes-roce"),
    r"model": ("llama-3-8b", "llama-3-70b"),
    r"model\.base": ("llama-3-8b", "llama-2-7b"),
    r"model\.family": ("llama", "gemma2"),
    r"model\.layer_variants": ([{"layers": [1], "ffn": 512}], [{"layers": [1, 2], "mlp": False}]),
    r"model\.layer_variants\[\]\.layers": ([1, 2], [1, 2, 3, 4]),
    r"model\.convolution": ({"conv_size": 3}, {"conv_size": 4}),
    r"model\.layer_variants\[\]\.mixer": ("convolution", "attention"),
    r"model\.layer_variants\[\]\.(ffn|window)": (512, 1024),
    r"model\.layer_variants\[\]\.(heads|kv_heads)": (16, 8),
    r"model\.extra_weights": (
        [{"name": "one", "parameters": 10**8}],
        [{"name": "one", "parameters": 9 * 10**8, "multiplied": True}],
    ),
    r"model\.extra_weights\[\]\.parameters": (10**8, 9 * 10**8),
    r"model\.indexer\.(heads|top_k)": (16, 64, 256),
    r"model\.low_rank": (LOW_RANK, {"queries": 256, "output": 512}),
    r"model\.low_rank\.output_groups": (1, 4),
    r"model\.layer_variants\[\]\.compression": ({"rate": 4}, {"rate": 128}),
    r"model\.layer_variants\[\]\.compression\.rate": (4, 128),
    r"model\.residual_streams": (1, 4),
    r"model\.mamba\.step_rank": (0, 64, 128),
    r"model\.pattern": ("M-M*" * 13, "M-*-" * 13),
    r"model\.(ffn|hidden)": (4096, 8192, 14336),
    r"model\.layers": (8, 16),
    r"model\.vocab": (32000, 64000),
    r"model\.(heads|kv_heads)": (32, 16, 8),
    r"model\..*(head_dim|rank|_dim)": (64, 128, 256),
    r"model\..*(state_size|_heads|mamba\.heads)": (16, 32, 64, 128),
    r"model\.mamba\.groups": (1, 8),
    r"model\.experts\.(count|size|shared_size)": (64, 128, 768, 1536),
    r"model\.(window|.*max_positions)": (1024, 8192, 16384, 131072),
    r"model\.position\.base": (10000.0, 50000.0),
    r"model\.position\.(scaling_factor|mscale.*)": (2.0, 4.0),
    r"cluster": ("gb200-nvl72-8", "gb300-nvl72-8"),
    r"cluster\.base": ("gb200-nvl72-8", "gb300-nvl72-8"),
    r"cluster\..*gpu(\.base)?": ("h100-sxm-80gb", "h200-sxm-141gb"),
    r".*generation": ("hopper", "ampere"),
    r".*compute_capability": ("9.0", "8.0"),
    r".*gpu\.memory": ("80GB", "60GB"),
    r"cluster\.node(\.base)?": ("dgx-h100", "dgx-a100"),
    r"cluster\.(node\.)?fabric(\.base)?": ("infiniband-ndr", "roce-400g"),
    r".*peak_tflops": ({"bf16": 900.0}, {"bf16": 500.0}),
    r".*gpus_per_node|cluster\.node\.nvlink_domain": (8, 4, 2),
    r".*nic_speed": ("400Gb/s", "200Gb/s"),
    r".*host_memory": ("2000GB", "1GB"),
    r".*latency": ("2us", "9us"),
    r".*nic_names": (["mlx5_0"], ["mlx5_1"]),
    r".*gpu_numa": ([0, 0, 0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1]),
    r".*gpu_nics": ([f"mlx5_{i}" for i in range(8)], [f"mlx5_{7 - i}" for i in range(8)]),
    r"cluster\.racks": (RACKS, [{"name": "c", "nodes": "c[1-4]"}]),
    r"cluster\.racks\[\]\.nodes": ("a[1-2]", "c[1-2]"),
    r"cluster\.racks\[\]\.above": (["pod1", "core"], ["pod2", "core"]),
    r"cluster\.racks\[\]\.nvlink_domains": ({"x": "a1", "y": "a2"}, {"x": "a2", "y": "a1"}),
    r"cluster\.levels": (
        [{"name": "leaf"}, {"name": "pod"}, {"name": "core"}],
        [{"name": "leaf", "latency": "9us"}, {"name": "pod"}, {"name": "core"}],
    ),
    r"cluster\.(spare|unavailable)": ("a1", "a2"),
    r".*oversubscription": (1.0, 4.0),
    r".*rate_share": (0.1, 0.4),
    r".*\.limits\..*(only|ban)": ([1], [2], [4], [8], [32]),
    r".*\.limits\..*(min|max)": (1, 2, 4, 64),
    r".*\.cpu_cores": (8, 112),
    r".*\.first_dense_layers": (1, 3),
    r"job\.data": (["/one"], ["/two"]),
    r".*slurm\.signal": ("60s", "120s"),
    r".*_gb_per_s": (30.0, 3000.0),
    r"job\.moe_imbalance": (1.0, 1.5),
    r"job\.tokens": ("100M", "1B"),
    r"cluster\.failures\.gpu_mtbf": ("20h", "200h"),
    r"job\.min_learning_rate": (1e-5, 1e-6),
    r".*master_port|launch\.port": (29600, 29700),
    r"goals\.(ttft|tpot|e2e)(\..*)?": ("1ms", "30ms"),
    r"goals\.tie": (0.0, 0.9),
    r"layout\.pipeline_layout": ("Et*16|t*16L", "Et*15|t*17L"),
    r"layout\.(first|last)_stage_layers": (15, 17),
    r"layout\.stage_layers": ([15, 17], [17, 15]),
    r"launch\.setup": (["true"], ["module load cuda"]),
    r"launch\.slurm\.extra": (["--nice=1"], ["--nice=2"]),
    r"launch\.slurm\.array": ("1-2", "1-3"),
    r"launch\.slurm\.(exclude|nodelist)": ("n1", "n2"),
    r"launch\.slurm\.mail\.type": ("END", "FAIL"),
    r"launch\.env": ({"A": "1"}, {"A": "2"}),
    r".*resources": ({"rdma/hca": "8"}, {"rdma/hca": "4"}),
    r".*kubernetes\.requests": ({"cpu": "8"}, {"cpu": "96"}),
    r".*\.(tolerations|pull_secrets)": (["a"], ["b"]),
    r".*(node_selector|claims|annotations)": ({"a": "/b"}, {"a": "/c"}),
    r".*host_paths": ({"/a": "/b"}, {"/a": "/c"}),
    r".*slurm\.time_limit": ("1-00:00:00", "12:00:00"),
    r".*container_mounts": (["/a:/a"], ["/b:/b"]),
    r".*shared_memory": ("64Gi", "32Gi"),
    r"launch\.args": (["--log-params-norm"], ["--enable-prefix-caching"], ["--verbose"]),
    r"launch\.omit": (["--manual-gc"], ["--log-throughput"]),
    r"launch\.profile\.ranks": ([0], [1]),
    r".*recompute\.modules": (["core_attn"], ["mlp"]),
    r".*offload\.activations": ([], ["attention"]),
    r"job\.speculative\.model": ("llama-3-8b", "llama-3-70b"),
    r"job\.lora\.adapters": ({"one": "/one"}, {"two": "/two"}),
    r"job\.lora\.targets": ("attention", "all-linear", ["q_proj"]),
    r"job\.kv_offload\.size": ("100GB", "200GB"),
    r"launch\.router_port": (29600, 29700),
    r"job\.disaggregate\.(prefill|decode)\.hosts": ("a[1-2]", "b[1-2]"),
    r"job\.disaggregate\.(prefill|decode)\.layout": ({"tp": 1}, {"tp": 4}),
    r".*(_dir|path)": ("/one", "/two"),
}
"""Pattern of a path -> values, where the type does not show which values make sense."""


NUMA = {
    "cluster.node": {
        "base": "h100-pcie-8",
        "gpu_numa": [0, 1, 0, 1, 0, 1, 0, 1],
        "gpu_nics": [f"mlx5_{i}" for i in range(8)],
    }
}
NAMELESS = {"cluster": {"node": "dgx-h100", "nodes": 4, "nodes_per_rack": 2}}
NVL72 = {"cluster": {"node": "gb200-nvl72", "nodes": 36, "nodes_per_rack": 18}}
BLOCKS = {"granularity": "full", "method": "block", "layers": 3}
LEVELS = [{"name": "leaf"}, {"name": "pod"}, {"name": "core"}]
INDEXER = {"heads": 32, "head_dim": 128, "top_k": 512}
VARIANTS = [{"layers": [2, 3, 4], "ffn": 4096}]
CONVOLUTIONS = [{"layers": [1, 2, 3], "mixer": "convolution"}]
EXTRA = [{"name": "one", "parameters": 10**8}]
YARN = {"model.position.scaling": "yarn", "model.position.scaling_factor": 4.0}
LLAMA3 = {"model.position.scaling": "llama3", "model.position.scaling_factor": 8.0}
LINEAR_SCALING = {"model.position.scaling": "linear", "model.position.scaling_factor": 4.0}
TUNED = {"job.kind": "finetune", "job.load_dir": "/base", "job.lora": {"rank": 8}}
DRAFT = {"job.speculative": {"method": "draft-model", "checkpoint": "one", "model": "llama-3-8b"}}
OPEN: Spec = {"layout": {}}
FLAT: Spec = {**OPEN, "goals.limits": {"pp": {"max": 1}, "cp": {"max": 1}}}
"""All ranks are data-parallel or tensor-parallel."""
CONTEXTS: tuple[tuple[str, tuple[Spec, ...], Spec], ...] = (
    (r"model\.latent(\..*)?", (LATENT, SERVED_LATENT), {}),
    (r"model\.linear_attention(\..*)?", (LINEAR, SERVED_LINEAR), {}),
    (r"model\.(mamba(\..*)?|pattern)", (HYBRID, SERVED_HYBRID), {}),
    (r"model\.experts(\..*)?", (EXPERTS, SERVED_EXPERTS), {}),
    (r"model\.experts\.(shared_gate|first_dense_layers)", (LATENT,), {}),
    (r"model\.experts\.(groups|group_top_k)", (EXPERTS,), {"model.experts.groups": 8}),
    (r"model\.attention_gate", (LINEAR, SERVED_LINEAR), {}),
    (r"model\.(full_attention_every|window_chunks)", (), {"model.window": 1024}),
    (r"model\.indexer(\..*)?", (LATENT, SERVED_LATENT), {"model.indexer": INDEXER}),
    (r"model\.layer_variants\[\]\..*", (PLAIN, SERVICE), {"model.layer_variants": VARIANTS}),
    (
        r"model\.layer_variants\[\]\.full_attention",
        (PLAIN, SERVICE),
        {"model.layer_variants": VARIANTS, "model.window": 1024},
    ),
    (
        r"model\.layer_variants\[\]\.compression(\..*)?",
        (PLAIN, SERVICE),
        {"model.layer_variants": COMPRESSED, "model.window": 1024},
    ),
    (r"model\.low_rank(\..*)?", (PLAIN, SERVICE), {"model.low_rank": LOW_RANK}),
    (
        r"model\.layer_variants\[\]\.indexer",
        (LATENT, SERVED_LATENT),
        {"model.layer_variants": VARIANTS, "model.indexer": INDEXER},
    ),
    (
        r"model\.(convolution(\..*)?|layer_variants\[\]\.mixer)",
        (PLAIN, SERVICE),
        {"model.layer_variants": CONVOLUTIONS, "model.convolution": {}},
    ),
    (r"model\.extra_weights\[\]\..*", (PLAIN, SERVICE), {"model.extra_weights": EXTRA}),
    (r"model\.position\.(original_max_positions|mscale.*|scaling_factor)", (), YARN),
    (r"model\.position\.(original_max_positions|scaling_factor)", (DENSE, PLAIN), LLAMA3),
    (r"model\.position\.scaling_factor", (DENSE, PLAIN), LINEAR_SCALING),
    (r"model\.position\.mscale.*", (LATENT, SERVED_LATENT), YARN),
    (r"cluster(\.base)?", (DENSE, PLAIN), {"job.global_batch": 1152, "cluster": {}}),
    (r"cluster(\.base)?", SERVING, {"cluster": {}}),
    (r"cluster\.gpu\..*", (), {"cluster.gpu": {"base": "h100-sxm-80gb"}}),
    (r"cluster\.gpu\.memory", (), {"cluster.gpu": {"base": "h100-sxm-80gb"}, **OPEN}),
    (r"cluster\.node\.fabric", (), {"cluster.fabric": None}),
    (r"cluster\.node\.(gpu_numa|gpu_nics)", (), NUMA),
    (r"cluster\.node\.host_memory", (DENSE, PLAIN), {"layout.offload": "cpu"}),
    (r"cluster\.node\.host_memory", (SERVICE,), {"job.kv_offload": {"size": "100GB"}}),
    (r"cluster\.levels.*", (), {"cluster.levels": LEVELS}),
    (r"cluster\.fabric\.all_to_all_rate_share", (EXPERTS,), {"layout.ep": 16}),
    (r"cluster\.(spare|unavailable)", (DENSE, PLAIN), {"job.global_batch": 120}),
    (r"job\.(moe_.*)", (EXPERTS,), {}),
    (r"job\.wsd_decay_steps", (DENSE, PLAIN), {"job.lr_decay": "wsd"}),
    (r"job\.fp8_recipe", (), {"job.precision": "fp8"}),
    (r"job\.async_checkpoint", (), {"job.checkpoint_dir": "/save"}),
    (r"launch\.profile\..*", (), {"launch.profile": {}}),
    (r"job\.checkpoint_interval", (), {"job.checkpoint_dir": "/save"}),
    (r"cluster\.failures\.gpu_mtbf", (), {"job.checkpoint_dir": "/save"}),
    (r"cluster\.storage\.write_gb_per_s", (), {"job.checkpoint_dir": "/save"}),
    (r"job\.speculative\.(tokens|acceptance)", (SERVICE,), {"job.speculative.method": "ngram"}),
    (r"job\.speculative\.(checkpoint|model)", (SERVICE,), DRAFT),
    (r"job\.lora(\..*)?", (PLAIN,), TUNED),
    (r"job\.lora\..*", (SERVICE,), {"job.lora": {"adapters": {"one": "/one", "two": "/two"}}}),
    (r"job\.kv_offload\..*", (SERVICE,), {"job.kv_offload": {"size": "100GB"}}),
    (r"launch\.router_port", (SERVICE,), {"layout.replicas": 4}),
    (r"job\.disaggregate.*", (SERVICE,), {"job.traffic.request_rate": 2.0}),
    (r"job\.traffic\.(burstiness|lengths.*|prefix_hit)", (), {"job.traffic.request_rate": 2.0}),
    (r"goals\.(maximize|memory_headroom)", (), OPEN),
    (r"goals\.tie", (), {**OPEN, "job.global_batch": 64, "job.sequence_length": 2048}),
    (r"goals\.tie", (), {**OPEN, "job.global_batch": 64, "model": "llama-3-70b"}),
    (r"goals\.idle_hosts", (DENSE, PLAIN), {**FLAT, "job.global_batch": 9}),
    (r"goals\.idle_hosts", (DENSE, PLAIN), {**OPEN, "job.global_batch": 24}),
    (r"goals\.limits\.micro_batch\..*", (DENSE, PLAIN), {"layout.micro_batch": 2}),
    (r"goals\.limits\.vpp\..*", (DENSE, PLAIN), {"layout.vpp": 2}),
    (r"goals\.limits\.cp\..*", (DENSE, PLAIN), {"layout.cp": 2}),
    (r"goals\.limits\.tp\..*", (PLAIN,), {"layout.tp": 2}),
    (r"goals\.limits\.pp\..*", (PLAIN,), {"layout.pp": 2}),
    (r"goals\.limits\.(ep|etp)\..*", (EXPERTS,), {"layout.etp": 2}),
    (r"goals\.limits\.ep\..*", (EXPERTS, SERVED_EXPERTS), {}),
    (r"goals\.limits\.(pcp|dcp|dp|replicas)\..*", SERVED, {}),
    (r"layout\.(ep|etp|all2all|redundant_experts)", (EXPERTS, SERVED_EXPERTS), {}),
    (r"layout\.egtp", (EXPERTS,), {}),
    (r"layout\.(pcp|dcp)", (SERVED_LATENT,), {}),
    (r"layout\.recompute\.modules", (), {"layout.recompute": {"granularity": "selective"}}),
    (r"layout\.recompute\.(method|layers)", (), {"layout.recompute": BLOCKS}),
    (r"layout\.(stage_layers|pipeline_layout|(first|last)_stage_layers)", (), {"layout.pp": 2}),
    (r"layout\.sequence_parallel", (DENSE,), {}),
    (r"layout\.sequence_parallel", (PLAIN,), {"layout.tp": 2}),
    (r"layout\.(cp_comm|cp_a2a)", (), {"layout.cp": 4}),
    (r"layout\.cp_a2a", (), {"layout.cp": 8, "layout.cp_comm": "a2a+p2p"}),
    (r"launch\.load_balancer", (SERVED_EXPERTS,), {}),
    (r"launch\.kubernetes\.domain_label", (DENSE, PLAIN), {**NVL72, "job.global_batch": 144}),
    (r"launch\.kubernetes\.domain_label", (WIDE,), {**NVL72, "launch.kubernetes.queue": "q"}),
    (r"launch\.kubernetes\.rack_label", (DENSE, PLAIN), NAMELESS),
    (r"launch\.kubernetes\.rack_label", (WIDE,), {**NAMELESS, "launch.kubernetes.queue": "q"}),
)
"""(pattern of a path, specs, settings): specs and settings with which the field counts. Without
specs, all of them are tried. If several rows match, each of them is tried."""


SAME_AS_LAYOUT = r"job\.disaggregate\.(prefill|decode)\.layout"
"""Sections with the fields of ``layout``, which are walked there; their own values are mappings."""


def fields_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, annotation) of each field; brackets mark the entries of a list of mappings."""
    for name, field in model.model_fields.items():
        path, annotation = f"{prefix}{name}", field.rebuild_annotation()
        yield path, annotation
        if (inner := model_of(annotation)) is not None and not re.fullmatch(SAME_AS_LAYOUT, path):
            yield from fields_of(inner, f"{path}.")
        for branch in union_members(annotation):
            if get_origin(branch) is tuple and (inner := model_of(get_args(branch)[0])) is not None:
                yield from fields_of(inner, f"{path}[].")


def needs_other_settings(path: str) -> bool:
    """Return True if the field counts only with certain models or settings."""
    # The entries of a list need the list.
    return "[]" not in path and any(re.fullmatch(pattern, path) for pattern, _, _ in CONTEXTS)


def trials_of(path: str, bases: tuple[Spec, ...]) -> Iterator[tuple[Spec | None, Spec]]:
    """Yield (plain spec, spec in which the field counts) per trial of a field.

    The plain spec is None if the field counts without other settings.
    """
    serving = "kind" in bases[0]["job"]
    rows = [
        (kept if own else bases, changes)
        for pattern, own, changes in CONTEXTS
        if re.fullmatch(pattern, path)
        and ((kept := [one for one in own if ("kind" in one["job"]) is serving]) or not own)
    ]
    for own, changes in rows or [(bases, {})]:
        for base in own:
            spec = base
            for name, value in changes.items():
                spec = placed(spec, name, value)
            yield None if spec in bases else bases[-1], spec


def values_of(path: str, annotation: Any) -> tuple[Any, ...]:
    """Return the values of the field that are compared."""
    for pattern, pair in PAIRS.items():
        if re.fullmatch(pattern, path):
            return pair
    if is_percentage(annotation):
        return ("5%", "10%")
    found = [value for one in union_members(annotation) for value in _values_of_type(one)]
    return tuple(dict.fromkeys((*literal_values(annotation), *found)))


def _values_of_type(branch: Any) -> tuple[Any, ...]:
    """Return values of one member of a union that is not a Literal."""
    bare = get_args(branch)[0] if get_origin(branch) is Annotated else branch
    simple = {bool: (False, True), str: ("one", "two"), int: (1, 2, 4), float: (0.5, 0.25)}
    return simple.get(bare, ())


def placed(base: Spec, path: str, value: Any) -> Spec:
    """Return a copy of ``base`` with ``value`` at ``path``; ``[]`` is the first entry of a list.

    A parent that is not of the type that the path needs is replaced.
    """
    spec = copy.deepcopy(base)
    place: Any = spec
    *parents, last = path.split(".")
    for name in parents:
        key, is_list = name.removesuffix("[]"), name.endswith("[]")
        found = place.get(key)
        entry = found[0] if is_list and isinstance(found, list) and found else found
        if not isinstance(entry, dict) or is_list is not isinstance(found, list):
            entry = {}
            place[key] = [entry] if is_list else entry
        place = entry
    place[last] = value
    return spec
