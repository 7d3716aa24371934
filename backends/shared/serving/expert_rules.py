"""Rules of engines for the experts of a model, which several engines share."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import describe_missing_experts
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import RANK_FIELDS, ServingProblem, ServingRule


def no_experts_rule(targets: tuple[str, ...], reported: str = "") -> ServingRule:
    """Return the rule that rejects expert parallelism for models without experts.

    ``reported`` is the message of the engine, which the finding quotes in a note.
    """

    def violates(problem: ServingProblem, layout: ServingLayout) -> bool:
        pinned = problem.pins.ep not in (None, "off", 1)
        return problem.model.experts is None and (pinned or layout.ep > 1)

    def explain(problem: ServingProblem, layout: ServingLayout) -> Finding:
        pinned = problem.pins.ep
        causes = [Cause("model", "the model has no experts")]
        if reported:
            causes.append(Cause("the engine", f"the engine reports: {reported}"))
        return Finding(
            describe_missing_experts(layout.ep if pinned in (None, "off") else pinned),
            label=f"{problem.model.name} has no experts",
            help="use tp and pp to split a dense model, and replicas to copy it",
            fix="layout.ep: off" if problem.pins.ep else "remove layout.redundant_experts",
            causes=tuple(causes),
            targets=targets,
        )

    return ServingRule("M01", ("layout.ep", "model"), violates, explain, ("ep",))


def explain_unsupported_data_parallelism(
    message: str, problem: ServingProblem, layout: ServingLayout, targets: tuple[str, ...]
) -> Finding:
    """Return the finding that an engine has no attention data parallelism for the model."""
    model = problem.model
    reason = "has no experts" if model.experts is None else f"is of the family {model.family}"
    return Finding(
        message,
        label=f"dp {layout.dp}, but {model.name} {reason}",
        help=f"layout.replicas: {layout.dp} starts as many engines",
        fix="layout.dp: 1",
        causes=(Cause("model", f"{model.name} {reason}"),),
        targets=targets,
    )


def whole_stage_rule(reason: str, targets: tuple[str, ...]) -> ServingRule:
    """Return the rule that experts are distributed over all ranks of a stage, or over none.

    ``reason`` explains the rule. The help of the finding states the valid sizes, then this reason.
    """

    def violates(problem: ServingProblem, layout: ServingLayout) -> bool:
        return layout.ep not in (1, layout.tp * layout.dp)

    def explain(problem: ServingProblem, layout: ServingLayout) -> Finding:
        ranks = layout.tp * layout.dp
        return Finding(
            f"ep {layout.ep} is neither 1 nor the {ranks} ranks of a pipeline stage",
            label=f"ep must be 1 or tp {layout.tp} x dp {layout.dp} = {ranks}",
            help=f"valid ep: 1 (off) or {ranks} (on); {reason}",
            fix=f"layout.ep: {ranks}",
            causes=(Cause("layout.tp", f"tp {layout.tp}"), Cause("layout.dp", f"dp {layout.dp}")),
            targets=targets,
        )

    return ServingRule("M09", ("layout.ep", "layout.tp"), violates, explain, RANK_FIELDS)


def divided_stage_rules(title: str, targets: tuple[str, ...]) -> tuple[ServingRule, ServingRule]:
    """Return the rules of an engine that can split each expert over several ranks.

    The engine accepts each ep that divides the ranks of a stage; PARC plans only 1 and all ranks.
    ``title`` is the name of the engine in messages.
    """

    def is_uneven(problem: ServingProblem, layout: ServingLayout) -> bool:
        return layout.tp * layout.dp % layout.ep != 0

    def is_partial(problem: ServingProblem, layout: ServingLayout) -> bool:
        ranks = layout.tp * layout.dp
        return layout.ep not in (1, ranks) and ranks % layout.ep == 0

    def explain(problem: ServingProblem, layout: ServingLayout) -> Finding:
        tp, dp, ep = layout.tp, layout.dp, layout.ep
        ranks = tp * dp
        message = f"the {ranks} ranks of a pipeline stage are not divisible by ep {ep}"
        label = f"tp {tp} x dp {dp} = {ranks}, and {ranks} % {ep} = {ranks % ep}, must be 0"
        accepted = ", ".join(map(str, divisors(ranks, ranks)))
        if ranks % ep == 0:
            message = f"PARC does not plan ep {ep} for {ranks} ranks of a pipeline stage"
            label = f"{title} would split each expert over {ranks} / {ep} = {ranks // ep} ranks"
        return Finding(
            message,
            label=label,
            help=f"{title} accepts ep {accepted}; PARC plans 1 (off) or {ranks} (on)",
            fix=f"layout.ep: {ranks}",
            causes=(Cause("layout.tp", f"tp {tp}"), Cause("layout.dp", f"dp {dp}")),
            targets=targets,
        )

    at = ("layout.ep", "layout.tp")
    return (
        ServingRule("M09", at, is_uneven, explain, RANK_FIELDS),
        ServingRule("M09", at, is_partial, explain, RANK_FIELDS, of_plans_only=True),
    )


def single_rank_rule(targets: tuple[str, ...]) -> ServingRule:
    """Return the rule that expert parallelism needs several ranks per stage."""

    def violates(problem: ServingProblem, layout: ServingLayout) -> bool:
        pinned = problem.pins.ep == "on" and problem.model.experts is not None
        return pinned and layout.tp * layout.dp == 1

    def explain(problem: ServingProblem, layout: ServingLayout) -> Finding:
        return Finding(
            "expert parallelism over one rank has no effect",
            label="ep = tp x dp = 1",
            help="set tp or dp above 1 to distribute experts, or set ep to off",
            fix="layout.ep: off",
            targets=targets,
        )

    return ServingRule("V21", ("layout.ep",), violates, explain, ("tp", "dp"))


def redundant_experts_rule(message: str, targets: tuple[str, ...]) -> ServingRule:
    """Return the rule that redundant experts need several ranks and a number of 0 or more.

    ``message`` is the title of the finding that an expert group has only one rank.
    """

    def violates(problem: ServingProblem, layout: ServingLayout) -> bool:
        redundant = problem.pins.redundant_experts
        return redundant is not None and (layout.ep == 1 or redundant < 0)

    def explain(problem: ServingProblem, layout: ServingLayout) -> Finding:
        redundant = problem.pins.redundant_experts or 0
        if redundant < 0:
            return Finding(
                f"the number of redundant experts is negative: {redundant}",
                label=f"redundant_experts {redundant}, must be 0 or more",
                fix="layout.redundant_experts: 0",
                targets=targets,
            )
        return Finding(
            message,
            label=f"ep {layout.ep}: experts can be balanced only over several ranks",
            fix=(
                "remove layout.redundant_experts"
                if problem.model.experts is None
                else "layout.ep: on, with tp or dp above 1"
            ),
            causes=(Cause("layout.ep", f"ep {layout.ep}"),),
            targets=targets,
        )

    return ServingRule("M10", ("layout.redundant_experts",), violates, explain, ("ep",))


def even_experts_rule(targets: tuple[str, ...]) -> ServingRule:
    """Return the rule that each rank of an expert group stores the same number of experts."""

    def violates(problem: ServingProblem, layout: ServingLayout) -> bool:
        experts = problem.model.experts
        if experts is None:
            return False
        return (experts.count + (problem.pins.redundant_experts or 0)) % layout.ep != 0

    def explain(problem: ServingProblem, layout: ServingLayout) -> Finding:
        experts, pinned = problem.model.experts, problem.pins.redundant_experts
        count = experts.count if experts is not None else 0
        total, ep = count + (pinned or 0), layout.ep
        return Finding(
            f"{total} experts are not divisible by ep {ep}",
            label=f"({count} experts + {pinned or 0} redundant) % {ep} = {total % ep}, must be 0",
            help="each rank stores the same number of whole experts",
            fix="layout.ep: off" if pinned is None else f"layout.redundant_experts: {-count % ep}",
            causes=(Cause("model", f"the model has {count} experts"),),
            targets=targets,
        )

    at = ("layout.redundant_experts", "layout.ep")
    return ServingRule("D08", at, violates, explain, ("ep",))
