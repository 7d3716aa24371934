"""Estimate the length of a training run: checkpoints, failures, energy and cost."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf

from parc.compiler.cost.counts.params import total_params
from parc.compiler.cost.run.failures import FailureTimes, best_spares
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.ir import Estimate, Layout, Placement, Plan, Problem, Search
from parc.compiler.ir.estimate import Run

STORAGE_GB_PER_S = 1.0
"""Bandwidth of the checkpoint file system per host, in decimal GB/s, if the spec gives none: 2 TB/s
sustained for 2,048 hosts in Llama 3 (arXiv:2407.21783, section 3.3.1)."""
HOST_COPY_GB_PER_S = 20.0
"""Bandwidth per GPU at which an asynchronous checkpoint is copied to host memory, in decimal GB/s:
PCIe 4 x16 with pinned memory, which all supported data-center GPUs reach."""
HOUR = 3600.0


def complete_plan(
    cost_model: CostModel,
    layout: Layout,
    estimate: Estimate,
    placement: Placement,
    search: Search,
) -> Plan:
    """Return the plan of these parts, with the expected length of its run.

    If the spec does not set the checkpoint interval, the problem of the plan has the best one.
    """
    problem = cost_model.problem
    run = estimate_run(cost_model, layout, estimate, len(placement.hosts))
    if problem.job.checkpoint_interval is None:
        job = replace(problem.job, checkpoint_interval=run.best_checkpoint_steps)
        problem = replace(problem, job=job)
    return Plan(problem, layout, estimate, placement, search, run)


def estimate_run(cost_model: CostModel, layout: Layout, estimate: Estimate, hosts: int) -> Run:
    """Return the expected length, energy and cost of the run on ``hosts`` hosts.

    Without ``job.checkpoint_dir`` there is nothing to restart from, so the time that failures cost
    is not estimated; ``finish_probability`` is the probability of a run without failures.
    """
    problem = cost_model.problem
    job, cluster = problem.job, problem.cluster
    gpus = cluster.occupied_gpus(hosts, layout.world)
    step_seconds = estimate.time.total_seconds
    productive = job.steps * step_seconds
    size = checkpoint_bytes(cost_model, layout)
    times = failure_times(problem, size, hosts, gpus)
    best = times.best_interval_steps(step_seconds, job.steps)
    interval, wall = None, productive
    if job.checkpoint_dir is not None:
        interval = job.checkpoint_interval or best
        wall = job.steps / interval * times.wall_seconds(interval * step_seconds)
    ends = wall < inf
    gpu_hours = gpus * wall / HOUR if ends else None
    return Run(
        steps=job.steps,
        tokens=job.steps * job.global_batch * job.sequence_length,
        productive_seconds=productive,
        wall_seconds=wall if ends else None,
        effective_share=productive / wall,
        expected_failures=wall / times.between if ends else 0.0,
        finish_probability=exp(-productive / times.between),
        failure_interval_seconds=times.between,
        checkpoint_bytes=size,
        checkpoint_steps=interval,
        best_checkpoint_steps=best,
        save_seconds=times.save,
        restart_seconds=times.restart,
        spares=_useful_spares(problem, hosts, times),
        gpu_hours=gpu_hours,
        energy_kwh=_energy_kwh(problem, gpu_hours),
        cost=None if gpu_hours is None else cluster.price_of(gpu_hours),
    )


def failure_times(problem: Problem, size: float, hosts: int, gpus: int) -> FailureTimes:
    """Return the failures of ``gpus`` GPUs, and the times of a checkpoint of ``size`` bytes."""
    reliability, storage = problem.cluster.reliability, problem.cluster.storage
    assumed = STORAGE_GB_PER_S * hosts
    read_seconds = size / 1e9 / (storage.read_gb_per_s or assumed)
    write_seconds = size / 1e9 / (storage.write_gb_per_s or assumed)
    # In the background, training waits only for the copy to host memory.
    save = write_seconds
    if problem.job.async_checkpoint:
        save = min(size / 1e9 / (HOST_COPY_GB_PER_S * gpus), write_seconds)
    return FailureTimes(
        between=reliability.gpu_mtbf_seconds / gpus,
        restart=reliability.detection_seconds + reliability.restart_seconds + read_seconds,
        save=save,
        late=write_seconds - save,
    )


def checkpoint_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the bytes of a checkpoint: weights and optimizer state, each parameter once."""
    problem = cost_model.problem
    memory = cost_model.framework.training_memory_model(problem)
    state = memory.for_zero_stage(layout.zero_stage).state
    weights, _, optimizer = state.bytes_on_rank(0, 1)
    return total_params(problem.model, mtp=True) * (weights + optimizer)


def _useful_spares(problem: Problem, hosts: int, times: FailureTimes) -> int:
    """Return the number of spare hosts that makes the host-hours of the run smallest."""
    reliability = problem.cluster.reliability
    load = reliability.host_share * reliability.repair_seconds / times.between
    return best_spares(load, hosts)


def _energy_kwh(problem: Problem, gpu_hours: float | None) -> float | None:
    """Return the energy of ``gpu_hours`` at the power limit of the hosts, times PUE.

    None if the power or the time is unknown. A host that is partly occupied counts in part.
    """
    cluster = problem.cluster
    if cluster.host_watts is None or gpu_hours is None:
        return None
    return gpu_hours * cluster.host_watts / cluster.node.gpus * cluster.pue / 1e3
