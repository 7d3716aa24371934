"""Generated tables of the pages of the cost model, docs/cost-model.md and docs/cost-model/.

Each table is between ``<!-- generated: name -->`` and ``<!-- end -->``.

*Written* blocks depend only on the source code and on other pages, so a test can check that they
are current. *Measured* blocks contain predictions, which change with every parameter.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from math import log
from pathlib import Path
from statistics import median

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.hardware_classes import class_row, fitted_classes
from benchmarks.accuracy.hardware_classes import generation as catalog_generation
from benchmarks.accuracy.pages.cost_constants import constants_table
from benchmarks.accuracy.pages.page import LOCKED
from benchmarks.accuracy.pages.page_tables import markdown, section_lines, table_under
from benchmarks.accuracy.pages.row_lines import describe_layout
from benchmarks.accuracy.pages.unseen_tests import HEADING
from benchmarks.accuracy.predict import PRIORS, estimate_step
from benchmarks.accuracy.score import format_median_errors, score
from benchmarks.accuracy.serving.engines import ENGINES
from benchmarks.accuracy.serving.predictions import ServingPrediction
from benchmarks.accuracy.serving.rows import cluster_of
from parc.backends.accelerate.memory import accelerate_memory
from parc.backends.deepspeed.memory import deepspeed_decoder_memory
from parc.backends.megatron.memory import low_precision_weight_memory, megatron_memory
from parc.backends.shared.torch.memory import emitted_decoder_memory, fsdp2_memory
from parc.backends.torchtitan.memory import torchtitan_memory
from parc.compiler.catalog.library import Library
from parc.compiler.cost.setup.calibrated_parameters import PARAMETERS
from parc.compiler.cost.step.terms import TERMS
from parc.compiler.ir import Efficiency, Generation

BLOCK = re.compile(
    r"(?P<head><!-- generated: (?P<name>[a-z-]+) -->\n).*?(?P<tail><!-- end -->)", re.S
)
FIELD = re.compile(r'^    (?P<name>\w+): float(?: = [-\w.]+)?\n    """(?P<text>[^"]+)"""', re.M)
"""Field of ``Efficiency`` and the docstring below it, in the source of ``efficiency``."""
MISSES = 12
"""Number of rows in the table of the largest errors."""


def fill_blocks(page: str, blocks: Mapping[str, str]) -> str:
    """Return ``page`` with the text of the given blocks replaced.

    Raises:
        KeyError: The page lacks one of the blocks.
    """
    missing = set(blocks) - {found["name"] for found in BLOCK.finditer(page)}
    if missing:
        raise KeyError(f"the page has no block {sorted(missing)}")

    def text(found: re.Match[str]) -> str:
        new = blocks.get(found["name"])
        return found[0] if new is None else f"{found['head']}\n{new}\n\n{found['tail']}"

    return BLOCK.sub(text, page)


def fill_pages(pages: Sequence[Path], blocks: Mapping[str, str]) -> None:
    """Replace the text of the given blocks in the files ``pages``; each block is on one page.

    Raises:
        KeyError: No page has one of the blocks.
    """
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    names = {
        page: {found["name"] for found in BLOCK.finditer(text)} for page, text in texts.items()
    }
    missing = set(blocks).difference(*names.values())
    if missing:
        raise KeyError(f"no page has the block {sorted(missing)}")
    for page, text in texts.items():
        own = {name: block for name, block in blocks.items() if name in names[page]}
        page.write_text(fill_blocks(text, own), encoding="utf-8")


def written_blocks(kernels: str) -> dict[str, str]:
    """Return the blocks that follow from the code and kernel-fits.md."""
    return {
        "memory-terms": terms_table("bytes"),
        "time-terms": terms_table("seconds"),
        "programs": programs_table(),
        "constants": constants_table(),
        "parameters": parameters_table(),
        "generations": generations_table(),
        "classes": classes_table(),
        "kernels": kernels_table(kernels),
        "serving-hardware": records_table(_serving_hardware()),
        "serving-engines": engine_constants_table(),
    }


def measured_blocks(cases: Sequence[Case], served: Sequence[ServingPrediction]) -> dict[str, str]:
    """Return the blocks that contain predictions under the shipped parameters, for open
    ``cases``."""
    return {
        "families": families_table(cases),
        "misses": misses_table(cases),
        "serving-engines-errors": engines_table(served),
    }


def terms_table(unit: str) -> str:
    """Return the table of all terms with this unit: name in a plan, title, formula, source."""
    with_variants = unit == "seconds"
    rows = [
        (
            f"`{term.name}`",
            term.title,
            term.formula,
            term.source,
            *([term.variants] * with_variants),
        )
        for term in TERMS.values()
        if term.unit == unit
    ]
    head = ("term", "", "formula", "source", *(["variants by software stack"] * with_variants))
    return markdown(head, rows, words=len(head))


def programs_table() -> str:
    """Return the table of memory models of training programs, evaluated for an H100."""
    cluster = cluster_of("hgx-h100")
    assert cluster is not None, "hgx-h100 is in the catalog"
    facts = cluster.generation
    programs = {
        "Megatron, bf16": megatron_memory("bf16", facts),
        "Megatron, fp16": megatron_memory("fp16", facts),
        "Megatron, fp8": low_precision_weight_memory("fp8", facts),
        "Megatron, mxfp8": megatron_memory("mxfp8", facts),
        "Megatron, nvfp4": megatron_memory("nvfp4", facts),
        "FSDP2 (`fsdp`)": emitted_decoder_memory(),
        "DDP (`fsdp`)": emitted_decoder_memory().for_zero_stage(0),
        "FSDP2 (`accelerate`)": accelerate_memory(),
        "DDP (`accelerate`)": accelerate_memory().for_zero_stage(0),
        "FSDP2 (`torchtitan`)": torchtitan_memory(),
        "torchtitan of 2024, compiled": fsdp2_memory(),
        "DeepSpeed, bf16": deepspeed_decoder_memory("bf16", 4.0),
    }
    rows = []
    for name, one in programs.items():
        state = (one.state.weight, one.state.gradient, one.state.optimizer, one.state.cast)
        numbers = (*state, one.saved_bytes, one.loss_bytes / one.loss_parts)
        numbers += ((one.workspace_bytes + one.second_bucket_bytes) / 1e9,)
        rows.append((name, *(f"{number:.4g}" for number in numbers)))
    heads = ("weights", "gradients", "optimizer", "copies", "saved", "logit", "workspace, GB")
    return markdown(("program", *heads), rows)


def parameters_table() -> str:
    """Return the table of hardware-class parameters: meaning, prior, and the runs that determine
    it."""
    said = {found["name"]: found["text"] for found in FIELD.finditer(inspect.getsource(Efficiency))}
    rows = []
    for name, prior in PRIORS.items():
        words = " ".join(said[name].split()).rstrip(".")
        numbers = (f"{prior.center:g}", f"{100 * prior.spread:.0f} %")
        rows.append((f"`{name}`", words, *numbers, PARAMETERS[name].seen_in))
    return markdown(("parameter", "", "prior", "its spread", "seen in"), rows, words=5)


def classes_table() -> str:
    """Return the table of hardware classes: the runs of their fits, and their parameters."""
    names = [one.name for one in fields(Efficiency) if one.name != "gpu_sources"]
    rows = []
    for name, fit in fitted_classes().items():
        values = [_format_value(getattr(class_row(name), parameter)) for parameter in names]
        counts = (str(fit[f"fitted_{what}"]) for what in ("runs", "models", "sources"))
        rows.append((name, *counts, str(fit["mean_error_percent"]), *values))
    prior = [_format_value(getattr(Efficiency(), parameter)) for parameter in names]
    rows.append(("*prior; unseen*", "", "", "", "", *prior))
    heads = tuple(name.replace("_", " ") for name in names)
    return markdown(("class", "runs", "models", "sources", "error, %", *heads), rows)


def records_table(records: Mapping[str, object]) -> str:
    """Return a table of dataclass records: one row per name, one column per field."""
    first = next(iter(records.values()))
    names = [one.name for one in fields(first)]  # type: ignore[arg-type]  # all records are dataclasses
    rows = [
        (name, *(_format_value(getattr(one, key)) for key in names))
        for name, one in records.items()
    ]
    return markdown(("", *(name.replace("_", " ") for name in names)), rows)


def engine_constants_table() -> str:
    """Return the constants of engines that enter times and capacity, one row per engine."""
    rows: dict[str, dict[str, object]] = {}
    for name, one in ENGINES.items():
        groups = (one.scheduling, one.arrivals, one.memory)
        pairs = (
            (field.name, getattr(group, field.name)) for group in groups for field in fields(group)
        )
        rows[name] = {key: value for key, value in pairs if key != "source"}
    heads = tuple(next(iter(rows.values())))
    lines = [(name, *(_format_value(row[key]) for key in heads)) for name, row in rows.items()]
    return markdown(("", *(key.replace("_", " ") for key in heads)), lines)


def _serving_hardware() -> dict[str, object]:
    """Return the shares and costs of serving kernels by GPU generation."""
    names = Library().names("generations")
    return {name: catalog_generation(name).serving for name in names}


def generations_table() -> str:
    """Return the facts of GPU generations that the memory model and offloading read."""
    columns = tuple(one.name for one in fields(Generation) if one.type == "float")
    rows = []
    for name in Library().names("generations"):
        facts = catalog_generation(name)
        values = (_format_value(getattr(facts, column)) for column in columns)
        rows.append((name, " ".join(facts.precisions), facts.kernels_like, *values))
    heads = (
        "generation",
        "precisions",
        "kernels like",
        *(_field_heading(name) for name in columns),
    )
    return markdown(heads, rows, words=3)


def _field_heading(name: str) -> str:
    """Return a field name as a heading: ``driver_context_mb`` is ``driver context MB``."""
    units = {"mb": "MB", "gb": "GB", "kib": "KiB"}
    return " ".join(units.get(word, word) for word in name.split("_"))


def kernels_table(kernels: str) -> str:
    """Return the ranges of held-out errors over GPUs per kernel type, read from kernel-fits.md."""
    headings = [
        line.removeprefix("## ")
        for line in kernels.splitlines()
        if line.startswith("## ")
        and any(row[:1] == "|" for row in section_lines(kernels, line[3:]))
    ]
    rows = []
    for heading in headings:
        table = table_under(kernels, heading)
        pairs = [cell.split(" / ") for cell in table.column("all")]
        medians = sorted(float(first) for first, _ in pairs)
        tails = sorted(float(second) for _, second in pairs)
        cells = (f"{medians[0]:g} to {medians[-1]:g}", f"{tails[0]:g} to {tails[-1]:g}")
        total = sum(int(count) for count in table.column("held-out rows"))
        rows.append((heading, str(len(pairs)), str(total), f"{median(medians):.1f}", *cells))
    heads = ("kernel", "fits", "held-out rows", "typical median", "medians", "90th percentiles")
    return markdown(heads, rows)


def step_time_lines(accuracy: str) -> str:
    """Return the list item of README.md about errors of the step time."""
    table = table_under(accuracy, LOCKED)
    errors = dict(zip(table.column("group"), table.column("locked"), strict=True))
    unseen = table_under(accuracy, HEADING)
    runs = sum(map(int, unseen.column("rows")))
    means, medians = unseen.column("mean error, %"), unseen.column("median, %")
    return (
        "- **Step time.** On published runs of sources that were not used for fitting, the mean "
        f"error is\n  {errors['all dense']} % for dense models and {errors['all MoE']} % for "
        f"mixtures of experts. In {len(means)} tests with {runs} runs,\n  most of them of software "
        f"or machines that were new to PARC, it was {listed(means)} %\n  (medians "
        f"{listed(medians)} %) before anything was fitted to them\n  ([docs/accuracy.md](docs/"
        "accuracy.md)). Your own measurements reduce it (`parc calibrate`)."
    )


def listed(numbers: Sequence[str]) -> str:
    """Return ``numbers`` separated by commas, with `and` before the last one.

    >>> listed(["1.5", "2", "3"])
    '1.5, 2 and 3'
    """
    return f"{', '.join(numbers[:-1])} and {numbers[-1]}"


PEERS = (
    ("Calculon", "all dense", "formulas; searches layouts; writes no launch files"),
    ("llm-analysis", "all dense", "formulas for a given layout; writes no launch files"),
    ("boosted trees", "all dense", "machine learning, fitted to the same runs as PARC"),
    ("boosted trees", "all MoE", "the same, for mixtures of experts"),
    ("Calculon", "Selene", "the same, on the machine on which it was validated"),
)
"""Tools of the table in README.md: name, group of runs in docs/accuracy.md, and description."""


def peer_table(accuracy: str) -> str:
    """Return the table of README.md that compares errors of the step time with other tools."""
    # columns: group, tool, rows, PARC's error, the tool's error, ...
    table = table_under(accuracy, "Comparison with other tools")
    found = {(row[0].removeprefix("locked: "), row[1]): row[2:5] for row in table.rows}
    rows = []
    for tool, group, description in PEERS:
        runs, own, other = found[group, tool]
        rows.append((tool, description, f"{group}, {runs}", f"{own} %", f"{other} %"))
    return markdown(("tool", "what it is", "runs", "PARC's error", "its error"), rows, words=3)


def families_table(cases: Sequence[Case]) -> str:
    """Return the errors of the shipped parameters by model family and by hardware class."""
    parts = [_shipped("model family", cases, lambda case: case.problem.model.family)]
    parts.append(_shipped("hardware class", cases, lambda case: case.generation))
    return "\n\n".join(parts)


def _shipped(title: str, cases: Sequence[Case], key: Callable[[Case], str]) -> str:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(key(case), []).append(case)
    rows = []
    for name, members in sorted(groups.items()):
        found = score([estimate_step(case).total_seconds / case.seconds for case in members])
        models = len({case.problem.model.name for case in members})
        numbers = (found.mape, found.median, found.p90, found.bias)
        shown = [f"{100 * value:.1f}" for value in numbers]
        rows.append((name, str(found.count), str(models), *shown))
    return markdown((title, "rows", "models", "mean", "median", "p90", "bias"), rows)


def misses_table(cases: Sequence[Case]) -> str:
    """Return the table of the rows with the largest errors under the shipped parameters."""
    ratios = [(estimate_step(case).total_seconds / case.seconds, case) for case in cases]
    worst = sorted(ratios, key=lambda pair: (-abs(log(pair[0])), pair[1].run.id))[:MISSES]
    rows = [
        (
            case.problem.model.name,
            f"{case.run.gpus} {case.problem.cluster.gpu.name} {case.run.precision}",
            describe_layout(case),
            case.run.framework,
            f"{case.seconds:.3g}",
            f"{ratio:.2f}",
        )
        for ratio, case in worst
    ]
    heads = ("model", "GPUs", "layout", "stack", "measured, s", "predicted / measured")
    return markdown(heads, rows, words=4)


def engines_table(served: Sequence[ServingPrediction]) -> str:
    """Return median serving errors by GPU generation, engine and weight format."""
    groups: dict[tuple[str, ...], list[ServingPrediction]] = {}
    for one in served:
        setup = one.row.setup
        key = (one.row.cluster.gpu.generation, setup.engine.name, setup.weights)
        groups.setdefault(key, []).append(one)
    rows = []
    for name, members in sorted(groups.items()):
        columns = ([o.tpot for o in members], [o.ttft for o in members], [o.rate for o in members])
        rows.append((*name, str(len(members)), *map(format_median_errors, columns)))
    return markdown(("GPUs", "engine", "weights", "rows", "TPOT", "TTFT", "tokens/s"), rows, 3)


def _format_value(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
