"""Layout and lock -> the layout on the hosts of the lock, if it equals the locked layout."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.ir import Layout, LockedPlan
from parc.compiler.placement.adopt_plan import adopt_plan
from parc.compiler.placement.evaluate_placement import evaluate_placement
from parc.compiler.placement.try_other_rank_order import PlacedLayout


def keep_hosts(pricing: Pricing, layout: Layout, locked: LockedPlan | None) -> PlacedLayout | None:
    """Return the locked plan, evaluated, if ``layout`` is its layout and its hosts are usable.

    The rank order may differ, because the search decides for a layout in the default order and
    placement may have switched it (``try_other_rank_order``). None if the layout must be placed
    again: there is no lock, it is of another layout, or a host of it cannot be used.
    """
    if locked is None or not isinstance(locked.layout, Layout):
        return None
    if replace(layout, order=locked.layout.order) != locked.layout:
        return None
    plan = adopt_plan(pricing, locked.layout, locked.hosts)
    if plan is None:
        return None
    return PlacedLayout(plan.layout, plan.estimate, evaluate_placement(plan))
