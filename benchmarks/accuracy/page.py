"""The accuracy page: docs/accuracy.md, and what ``make accuracy`` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.accuracy.cases import Cases
from benchmarks.accuracy.groups import hardware_groups, named_groups, small
from benchmarks.accuracy.peers import peers_of
from benchmarks.accuracy.predict import priors, shipped
from benchmarks.accuracy.refit import Columns, columns
from benchmarks.accuracy.regret import Sweep, mean_and_worst, sweeps
from benchmarks.accuracy.score import score
from benchmarks.accuracy.small import small_section

HOOKS = ("memory", "serving")
"""Modules beside this one that add a section of their own, where they are there."""

HEAD = """\
# Accuracy

Made by `make accuracy`; do not edit. Predicted against published step times, errors in %.

- **shipped**: the parameters in the package. **fitted**: refitted on these rows.
- **no model**: every row predicted by a fit that saw no row of its model (models that share
  hidden size, MLP width and heads are one model). **no cluster**: by a fit that saw no row of its
  cluster. Refits start from priors that no training run set.
- **naive**: FLOPs over a constant, plus bubble; the constant is the median of the rows of that
  GPU, precision and kind; **naive, no model**: of those of other models. A group with few rows
  makes the first of the two exact by construction.
- Errors are |predicted / measured - 1|; bias is the median of predicted / measured - 1.
"""


def page(cases: Cases, data: Path | None) -> str:
    """Markdown; the same text for the same rows and parameters."""
    found = columns(cases.cases)
    parts = [
        HEAD,
        _rows_section(cases),
        "## Step time\n\n" + _table(named_groups(cases.cases), found),
        _peer_section(cases, found),
        "## Step time by GPU, precision and kind\n\n" + _table(hardware_groups(cases.cases), found),
        _fit_section(found),
        _regret_section(sweeps([case for case in cases.cases if not small(case)])),
        small_section([case for case in cases.cases if small(case)], found),
        *_hooks(data),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def _rows_section(cases: Cases) -> str:
    used = sum(case.scored for case in cases.cases)
    lines = ["## Rows", "", f"{used} rows are scored. Assumed where a source does not say:", ""]
    lines += [f"- {name}: {count} rows" for name, count in sorted(cases.imputed.items())]
    if cases.left_out:
        lines += ["", "Left out:", ""]
        lines += [f"- {reason}: {count} rows" for reason, count in sorted(cases.left_out.items())]
    return "\n".join(lines)


def _table(groups: Sequence[tuple[str, list[str]]], found: Columns) -> str:
    """A line a group; MAPE by column, and more of the column that is judged."""
    lines = [
        "| group | rows | shipped | fitted | no model | median | p90 | bias | no cluster "
        "| naive | naive, no model |",
        "|---|" + "---:|" * 10,
    ]
    for name, ids in groups:

        def mape(column: dict[str, float], ids: list[str] = ids) -> str:
            return _percent(score([column[run] for run in ids]).mape)

        judged = score([found.no_model[run] for run in ids])
        numbers = (
            *(mape(column) for column in (found.shipped, found.fitted, found.no_model)),
            *(_percent(value) for value in (judged.median, judged.p90, judged.bias)),
            *(mape(column) for column in (found.no_cluster, found.naive, found.naive_no_model)),
        )
        lines.append(f"| {name} | {len(ids)} | " + " | ".join(numbers) + " |")
    return "\n".join(lines)


def _peer_section(cases: Cases, found: Columns) -> str:
    lines = [
        "## Beside other tools",
        "",
        "| group | tool | rows | MAPE | |",
        "|---|---|---:|---:|---|",
    ]
    for name, ids in named_groups(cases.cases):
        peers = peers_of(name)
        if peers:
            own = score([found.no_model[run] for run in ids]).mape
            lines.append(f"| {name} | PARC, no model | {len(ids)} | {_percent(own)} | |")
        for peer in peers:
            cells = (name, peer.tool, str(peer.rows), _percent(peer.mape), peer.note)
            lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Calculon at commit caa4b11 and llm-analysis v0.2.2, run on the same public sources with",
        "the files they ship; row counts are those of the whole sources. On the rows that both can",
        "do: `python -m benchmarks.beside_calculon CHECKOUT`.",
    ]
    return "\n".join(lines)


def _fit_section(found: Columns) -> str:
    """Parameters by class: shipped, fitted, and whether the rows identify them."""
    lines = [
        "## Parameters by hardware class",
        "",
        "| class | parameter | prior | shipped | fitted | spread of its logarithm |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for generation, fitted in sorted(found.fits.items()):
        known, now = priors(generation), shipped(generation)
        loose = fitted.unidentified(known)
        for name, prior in sorted(known.items()):
            spread = f"{fitted.spreads[name]:.2f}" + (" (prior)" if name in loose else "")
            numbers = (prior.centre, now[name], fitted.parameters[name])
            cells = (generation, name, *(f"{number:.3g}" for number in numbers), spread)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _regret_section(found: Sequence[Sweep]) -> str:
    mean, worst = map(_percent, mean_and_worst([sweep.regret for sweep in found]))
    tied = mean_and_worst([sweep.tied_regret for sweep in found])
    lines = [
        "## Choice of layout",
        "",
        f"Regret over {len(found)} published sweeps: mean {mean} %, largest {worst} %. Of the "
        f"simplest among ties, which a search takes: mean {_percent(tied[0])} %, largest "
        f"{_percent(tied[1])} %.",
        "",
        "| sweep | layouts | regret | of ties | naive | pairs in order | picked | best "
        "| out of memory |",
        "|---|---:|---:|---:|---:|---:|---|---|---|",
    ]
    for sweep in found:
        memory = f"{sweep.out_of_memory}, {sweep.oom_missed} missed" if sweep.out_of_memory else ""
        shares = (sweep.regret, sweep.tied_regret, sweep.naive_regret, sweep.agreement)
        cells = (
            sweep.name,
            str(sweep.layouts),
            *map(_percent, shares),
            sweep.picked,
            "the same" if sweep.best == sweep.picked else sweep.best,
            memory,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _hooks(data: Path | None) -> list[str]:
    """Sections of the modules that have one: ``section(data) -> Markdown``."""
    sections = []
    for name in HOOKS:
        module = f"benchmarks.accuracy.{name}"
        if find_spec(module) is not None:
            section: Callable[[Path | None], str] | None = getattr(
                import_module(module), "section", None
            )
            if section is not None:
                sections.append(section(data))
    return sections


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
