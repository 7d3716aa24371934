"""Numbers of Megatron's flags that must fit other sizes of a launch, such as divisors of them.

Each check reads what it needs from the facts of the launch, and raises ``UnknownFact`` if the
script does not determine it. Sources: NVIDIA/Megatron-LM, megatron/training/arguments.py,
megatron/core/parallel_state.py and megatron/core/pipeline_parallel/schedules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from parc.backends.megatron.couplings.refused_combinations import VIRTUAL_STAGES
from parc.backends.megatron.launch_files.facts import MegatronJobFacts
from parc.backends.megatron.stages.layout_string import LayoutStringError, parse_layout_string
from parc.backends.shared.valid_values import nearest_value
from parc.compiler.diagnostics import Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag, whole_number

Found = tuple[str, str, Finding]
"""(flag to point at, diagnostic code, finding)."""
UNEVEN = (
    *("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"),
    *("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"),
    *("--pipeline-model-parallel-layout", "--hybrid-layer-pattern"),
)
"""Flags with which stages have different numbers of layers."""


@frozen
class Launch:
    """Flags that every run of a script has, and the facts that they determine."""

    sure: Mapping[str, LaunchFlag]
    written: frozenset[str]
    """Names of all flags, including those that only some runs have."""
    is_open: bool
    """True if flags might be added at run time."""
    facts: MegatronJobFacts
    programs: tuple[str, ...] = ()
    """Paths of the Python programs that the script starts."""

    def numbers(self, name: str) -> list[int]:
        """Return the whole numbers that the flag ``name`` sets; [] if the flag is not certain."""
        flag = self.sure.get(name)
        found = [whole_number(word.text) for word in flag.values] if flag is not None else []
        return [number for number in found if number is not None]

    def number(self, name: str) -> int | None:
        """Return the first number of a flag; None if it is unknown or not positive."""
        return next(iter(self.numbers(name)), None) or None

    def has(self, *names: str) -> bool:
        """Return True if the script contains one of the flags, at least in some runs."""
        return any(name in self.written for name in names)


def check_optimizer_copies(launch: Launch) -> Found | None:
    """Check that the optimizer copies divide the data-parallel ranks (D15)."""
    name = "--num-distributed-optimizer-instances"
    copies = launch.number(name)
    if copies is None:
        return None
    layout = launch.facts.known_layout
    ranks = layout.dp * layout.cp
    if ranks % copies == 0:
        return None
    finding = Finding(
        f"{ranks} data-parallel ranks are not divisible by {copies} optimizer copies",
        label=f"dp x cp = {layout.dp} x {layout.cp}, and {ranks} % {copies} = "
        f"{ranks % copies}, must be 0",
        help=f"valid numbers of optimizer copies: {format_values(divisors(ranks))}",
    )
    return name, "D15", finding


def check_virtual_stages(launch: Launch) -> Found | None:
    """Check that the layers per virtual stage divide the layers of a stage (P02)."""
    name = "--num-layers-per-virtual-pipeline-stage"
    size, layers = launch.number(name), launch.number("--num-layers")
    if size is None or layers is None or launch.has(*UNEVEN):
        return None
    pp = launch.facts.known_layout.pp
    stage = layers // pp
    if layers % pp or stage % size == 0:
        return None
    valid = divisors(stage)
    # One virtual stage per stage is not interleaving.
    nearest = nearest_value(valid[:-1] or valid, size)
    finding = Finding(
        f"{stage} layers per stage are not divisible into virtual stages of {size} layers",
        label=f"{layers} layers / pp {pp} = {stage}, and {stage} % {size} = {stage % size}, "
        "must be 0",
        help=f"valid numbers of layers per virtual stage: {format_values(valid)}",
        fix=f"{name} {nearest}",
    )
    return name, "P02", finding


def check_micro_batch_group(launch: Launch) -> Found | None:
    """Check the number of consecutive micro-batches of a virtual stage (P07)."""
    name = "--microbatch-group-size-per-virtual-pipeline-stage"
    group = launch.number(name)
    batch, micro = launch.number("--global-batch-size"), launch.number("--micro-batch-size")
    if group is None or batch is None or micro is None or not launch.has(*VIRTUAL_STAGES):
        return None
    layout = launch.facts.known_layout
    count, rest = divmod(batch, micro * layout.dp)
    if rest or (layout.pp <= group <= count and (count % group == 0 or count % group >= layout.pp)):
        return None
    finding = Finding(
        f"groups of {group} micro-batches do not fit pp {layout.pp} and {count} micro-batches",
        label=f"the group must be from {layout.pp} to {count}, and the remainder 0 or at least "
        f"{layout.pp}",
        fix=f"{name} {layout.pp}" if count % layout.pp == 0 else "",
    )
    return name, "P07", finding


def check_overlap_of_two_stages(launch: Launch) -> Found | None:
    """Check that two interleaved stages overlap their communication (P06)."""
    name = "--no-overlap-p2p-communication"
    if name not in launch.sure or not launch.has(*VIRTUAL_STAGES[:2]):
        return None
    if launch.facts.known_layout.pp != 2:
        return None
    finding = Finding(
        f"two interleaved pipeline stages cannot run with {name}",
        label="without this overlap, interleaving needs pp 3 or more",
        fix=f"remove {name}",
    )
    return name, "P06", finding


def check_expert_overlap(launch: Launch) -> Found | None:
    """Check that overlapped dispatch in a pipeline has virtual stages (P15)."""
    name = "--overlap-moe-expert-parallel-comm"
    if name not in launch.sure or launch.is_open or launch.has(*VIRTUAL_STAGES):
        return None
    pp = launch.facts.known_layout.pp
    if pp == 1:
        return None
    finding = Finding(
        f"{name} needs virtual pipeline stages at pp {pp}",
        label="the forward pass of one model chunk hides the dispatch of another one",
        fix=f"add {VIRTUAL_STAGES[1]} 2",
    )
    return name, "P15", finding


def check_context_levels(launch: Launch) -> Found | None:
    """Check that the levels of context parallelism multiply to its size (S06)."""
    name = "--hierarchical-context-parallel-sizes"
    sizes = launch.numbers(name)
    if not sizes:
        return None
    cp, first = launch.facts.known_layout.cp, sizes[0]
    # The layout rule of the same code reports a first level that does not split cp.
    if prod(sizes) == cp or not 1 < first < cp or cp % first:
        return None
    product = " x ".join(map(str, sizes))
    finding = Finding(
        f"the levels {product} = {prod(sizes)} do not multiply to context parallel size {cp}",
        label=f"the product must be {cp}",
        fix=f"{name} {first} {cp // first}",
    )
    return name, "S06", finding


def check_layer_list(launch: Launch) -> Found | None:
    """Check that a list of context-parallel communication has one entry per layer (F03)."""
    name, layers = "--cp-comm-type", launch.number("--num-layers")
    given = launch.sure.get(name)
    count = len(given.values) if given is not None else 1
    if layers is None or count in (1, layers) or launch.facts.known_layout.cp == 1:
        return None
    finding = Finding(
        f"{name} has {count} values for {layers} layers",
        label=f"give one value for all layers, or {layers} values",
    )
    return name, "F03", finding


def check_layout_string(launch: Launch) -> Found | None:
    """Check that a layout string has the stages and the layers of the other flags (P19).

    The rule of the same code also needs flags that a file with arguments only need not contain.
    """
    name = "--pipeline-model-parallel-layout"
    given = launch.sure.get(name)
    layers, pp = launch.number("--num-layers"), launch.number("--pipeline-model-parallel-size")
    if given is None or layers is None or not given.values or not launch.is_open:
        return None
    text = given.values[0].text
    try:
        stages = parse_layout_string(text)
    except LayoutStringError as error:
        label = f"the error is at character {error.at + 1} of {text!r}"
        return name, "P19", Finding(str(error), label=label)
    found = sum(stage.layers for stage in stages)
    faults = {
        f"the layout has {found} decoder layers, --num-layers is {layers}": found != layers,
        f"the layout has {len(stages)} stages, which pp {pp} does not divide": pp is not None
        and len(stages) % pp != 0,
    }
    fault = next((text for text, is_wrong in faults.items() if is_wrong), None)
    if fault is None:
        return None
    help_text = "t is a decoder layer, and | separates stages; pp x virtual stages stages are valid"
    return name, "P19", Finding(fault, label=f"{len(stages)} stages", help=help_text)


def check_evaluation_batch(launch: Launch) -> Found | None:
    """Check that the batch of an evaluation is divisible like that of training (B01)."""
    name = "--eval-global-batch-size"
    batch = launch.number(name)
    micro = launch.number("--eval-micro-batch-size")
    if micro is None and not launch.has("--eval-micro-batch-size"):
        micro = launch.number("--micro-batch-size")
    if batch is None or micro is None:
        return None
    step = micro * launch.facts.known_layout.dp
    if batch % step == 0:
        return None
    finding = Finding(
        f"evaluation batch {batch} is not divisible by micro-batch {micro} x dp {step // micro}",
        label=f"{batch} % {step} = {batch % step}, must be 0",
        fix=f"{name} {max(round(batch / step), 1) * step}",
    )
    return name, "B01", finding


def check_batch_ramp(launch: Launch) -> Found | None:
    """Check that each batch of a ramp is divisible by micro-batch x dp (B01)."""
    name = "--rampup-batch-size"
    ramp, micro = launch.numbers(name), launch.number("--micro-batch-size")
    last = launch.number("--global-batch-size")
    if len(ramp) != 3 or micro is None or last is None or ramp[1] == 0:
        return None
    if launch.has("--decrease-batch-size-if-needed"):
        return None
    step = micro * launch.facts.known_layout.dp
    wrong = next((size for size in range(ramp[0], last, ramp[1]) if size % step), None)
    if wrong is None:
        return None
    finding = Finding(
        f"batch {wrong} of the ramp is not divisible by micro-batch {micro} x dp {step // micro}",
        label=f"{wrong} % {step} = {wrong % step}, must be 0: the run stops at this batch",
        help=f"start and increment must be multiples of {step}",
    )
    return name, "B01", finding


def check_zero_of_pipeline_engine(launch: Launch) -> Found | None:
    """Check that Megatron-DeepSpeed does not shard gradients in DeepSpeed's pipeline engine (P12).

    It uses this engine unless --no-pipeline-parallel is given, even for one stage. Sources:
    Megatron-DeepSpeed pretrain_gpt.py, model_provider; deepspeed/runtime/pipe/engine.py.
    """
    name = "--zero-stage"
    stage = launch.number(name)
    if stage is None or stage < 2 or launch.is_open:
        return None
    trains = any("pretrain_gpt" in program for program in launch.programs)
    if not trains or not launch.has("--deepspeed") or launch.has("--no-pipeline-parallel"):
        return None
    finding = Finding(
        f"ZeRO stage {stage} is not possible in DeepSpeed's pipeline engine",
        label="Megatron-DeepSpeed uses this engine, also for one stage, without "
        "--no-pipeline-parallel",
        help="use --zero-stage 1, or add --no-pipeline-parallel if the pipeline has one stage",
        fix=f"{name} 1",
    )
    return name, "P12", finding


RELATIONS: tuple[Callable[[Launch], Found | None], ...] = (
    check_optimizer_copies,
    check_virtual_stages,
    check_micro_batch_group,
    check_overlap_of_two_stages,
    check_expert_overlap,
    check_context_levels,
    check_layer_list,
    check_layout_string,
    check_evaluation_batch,
    check_batch_ramp,
    check_zero_of_pipeline_engine,
)
"""All checks of this module."""
