"""Sources of the published runs, and the locked third of them that no fit may see.

A source is one document: versions of it, and all of its lines, count as one. Only tables for
different hardware in one document count as several. The locked sources were drawn once, by
``LOCKED_SEED``, from each combination of GPU generation and model type. Since then, no parameter
has been fitted to them, and no formula has been chosen by looking at their rows. They are scored
once per change, as totals.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from random import Random

from benchmarks.accuracy.cases import Case

LOCKED_SEED = 20261122
LOCKED_SHARE = 1 / 3


def source_of(text: str) -> str:
    """Return the document that the ``source`` of a run names, without version and line.

    >>> source_of("NVIDIA/dgxc-benchmarking tag v24.11.1 grok1_README_314b.md")
    'NVIDIA/dgxc-benchmarking grok1_README_314b.md'
    """
    text = re.sub(r"\[(?!.*GB).*?\]", "", text)  # a bracket with a memory size names a table
    text = re.sub(r" (tag v\S+|@\w+|line \d+.*|\(.*)", "", text).replace("-archive", "")
    # All systems of one submitter in one round of MLPerf come from the same people.
    return re.sub(r"(training_results_v\S+) (\S+?)/results.*", r"\1 \2", text).strip()


Kind = tuple[str, str]
"""(GPU generation, model type) of a run, or (counter, model type) of a memory reading."""


def draw_locked_sources(cases: Sequence[Case]) -> list[str]:
    """Return the names of the locked sources of training runs, as drawn from ``cases``."""
    return draw_locked(
        (source_of(case.run.source), (case.problem.cluster.gpu.generation, case.kind))
        for case in cases
        if case.scored
    )


def draw_locked(
    rows: Iterable[tuple[str, Kind]], locked_before: Collection[str] = frozenset()
) -> list[str]:
    """Return the names of the locked sources, sorted, as drawn from ``rows``.

    A row is (source, kind), and a source belongs to the kind of most of its rows. The draw locks a
    third of the sources of each kind, rounded; of two sources it locks one. Sources in
    ``locked_before`` stay locked and count towards this third.
    """
    kinds: dict[str, Counter[Kind]] = defaultdict(Counter)
    for source, kind in rows:
        kinds[source][kind] += 1
    strata: dict[Kind, list[str]] = defaultdict(list)
    for source, counts in sorted(kinds.items()):
        strata[counts.most_common(1)[0][0]].append(source)
    random, locked = Random(LOCKED_SEED), list[str]()
    for _, sources in sorted(strata.items()):
        count = 1 if len(sources) == 2 else round(LOCKED_SHARE * len(sources))
        before = [source for source in sources if source in locked_before]
        rest = [source for source in sources if source not in locked_before]
        locked += before + random.sample(rest, max(0, count - len(before)))
    return sorted(locked)


LOCKED: frozenset[str] = frozenset(
    {
        "MLCommons training_results_v3.0 NVIDIA_CoreWeave",
        "MLCommons training_results_v4.1 Oracle",
        "MLCommons training_results_v5.1 AMD",
        "MLCommons training_results_v5.1 Cisco",
        "MLCommons training_results_v5.1 Nebius",
        "MLCommons training_results_v5.1 Oracle",
        "NVIDIA-NeMo/Megatron-Bridge skills/*.md",
        "NVIDIA/JAX-Toolbox rosetta maxtext README",
        "NVIDIA/Megatron-LM README.md + images/model_table.png",
        "NVIDIA/Megatron-LM README.md + images/strong_scaling.png",
        "NVIDIA/Megatron-LM dev docs",
        "NVIDIA/Megatron-LM examples/llama/README.md",
        "NVIDIA/NeMo docs/source/performance/performance_summary.md",
        "NVIDIA/NeMo-Framework-Launcher README section 7.1.2",
        "NVIDIA/dgxc-benchmarking grok1_README_314b.md",
        "NVIDIA/dgxc-benchmarking nemotron_README.md",
        "NVIDIA/dgxc-benchmarking nemotronh_README.md",
        "VIA-Research/vTrain data/ground_truth_single.csv",
        "mosaicml/llm-foundry scripts/train/benchmarking/README.md "
        "[A100 80GB with 1600 Gbps node-node interconnect",
        "mosaicml/llm-foundry scripts/train/benchmarking/README.md [H100 80GB BF16]",
    }
)
"""The locked sources, as drawn from 60 sources. A source that is added later is
open."""


UNFITTED: frozenset[str] = frozenset(
    {
        "8B end-to-end batch scaling",
        "AMD-AGI/Primus perf/qwen3-30b-a3b-fp8-turbo pull request",
        "Halo throughput benchmarks",
        "Hy3",
        "InternLM/xtuner xtuner/configs/llama/llama3_8b/README.md",
        "Lightning-AI/lightning-thunder docs/source/intermediate/benchmarking.rst",
        "MXFP4 vs BF16 vs FP8 training step-time benchmark",
        "Oneflow-Inc/DLPerf Megatron-LM/README.md",
        "PrimeIntellect-ai/prime-rl configs/benchmark/README.md",
        "Qwen3-30B-A3B FP8 tensorwise on 8x MI355X: Turbo kernel campaign",
        "haok1402/megatron-deepseek-v2-lite README.md",
        "hpcaitech/ColossalAI issue 4551",
        "megatron-sft-recipes benchmark, Megatron and FSDP2 on 8 H100",
        "pathcosmos/FRANKENSTALLM README.md",
        "pytorch/torchtitan pull request 1993",
        "stas00/ml-engineering insights/when-to-upgrade-gpus/README.md [B200 180GB]",
        "stas00/ml-engineering insights/when-to-upgrade-gpus/README.md [H200 141GB]",
    }
)
"""The open sources of the sixth test with unseen runs. Their single errors are shown, but no fit
uses them, because a fit to them did not improve the other open rows."""


def is_locked(case: Case) -> bool:
    """Return True if ``case`` comes from a locked source: no fit uses it, and no page shows it."""
    return source_of(case.run.source) in LOCKED


def is_fitted(case: Case) -> bool:
    """Return True if the parameters are fitted to ``case``."""
    return case.scored and source_of(case.run.source) not in LOCKED | UNFITTED
