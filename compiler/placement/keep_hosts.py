"""Layout and lock -> the layout on the hosts of the lock, where it is the one that was locked."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.ir import Layout, LockedPlan
from parc.compiler.placement.adopt_plan import adopt_plan
from parc.compiler.placement.evaluate_placement import judge_placement
from parc.compiler.placement.try_other_rank_order import Placed


def keep_hosts(pricing: Pricing, layout: Layout, locked: LockedPlan | None) -> Placed | None:
    """The locked plan, if ``layout`` is its layout in any rank order and its hosts can be used.

    None where there is nothing to keep: the layout is then placed anew.
    """
    if locked is None or not isinstance(locked.layout, Layout):
        return None
    if replace(layout, order=locked.layout.order) != locked.layout:
        return None
    plan = adopt_plan(pricing, locked.layout, locked.hosts)
    return None if plan is None else Placed(plan.layout, plan.estimate, judge_placement(plan))
