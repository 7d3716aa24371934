"""Estimate the length of a training run: checkpoints, failures, spare hosts, energy and cost.

Failures are a Poisson process: the times between them are independent and exponential. All times
are in seconds.

Sources: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17
(1974); J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps,
FGCS 22 (2006). This module uses Daly's complete model, of which both estimates are approximations.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp, expm1, inf

from parc.compiler.cost.counts.params import total_params
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.ir import Estimate, Layout, Placement, Plan, Problem, Search
from parc.compiler.ir.estimate import Run
from parc.compiler.ir.frozen import frozen

STORAGE_GB_PER_S = 1.0
"""Bandwidth of the checkpoint file system per host, in decimal GB/s, if the spec gives none: 2 TB/s
sustained for 2,048 hosts in Llama 3 (arXiv:2407.21783, section 3.3.1)."""
HOST_COPY_GB_PER_S = 20.0
"""Bandwidth per GPU at which an asynchronous checkpoint is copied to host memory, in decimal GB/s:
PCIe 4 x16 with pinned memory, which all supported data-center GPUs reach."""
HOUR = 3600.0
MAX_EXPONENT = 500.0
"""Largest ratio of a segment to the mean time between failures that is computed; exp(500) is a
float, exp(710) is not. Such a segment never ends in practice."""


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
    gpus = problem.occupied_gpus(hosts, layout.world)
    step_seconds = estimate.time.total_seconds
    productive = job.steps * step_seconds
    size = checkpoint_bytes(cost_model, layout)
    times = failure_times(problem, size, hosts, gpus)
    best = times.best_interval_steps(step_seconds, job.steps)
    interval, wall = None, productive
    if job.checkpoint_dir is not None:
        # All programs save after the last step too, so no interval is longer than the run.
        interval = min(job.checkpoint_interval or best, job.steps)
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
    """Return the bytes of a checkpoint: weights and optimizer state, each parameter once.

    With LoRA, it contains the adapters, and frozen weights only if the program saves them.
    """
    problem = cost_model.problem
    memory = cost_model.framework.training_memory_model(problem).for_zero_stage(layout.zero_stage)
    weights, _, optimizer = memory.state.bytes_on_rank(0, 1)
    whole = total_params(problem.model, mtp=True)
    if memory.frozen is None:
        return whole * (weights + optimizer)
    adapters = sum(map(cost_model.adapter_parameters, problem.model.layer_kinds))
    frozen = memory.frozen.weight * whole if memory.saves_frozen else 0.0
    return adapters * (weights + optimizer) + frozen


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


@frozen
class FailureTimes:
    """Times that determine how much of a run failures cost, in seconds."""

    between: float
    """Mean time between two failures that stop the job."""
    restart: float
    """Time from a failure until training continues: detection, start-up, and reading the
    checkpoint. A failure during this time starts it again."""
    save: float
    """Time per checkpoint during which training stops."""
    late: float = 0.0
    """Time after the stop until the checkpoint is complete, while training continues; 0 if training
    waits for the whole checkpoint. A failure in this time goes back one checkpoint further."""

    def wall_seconds(self, work: float) -> float:
        """Return the expected time for ``work`` seconds of training and one checkpoint after them.

        Daly's complete model: M e^(R/M) (e^((w + d)/M) - 1), with M between failures, R restart,
        d save. A failure loses on average ``late`` seconds more, because a checkpoint is complete
        that much later; they count as part of the restart. The result is infinite if it is too
        large for a float.
        """
        segment = (work + self.save) / self.between
        restart = (self.restart + self.late) / self.between
        if segment + restart > MAX_EXPONENT:
            return inf
        return self.between * exp(restart) * expm1(segment)

    def effective_share(self, work: float) -> float:
        """Return the share of the time spent on training that no later failure destroys.

        The run saves a checkpoint after every ``work`` seconds of training.
        """
        return work / self.wall_seconds(work)

    @property
    def best_interval(self) -> float:
        """Seconds of training between two checkpoints that make the run shortest.

        Solves (1 - x) e^x = e^(-d/M) for x = w/M, where the derivative of the wall time per second
        of training is 0. The left side falls from 1 to 0 for x from 0 to 1, so bisection finds the
        only solution.
        """
        target = exp(-self.save / self.between)
        low, high = 0.0, 1.0
        for _ in range(60):  # halves the interval to the precision of a float
            middle = (low + high) / 2
            low, high = (middle, high) if (1 - middle) * exp(middle) > target else (low, middle)
        return high * self.between

    def best_interval_steps(self, step_seconds: float, most: int) -> int:
        """Return the number of steps between two checkpoints that makes the run shortest.

        The result is between 1 and ``most``. If several numbers are equally good, the result is the
        smallest of them. A checkpoint starts only after the one before it is complete.
        """
        below = int(self.best_interval / step_seconds)
        least = max(ceil(self.late / step_seconds), 1)
        near = [min(max(steps, least), most) for steps in (below, below + 1)]
        # The wall time per step has one minimum, so it is at one of the two neighbors.
        return min(near, key=lambda steps: (self.wall_seconds(steps * step_seconds) / steps, steps))


def waiting_share(load: float, spares: int) -> float:
    """Return the share of the time that a job spends waiting for a host because no spare is left.

    ``load`` is the mean number of hosts in repair: failures per second that need another host,
    times the seconds of a repair. The job waits while more than ``spares`` hosts are in repair, and
    no host of a waiting job fails. The number of hosts in repair is then a birth-death process with
    the stationary distribution of Erlang's loss formula for ``spares`` + 1 servers.
    """
    share = 1.0
    for servers in range(1, spares + 2):
        share = load * share / (servers + load * share)
    return share


def best_spares(load: float, hosts: int) -> int:
    """Return the number of spare hosts that makes the host-hours of a run on ``hosts`` smallest.

    Spare hosts cost as much as other hosts, and shorten the run by the time that it would spend
    waiting. The result is at most ``hosts``.
    """
    running = 1 - waiting_share(load, 0)
    for spares in range(hosts):
        more = 1 - waiting_share(load, spares + 1)
        # Each further spare saves less than the one before, so the first that costs more is last.
        if (hosts + spares + 1) / more >= (hosts + spares) / running:
            return spares
        running = more
    return hosts
