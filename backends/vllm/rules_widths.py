"""What tensor parallelism must divide: heads, widths, the vocabulary, blocks of scales.

Sources: vllm config/model.py (heads), layers/linear.py and fused_moe/layer.py (widths),
vocab_parallel_embedding.py (vocabulary), quantization/utils/fp8_utils.py (blocks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from parc.backends.vllm.defaults import VOCAB_MULTIPLE
from parc.backends.vllm.legal_degrees import divisors, kept, nearest
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Model
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import ServingProblem
from parc.compiler.ir.serving_rule import ServingRule

TARGETS = ("vllm",)
Broken = Callable[[ServingProblem, ServingLayout], bool]


def _heads(problem: ServingProblem, layout: ServingLayout) -> bool:
    return problem.model.attention.heads % layout.tp != 0


def _kv_heads(problem: ServingProblem, layout: ServingLayout) -> bool:
    attention = problem.model.attention
    if attention.latent is not None:
        return False
    return attention.kv_heads % layout.tp != 0 and layout.tp % attention.kv_heads != 0


_SAID = {
    "heads": "Tensor parallel world size must divide num heads",
    "groups": "If tensor parallel world size does not divide num_groups, then num_groups must "
    "equal 1",
}
"""VLLM's own words; of linear attention it fails to reshape the projection."""


def _recurrent(model: Model) -> Iterator[tuple[str, str, int]]:
    """(spec path, what, how many) of heads and groups that tensor ranks share without copies."""
    linear, mamba = model.linear, model.mamba
    if linear is not None:
        yield "model.linear_attention.key_heads", "key heads of linear attention", linear.key_heads
    if mamba is not None:
        yield "model.mamba.heads", "Mamba heads", mamba.heads
    if mamba is not None and mamba.groups > 1:  # one group is copied
        yield "model.mamba.groups", "groups of Mamba heads", mamba.groups


def _recurrent_heads(problem: ServingProblem, layout: ServingLayout) -> bool:
    return any(count % layout.tp for _, _, count in _recurrent(problem.model))


def _vocab(problem: ServingProblem, layout: ServingLayout) -> bool:
    return _padded(problem.model) % layout.tp != 0


