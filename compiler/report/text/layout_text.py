"""Texts of one line for layouts and their parts."""

from __future__ import annotations

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.evaluate.layout_fields import format_offload
from parc.compiler.ir import Layout, Recompute, ServingLayout

ALWAYS = ("tp", "pp")
DEGREES = ("tp", "pcp", "pp", "dp", "ep", "dcp")


def format_layout(layout: Layout) -> str:
    """Return a training layout as text: ``tp 8, pp 4, dp 8, micro-batch 1, recompute none``.

    The text always contains tp, pp and dp. It contains ep and etp if the experts are split. All
    other parallel sizes are omitted if they are 1.
    """
    # Without experts etp equals tp and ep is 1.
    experts = layout.ep > 1 or layout.etp != layout.tp
    always = {"tp", "pp", "dp"} | ({"ep", "etp"} if experts else set())
    names = ("tp", "gtp", "cp", "pp", "vpp", "dp", "ep", "etp", "egtp")
    sizes = {name: getattr(layout, name) for name in names if experts or name != "etp"}
    shown = [f"{name} {size}" for name, size in sizes.items() if size > 1 or name in always]
    shown += format_cp_exchange(layout) + format_zero(layout) + format_offload(layout.offload)
    shown.append(f"micro-batch {layout.micro_batch}")
    shown.append(f"recompute {format_recompute(layout.recompute)}")
    if layout.cuda_graphs:
        whole = layout.cuda_graphs == "full_iteration"
        shown.append("CUDA graph of the step" if whole else "CUDA graphs")
    return ", ".join(shown)


def format_cp_exchange(layout: Layout) -> list[str]:
    """Return texts on how context parallel ranks exchange keys and values.

    An example is ``["cp by a2a+p2p 4 x 2"]``. The list is empty if cp is 1 or if the exchange is a
    ring, which is the default.
    """
    is_usual = layout.cp == 1 or layout.cp_comm == "p2p"
    return [] if is_usual else [f"cp by {name_cp_exchange(layout)}"]


def name_cp_exchange(layout: Layout) -> str:
    """Return the exchange of context parallelism, such as ``a2a+p2p 4 x 2``; ``none`` for cp 1."""
    levels = f" {layout.cp_a2a} x {layout.cp_p2p}" if layout.cp_a2a > 1 else ""
    return "none" if layout.cp == 1 else layout.cp_comm + levels


def format_zero(layout: Layout) -> list[str]:
    """Return ``["ZeRO-1"]`` or another stage; empty if the state has only one copy.

    Stage 0, which shards nothing, is ``["no ZeRO"]``.
    """
    if layout.dp == 1 and layout.zero_stage < 2:
        return []
    return [f"ZeRO-{layout.zero_stage}" if layout.zero_stage else "no ZeRO"]


def format_stage(stage: int, stages: int) -> str:
    """Return the position of a pipeline stage as text, such as ``, pipeline stage 0 of 4``.

    The text is empty if there is only one stage.
    """
    return f", pipeline stage {stage} of {stages}" if stages > 1 else ""


def format_recompute(recompute: Recompute) -> str:
    """Return a recompute setting as text, such as ``selective core_attn+mlp``.

    Other examples are ``none`` and ``full uniform 1``.
    """
    detail = ["+".join(recompute.modules), recompute.method or "", str(recompute.layers or "")]
    return " ".join(word for word in (recompute.granularity, *detail) if word)


def format_serving_layout(layout: ServingLayout) -> str:
    """Return a serving layout as text: ``tp 8, pp 2, 2 replicas``.

    Parallel sizes of 1 are left out, except tp and pp.
    """
    words = [f"{name} {getattr(layout, name)}" for name in DEGREES if _is_size_shown(layout, name)]
    words.append(format_count(layout.replicas, "replica"))
    if layout.pp > 1 and len(set(layout.stages)) > 1:
        words.append(f"layers {'+'.join(map(str, layout.stages))}")
    return ", ".join(words)


def _is_size_shown(layout: ServingLayout, name: str) -> bool:
    return name in ALWAYS or getattr(layout, name) > 1
