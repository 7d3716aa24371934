"""Spec fields that no layout and no emitted file depends on, for any target.

``parc explain FIELD`` prints the reasons. Fields that only one framework or engine does not use are
listed in ``without_effect.yaml`` of its backend.
"""

from __future__ import annotations

_LABEL = "a label in plan.json and in texts for readers"

LABELS: dict[str, str] = {
    **dict.fromkeys(("model.name", "model.extra_weights[].name", "cluster.levels[].name"), _LABEL),
    **{f"cluster.{part}.name": _LABEL for part in ("gpu", "node", "fabric")},
    **dict.fromkeys(("model.source", "cluster.source"), "the origin of the numbers"),
    **{f"cluster.{part}.source": "the origin of the numbers" for part in ("gpu", "node", "fabric")},
    **{
        f"cluster.{name}": "the energy of a run that PARC prints"
        for name in ("pue", "gpu.watts", "node.watts")
    },
    **{
        f"cluster.{name}": "the length, energy and cost of a run that PARC prints"
        for name in ("storage.read_gb_per_s", "failures.detection", "failures.restart")
    },
    **{
        f"cluster.failures.{name}": "the number of useful spare hosts that PARC prints"
        for name in ("host_share", "repair")
    },
    "cluster.price_per_gpu_hour": "the cost that PARC prints, and the choice between clusters",
}
"""Spec field -> its purpose. Some targets print these fields."""

_CHECKPOINTS = "only training jobs write checkpoints"
_RACKS = "services are placed so that the fewest engines span racks, whatever the links above are"
_TRAINING_HOSTS = "only training plans order the ranks of a host by NUMA node and NIC"

UNUSED_IN_SERVICES: dict[str, str] = {
    "cluster.fabric.oversubscription": _RACKS,
    "cluster.levels[].oversubscription": _RACKS,
    "cluster.fabric.all_to_all_rate_share": "all exchanges of services have the same rate",
    "cluster.failures.gpu_mtbf": _CHECKPOINTS,
    "cluster.storage.write_gb_per_s": _CHECKPOINTS,
    "cluster.node.gpu_numa": _TRAINING_HOSTS,
    "cluster.node.gpu_nics": _TRAINING_HOSTS,
    "cluster.node.cpu_cores": "only training jobs set a number of threads per rank",
    "launch.kubernetes.max_restarts": "the pods of an engine restart without a limit",
}
"""Spec field -> reason why no plan of a serving job depends on it."""