def _padded(model: Model) -> int:
    return -(-model.vocab // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


def _parts(problem: ServingProblem, layout: ServingLayout) -> Iterator[tuple[str, str, int, int]]:
    """(spec path, tensor, its width, ranks that split it) of everything that is cut."""
    model = problem.model
    if model.ffn.size and model.dense_layers:
        yield "model.ffn", "MLP", model.ffn.size, layout.tp
    if model.experts is not None:
        yield "model.experts.size", "expert", model.experts.size, layout.expert_tp
        if model.experts.shared_size:
            yield "model.experts.shared_size", "shared expert", model.experts.shared_size, layout.tp


def _scaled(problem: ServingProblem, layout: ServingLayout) -> Iterator[tuple[str, str, int, int]]:
    """The same of everything whose scales are cut; heads of attention are whole blocks."""
    yield from _parts(problem, layout)
    linear = problem.model.linear
    if linear is not None:
        path = "model.linear_attention"
        yield f"{path}.key_dim", "linear attention's keys", linear.key_width, layout.tp
        yield f"{path}.value_dim", "linear attention's values", linear.inner, layout.tp


def _uneven(problem: ServingProblem, layout: ServingLayout) -> bool:
    return any(width % ranks for _, _, width, ranks in _parts(problem, layout))


def _block(problem: ServingProblem, layout: ServingLayout) -> bool:
    block = problem.service.setup.block_size
    return block > 1 and any(
        width % ranks == 0 and ranks > 1 and width // ranks % block
        for _, _, width, ranks in _scaled(problem, layout)
    )


def _block_fp8(problem: ServingProblem, layout: ServingLayout) -> bool:
    return problem.service.setup.weights == "fp8" and _block(problem, layout)


def _group(problem: ServingProblem, layout: ServingLayout) -> bool:
    return problem.service.setup.weights != "fp8" and _block(problem, layout)


def _legal(problem: ServingProblem, layout: ServingLayout, broken: Broken) -> tuple[str, str]:
    """Legal tp and the edit to make, with the other axes as they are; none where tp is legal."""

    def legal(tp: int) -> bool:
        ep = tp * layout.pcp * layout.dp if layout.ep > 1 else 1
        return not broken(problem, replace(layout, tp=tp, ep=ep))

    candidates = divisors(problem.model.attention.heads)
    tp = nearest(legal, candidates, layout.tp)
    return kept(legal, candidates), f"layout.tp: {tp}" if tp != layout.tp else ""


def _explain_heads(problem: ServingProblem, layout: ServingLayout) -> Finding:
    heads, tp = problem.model.attention.heads, layout.tp
    legal, fix = _legal(problem, layout, lambda *pair: _heads(*pair) or _kv_heads(*pair))
    return Finding(
        f"Total number of attention heads ({heads}) must be divisible by tensor parallel size "
        f"({tp})",
        label=f"{heads} % {tp} = {heads % tp}, must be 0",
        help=f"legal tp: {legal}; the other factor goes to pp or to replicas",
        fix=fix,
        causes=(Cause("model.heads", f"{heads} heads come from here"),),
        targets=TARGETS,
    )


def _explain_kv_heads(problem: ServingProblem, layout: ServingLayout) -> Finding:
    heads, tp = problem.model.attention.kv_heads, layout.tp
    legal, fix = _legal(problem, layout, _kv_heads)
    return Finding(
        f"{heads} key-value heads neither divide over tp = {tp} nor are copied evenly",
        label=f"{heads} % {tp} = {heads % tp} and {tp} % {heads} = {tp % heads}, one must be 0",
        help=f"legal tp: {legal}",
        fix=fix,
        causes=(Cause("model.kv_heads", f"{heads} key-value heads come from here"),),
        targets=TARGETS,
    )


def _explain_recurrent(problem: ServingProblem, layout: ServingLayout) -> Finding:
    tp = layout.tp
    found = (one for one in _recurrent(problem.model) if one[2] % tp)
    path, what, count = next(found)
    legal, fix = _legal(problem, layout, _recurrent_heads)
    said = _SAID.get(path.rpartition(".")[2], "tensor ranks share whole heads")
    return Finding(
        f"{said}: {count} {what}, tp = {tp}",
        label=f"{count} % {tp} = {count % tp}, must be 0",
        help=f"legal tp: {legal}; the other factor goes to pp or to replicas",
        fix=fix,
        causes=(Cause(path, f"{count} {what} come from here"),),
        targets=TARGETS,
    )


def _explain_vocab(problem: ServingProblem, layout: ServingLayout) -> Finding:
    vocab, tp = _padded(problem.model), layout.tp
    legal, fix = _legal(problem, layout, _vocab)
    return Finding(
        f"{vocab} is not divisible by {tp}: rows of the embedding, padded to a multiple of "
        f"{VOCAB_MULTIPLE}",
        label=f"{vocab} % {tp} = {vocab % tp}, must be 0",
        help=f"legal tp: {legal}; every power of two up to {VOCAB_MULTIPLE} is",
        fix=fix,
        causes=(Cause("model.vocab", f"{problem.model.vocab} tokens come from here"),),
        targets=TARGETS,
    )


def _explain_uneven(problem: ServingProblem, layout: ServingLayout) -> Finding:
    found = next(part for part in _parts(problem, layout) if part[2] % part[3])
    path, tensor, width, ranks = found
    legal, fix = _legal(problem, layout, _uneven)
    return Finding(
        f"{width} is not divisible by {ranks}: the width of the {tensor}",
        label=f"{width} % {ranks} = {width % ranks}, must be 0",
        help=f"legal tp: {legal}" + _spread(tensor),
        fix=fix,
        causes=(Cause(path, f"{width} comes from here"),),
        targets=TARGETS,
    )


def _explain_block(problem: ServingProblem, layout: ServingLayout) -> Finding:
    block = problem.service.setup.block_size
    path, tensor, width, ranks = next(
        part for part in _scaled(problem, layout) if part[2] // part[3] % block
    )
    share = width // ranks
    legal, fix = _legal(problem, layout, lambda *pair: _uneven(*pair) or _block(*pair))
    said = (
        f"Weight input_size_per_partition = {share} is not divisible by weight quantization "
        f"block_k = {block}"
        if problem.service.setup.weights == "fp8"
        else "The input size is not aligned with the quantized weight shape. This can be caused "
        f"by too large tensor parallel size: {share} weights, groups of {block}"
    )
    return Finding(
        f"{said} ({tensor})",
        label=f"{width} / {ranks} = {share}, {share} % {block} = {share % block}, must be 0",
        help=f"legal tp: {legal}" + _spread(tensor),
        fix=fix,
        causes=(
            Cause("job.precision", f"blocks of {block} share a scale"),
            Cause(path, f"{width} comes from here"),
        ),
        targets=TARGETS,
    )


def _spread(tensor: str) -> str:
    return "; with layout.ep: on experts stay whole" if tensor == "expert" else ""


_TP = ("layout.tp", "model")
WIDTH_RULES: tuple[ServingRule, ...] = (
    ServingRule("D01", _TP, _heads, _explain_heads),
    ServingRule("D02", _TP, _kv_heads, _explain_kv_heads),
    ServingRule("D18", _TP, _recurrent_heads, _explain_recurrent),
    ServingRule("D06", _TP, _uneven, _explain_uneven),
    ServingRule("V20", _TP, _vocab, _explain_vocab),
    ServingRule("V07", (*_TP, "job.precision"), _block_fp8, _explain_block),
    ServingRule("V06", (*_TP, "job.precision"), _group, _explain_block),
)
