"""Lower bounds for all orders of hosts: exposed seconds, and bytes over the uplinks of switches.

If m node ranks are below a switch, the switch cuts at least a certain number of process groups of
every family, and each cut group sends messages out of the switch (``switch_cuts.py``). The switches
of a level together must have place for all node ranks. So the least time in which they can send the
messages of all node ranks is a lower bound for the job. The largest bound of all levels is used.

The byte bounds count the same cuts, weighted by the bytes of a message. They hold for every order,
whatever its exposed time. Every switch is bounded separately, so an order often meets the byte
bounds on a regular tree of switches, and seldom on an irregular one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from math import ceil

from parc.compiler.ir.frozen import frozen
from parc.compiler.placement.order.equivalent_hosts import HostSites
from parc.compiler.placement.order.placement_problem import (
    PlacementProblem,
    round_significant_digits,
)
from parc.compiler.placement.order.switch_cuts import CutModel, GridView, grid_views
from parc.compiler.placement.order.switch_level import SwitchLevel

MOST_CUT_EVALUATIONS = 600_000
"""Limit on the grid cuts that are evaluated for one level. A level that needs more is skipped,
which weakens the bound but keeps it valid. The limit is a count, not a time, so that every machine
reports the same bound."""


@frozen(slots=False)
class TimeBound:
    """Lower bounds on the exposed seconds of one placement problem."""

    problem: PlacementProblem

    @cached_property
    def exposed_seconds(self) -> float:
        """Return the lower bound on the exposed communication seconds per step."""
        found = sum(self._least_exposed_seconds)
        for level in self.switch_levels:
            # A level that is too expensive is left out; without it the bound is weaker but valid.
            if self.is_affordable(level):
                found = max(found, level.least_seconds(self._least_job_seconds, found))
        return round_significant_digits(found)

    def is_affordable(self, level: SwitchLevel) -> bool:
        """Return True if the bound of ``level`` needs at most MOST_CUT_EVALUATIONS evaluations."""
        return level.cut_evaluations * len(self.grid_views) <= MOST_CUT_EVALUATIONS

    @cached_property
    def least_phase_seconds(self) -> tuple[float, ...]:
        """Return the least seconds per step of each phase (traffic of one parallel axis)."""
        problem = self.problem
        # Over the NICs of a host a phase takes the same time in every order, unless the domain has
        # several hosts: then the order decides which messages leave the domain.
        wide = problem.sites.multi_host_domains
        floors = [0.0 if wide else spent for spent in problem.nic_seconds]
        pairs = zip(problem.cut_models, problem.flows, strict=True)
        for index, (model, flow) in enumerate(pairs):
            each = least_message_seconds(model, flow.parallel, self.switch_levels)
            floors[index] = max(floors[index], flow.unit_bytes * each)
        return tuple(floors)

    @cached_property
    def _least_exposed_seconds(self) -> tuple[float, ...]:
        """Return the least exposed seconds per step of each phase, considered alone."""
        flows = self.problem.flows
        return tuple(
            one.exposure * floor for one, floor in zip(flows, self.least_phase_seconds, strict=True)
        )

    @cached_property
    def grid_views(self) -> tuple[GridView, ...]:
        """Return the grids of node ranks whose rows and columns are process groups.

        Each grid gives a lower bound for several parallel axes together (``switch_cuts.py``).
        """
        return grid_views(self.problem.cut_models, self.problem.node_axis_sizes)

    @cached_property
    def switch_levels(self) -> tuple[SwitchLevel, ...]:
        """Return the switches of every level, the narrowest level first.

        If NVLink domains have several hosts, the domains are the first level.
        """
        return switch_levels(self.problem.sites, self.problem.nodes)

    def _least_job_seconds(self, contained: int, rate: float) -> float:
        """Return the least exposed seconds per step if ``contained`` node ranks are below a switch.

        ``rate`` is the rate of the uplink of the switch in bytes/s.
        """
        floors = self._least_exposed_seconds
        base = sum(floors)
        # A switch with no node rank or with all of them cuts no group.
        if contained in (0, self.problem.nodes):
            return base
        weights = tuple(one.exposure * one.unit_bytes / rate for one in self.problem.flows)
        return max((base, *(one.least_cost(contained, weights, floors) for one in self.grid_views)))


def switch_levels(sites: HostSites, nodes: int) -> tuple[SwitchLevel, ...]:
    """Return the switches above ``sites`` of every level, for a job of ``nodes`` node ranks.

    If NVLink domains have several hosts, the domains are the first level.
    """
    levels = []
    if sites.multi_host_domains:
        hosts: Counter[int] = Counter()
        for site, domain in enumerate(sites.domains):
            # ~site is negative, so it cannot be equal to the number of a domain.
            hosts[domain if domain >= 0 else ~site] += sites.hosts_per_site[site]
        pairs = [(count, count * sites.nic_bytes_per_s) for count in hosts.values()]
        levels.append(SwitchLevel(nodes, tuple(pairs), sites.nic_bytes_per_s))
    for tier in sites.tiers:
        beneath = [0] * len(tier.bytes_per_s)
        for zone, size in zip(tier.zones, sites.hosts_per_site, strict=True):
            beneath[zone] += size
        levels.append(SwitchLevel(nodes, tuple(zip(beneath, tier.bytes_per_s, strict=True))))
    return tuple(levels)


def least_message_seconds(model: CutModel, parallel: int, levels: Iterable[SwitchLevel]) -> float:
    """Return the least seconds of a phase in any order of hosts, per byte of its messages.

    A phase is the traffic of one parallel axis. ``parallel`` is the number of equal messages that
    one entry of its ``TrafficFlow`` represents.
    """
    found = 0.0
    if model.size:
        for level in levels:
            single = _SinglePhaseBound(model, parallel, level.host_bytes_per_s)
            found = max(found, level.least_seconds(single, found), single.cut_group_seconds(level))
    return found


@frozen
class _SinglePhaseBound:
    """Least time that one phase alone keeps the uplink of a switch busy, per byte of a message."""

    model: CutModel
    parallel: int
    """Number of equal messages that always leave a host together."""
    host_bytes_per_s: float
    """For an NVLink domain, the rate of the NICs of one host, because the hosts share no uplink.
    0.0 for a switch."""

    def __call__(self, contained: int, rate: float) -> float:
        """Return the least seconds of the phase if ``contained`` node ranks are below the switch.

        A phase is the traffic of one parallel axis. An NVLink domain has no uplink: messages leave
        the domain over the NICs of its hosts. A message is not split between hosts, so at least one
        host sends the mean number of messages per host, rounded up.
        """
        if not contained:
            return 0.0
        messages, parallel = self.model.least_messages_out(contained), self.parallel
        if self.host_bytes_per_s:
            share = ceil(messages / parallel / contained) * parallel
            return share / self.host_bytes_per_s
        return messages / rate

    def cut_group_seconds(self, level: SwitchLevel) -> float:
        """Return the least seconds that groups spanning several switches keep an uplink busy.

        In any order of hosts, some process groups do not fit below a single switch of ``level``.
        Each of these groups sends messages out of at least two switches. The busiest uplink carries
        at least the mean of all uplinks. In an NVLink domain, one host of the smallest part of such
        a group sends the messages of this host to all other parts over its own NICs.
        """
        model, cut = self.model, level.least_groups_cut(self.model.size)
        if not cut:
            return 0.0
        found = 2 * cut * model.least_messages / level.bytes_per_s
        if self.host_bytes_per_s:
            found = max(found, model.least_messages_of_cut_host / self.host_bytes_per_s)
        return found


@frozen(slots=False)
class ByteBound:
    """Lower bounds on the weighted bytes per step of one placement problem."""

    time_bound: TimeBound

    @cached_property
    def busiest_weighted(self) -> float:
        """Return a lower bound on the weighted bytes per step over the busiest uplink.

        ``PlacementProblem.weights`` contains the weight of each phase.
        """
        found = 0.0
        for level in self._tiers:
            # The busiest uplink carries at least the mean of its level.
            found = max(found, self._least_total_bytes(level) / len(level.switches))
            if self.time_bound.is_affordable(level):
                # ``least_seconds`` minimizes any cost per switch: here bytes in place of seconds.
                found = max(found, level.least_seconds(self._switch_bytes.bytes_out, found))
        return round_significant_digits(found)

    @cached_property
    def total_weighted(self) -> float:
        """Return a lower bound on the weighted bytes per step, summed over all uplinks."""
        return round_significant_digits(sum(map(self._least_total_bytes, self._tiers)))

    @property
    def _tiers(self) -> tuple[SwitchLevel, ...]:
        """Return the levels of switches, without NVLink domains, because these have no uplink."""
        # The index is a bool: it skips the first level if that one is the NVLink domains.
        return self.time_bound.switch_levels[self.time_bound.problem.sites.multi_host_domains :]

    def _least_total_bytes(self, level: SwitchLevel) -> float:
        """Return the least weighted bytes per step, summed over all uplinks of ``level``."""
        found = self._cut_group_bytes(level)
        if self.time_bound.is_affordable(level):
            found = max(found, level.sum_of_least_switch_costs(self._switch_bytes.bytes_out))
            # A pipeline split into k parts sends 2 (k - 1) messages, more than one per part if
            # k > 2. Counting two per part and subtracting two per pipeline gives exactly that.
            twice = level.sum_of_least_switch_costs(
                self._switch_bytes_with_split_pipelines.bytes_out
            )
            found = max(found, twice - self._pipeline_bytes)
        return found

    def _cut_group_bytes(self, level: SwitchLevel) -> float:
        """Return the least weighted bytes per step of process groups that span several switches.

        In any order of hosts, some process groups do not fit below a single switch of ``level``.
        Each of these groups sends messages out of at least two switches.
        """
        return sum(
            2 * level.least_groups_cut(model.size) * model.least_messages * unit
            for model, unit in zip(
                self.time_bound.problem.cut_models, self._message_bytes, strict=True
            )
            if model.size
        )

    @property
    def _message_bytes(self) -> tuple[float, ...]:
        """Return the weighted bytes of one message of each phase (traffic of one parallel axis)."""
        problem = self.time_bound.problem
        return tuple(
            one.unit_bytes * weight
            for one, weight in zip(problem.flows, problem.weights, strict=True)
        )

    @cached_property
    def _pipeline_bytes(self) -> float:
        """Return the weighted bytes of two messages per pipeline, for all pipelines of the job."""
        problem = self.time_bound.problem
        return sum(
            2 * problem.nodes // model.size * model.least_messages * unit
            for model, unit in zip(problem.cut_models, self._message_bytes, strict=True)
            if model.size and model.line
        )

    @cached_property
    def _switch_bytes(self) -> _SwitchBytes:
        """Return a lower bound on the bytes that leave a switch: one message per cut group.

        If a switch contains only a part of a process group, the part sends at least one message.
        """
        return _SwitchBytes(self.time_bound, self._message_bytes)

    @cached_property
    def _switch_bytes_with_split_pipelines(self) -> _SwitchBytes:
        """Return a lower bound on the bytes that leave a switch: two messages per cut pipeline.

        If a switch contains only a part of a pipeline, the part sends two messages. Parts of other
        process groups send one message.
        """
        pairs = zip(self.time_bound.problem.cut_models, self._message_bytes, strict=True)
        units = tuple(unit * (1 + model.line) for model, unit in pairs)
        return _SwitchBytes(self.time_bound, units)


@frozen(slots=False)
class _SwitchBytes:
    """Lower bound on the bytes that leave a switch, by the number of node ranks below it."""

    time_bound: TimeBound
    units: tuple[float, ...]
    """Weighted bytes of one message of each phase."""

    # Levels share many switch sizes, so each size is evaluated once.
    @cached_property
    def _cache(self) -> dict[int, float]:
        """Return the cache: number of node ranks below a switch -> weighted bytes out of it."""
        return {}

    def bytes_out(self, contained: int, _: float) -> float:
        """Return the least weighted bytes that leave a switch with ``contained`` node ranks.

        The second argument is the rate of the uplink. It has no effect, because a rate does not
        change the number of bytes.
        """
        if contained not in self._cache:
            self._cache[contained] = self._compute_bytes_out(contained)
        return self._cache[contained]

    def _compute_bytes_out(self, contained: int) -> float:
        """Compute the result of ``bytes_out`` for a number that is not in the cache."""
        problem = self.time_bound.problem
        if contained in (0, problem.nodes):
            return 0.0
        single = [
            model.least_messages_out(contained) * unit if model.size else 0.0
            for model, unit in zip(problem.cut_models, self.units, strict=True)
        ]
        found = sum(single)
        for view in self.time_bound.grid_views:
            others = sum(sent for flow, sent in enumerate(single) if flow not in view.phases)
            found = max(
                found, others + view.least_cost(contained, self.units, (0.0,) * len(single))
            )
        return found
