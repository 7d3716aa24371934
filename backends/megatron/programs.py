"""Megatron's own programs: one builds a GPTModel, the other a HybridModel from a layer pattern."""

from __future__ import annotations

from parc.backends.megatron.capabilities import core_version
from parc.backends.shared.versions import parse_version
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Model, Plan, Problem

PLAIN = "pretrain_gpt.py"
HYBRID = "pretrain_hybrid.py"
OLD_HYBRID = "pretrain_mamba.py"
"""Name of pretrain_hybrid.py before 0.18; later versions accept it with a warning."""
HYBRID_SINCE = (0, 18)
# Megatron 0.18 renamed mamba to hybrid in programs and modules.
STACK = ("megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec")
OLD_STACK = ("megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec")

OTHER_MODELS = {
    "pretrain_bert.py": "BERT, an encoder",
    "pretrain_ict.py": "the encoders of a retriever",
    "pretrain_retro.py": "RETRO, which attends to retrieved texts",
    "pretrain_t5.py": "T5, an encoder and a decoder",
    "pretrain_vision_classify.py": "a vision transformer",
    "pretrain_vision_dino.py": "a vision transformer",
    "pretrain_vision_inpaint.py": "a vision transformer",
}
"""Programs of Megatron-LM -> the model that each trains, which is not a decoder-only model."""
WITH_ENCODERS = ("/pretrain_vlm.py", "/pretrain_mimo.py", "/multimodal/train.py", "/mimo/train.py")
"""Endings of paths of Megatron-LM's programs for models with encoders of images or sounds."""
GROUPED_GEMM = (8, 0)
"""Minimum compute capability of the grouped GEMM kernels (validate_args)."""
FUSED_ATTENTION = (8, 0)
"""Minimum compute capability of Transformer Engine's fused attention (get_attention_backend)."""


def layer_spec_for_patterns(version: str) -> tuple[str, str]:
    """Return (module, name) of Megatron's layer spec for models with a layer pattern."""
    return STACK if parse_version(version) >= HYBRID_SINCE else OLD_STACK


def default_program(model: Model, version: str) -> str:
    """Return the file name of Megatron's program that builds ``model``."""
    if not model.pattern:
        return PLAIN
    return HYBRID if parse_version(version) >= HYBRID_SINCE else OLD_HYBRID


def is_own_program(program: str) -> bool:
    """Return True if the path ``program`` ends with a program of Megatron, or is empty.

    If it is empty, PARC writes the program, for Megatron-Bridge.
    """
    return program.rpartition("/")[2] in ("", PLAIN, HYBRID, OLD_HYBRID)


def other_model_of(program: str) -> str:
    """Return the kind of model that a program of Megatron trains if PARC cannot plan it, else "".

    ``program`` is a path, of which only the file name counts.
    """
    return OTHER_MODELS.get(program.rpartition("/")[2], "")


def has_encoders(program: str) -> bool:
    """Return True if a program of Megatron trains encoders of images or sounds and a decoder."""
    return f"/{program}".endswith(WITH_ENCODERS)


def check_program(plan: Plan, sink: Sink) -> None:
    """Report a program of Megatron in ``launch.program`` that cannot build the model (E10)."""
    problem = plan.problem
    program, version = problem.launch.program, core_version(problem)
    finding: Finding | None
    if other := other_model_of(program):
        own = default_program(problem.model, version)
        finding = Finding(
            message=f"{program.rpartition('/')[2]} does not build {problem.model.name}",
            label=f"this program trains {other}",
            help=f"PARC plans decoder-only models: use {own}, or your own program",
            fix=f"launch.program: {own}",
            targets=("megatron",),
        )
    else:
        finding = explain_wrong_program(program, problem.model, version)
    if finding is not None:
        sink.report("E10", finding, at="launch.program")


def explain_wrong_program(program: str, model: Model, version: str) -> Finding | None:
    """Return a finding if ``program`` is a program of Megatron that does not build ``model``.

    ``program`` is a path. The result is None if the program builds the model. It is also None for
    the user's own program, which can build any model.
    """
    # Users start Megatron's programs by any path, so only the file name is compared.
    name = program.rpartition("/")[2]
    if name not in ((PLAIN,) if model.pattern else (HYBRID, OLD_HYBRID)):
        return None
    own = default_program(model, version)
    builds = "models without a pattern" if model.pattern else "only models with a pattern"
    return Finding(
        message=f"{name} does not build {model.name}",
        label=f"{name} builds {builds}",
        help=f"use {own}, or your own program",
        fix=f"launch.program: {own}",
        causes=(
            Cause("model", f"{model.name} has {'a' if model.pattern else 'no'} layer pattern"),
        ),
        targets=("megatron",),
    )


def has_grouped_gemm(problem: Problem) -> bool:
    """Return True if the GPU supports grouped GEMM kernels."""
    # validate_args tests the CUDA compute capability; ROCm reports 9.x, so AMD GPUs pass.
    return problem.cluster.gpu.has_compute_capability(GROUPED_GEMM)


def has_fused_attention(problem: Problem) -> bool:
    """Return True if Transformer Engine has fused attention kernels for the GPU.

    Without them it writes the attention scores to memory. Source: Transformer Engine,
    attention/dot_product_attention/utils.py, get_attention_backend.
    """
    return problem.cluster.gpu.has_compute_capability(FUSED_ATTENTION)
