"""Rules of vLLM for the tensor parallel size: heads, widths, vocabulary, and blocks of scales.

Sources: vllm config/model.py (heads), layers/linear.py and fused_moe/layer.py (widths),
vocab_parallel_embedding.py (vocabulary), quantization/utils/fp8_utils.py (blocks of scales).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from parc.backends.vllm.defaults import engine_constants, padded_vocab
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import (
    describe_cut_blocks,
    describe_indivisible,
    describe_uncopied_heads,
    format_values,
)
from parc.compiler.ir import Model
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import RANK_FIELDS, ServingProblem, ServingRule

TARGETS = ("vllm",)
MOST_SHOWN_DEGREE = 64
"""Largest parallel size that is tried or listed."""
Violates = Callable[[ServingProblem, ServingLayout], bool]


def _unevenly_split_heads(problem: ServingProblem, layout: ServingLayout) -> int:
    """Return the number of heads of a layer that tp does not divide; 0 if it divides all."""
    counts = (one.attention.heads for one, _ in problem.model.attention_models)
    return next((count for count in counts if count % layout.tp), 0)


def _unevenly_split_kv_heads(problem: ServingProblem, layout: ServingLayout) -> int:
    """Return the number of key-value heads of a layer that tp ranks cannot share; 0 if all can."""
    if problem.model.attention.latent is not None:
        return 0
    # With more ranks than key-value heads, vLLM copies each head to the same number of ranks.
    counts = (one.attention.kv_heads for one, _ in problem.model.attention_models)
    return next((count for count in counts if count % layout.tp and layout.tp % count), 0)


def _splits_heads_unevenly(problem: ServingProblem, layout: ServingLayout) -> bool:
    return _unevenly_split_heads(problem, layout) > 0


def _splits_kv_heads_unevenly(problem: ServingProblem, layout: ServingLayout) -> bool:
    return _unevenly_split_kv_heads(problem, layout) > 0


_VLLM_MESSAGES = {
    "heads": "Tensor parallel world size must divide num heads",
    "groups": "If tensor parallel world size does not divide num_groups, then num_groups must "
    "equal 1",
}
"""Last part of a spec path -> vLLM's message for Mamba layers. For linear attention vLLM has no
message: it fails while it reshapes a projection."""


class _HeadCount(NamedTuple):
    """Number of heads of one kind."""

    path: str
    """Spec path of the number."""
    what: str
    """Plural of the kind, for findings."""
    number: int


def _recurrent_head_counts(model: Model) -> Iterator[_HeadCount]:
    """Yield the number of each kind of head in recurrent layers.

    tp must divide each number, because vLLM cannot store copies of these heads on several ranks.
    """
    linear, mamba = model.linear, model.mamba
    if model.convolution is not None:
        yield _HeadCount("model.convolution", "channels of convolutions", model.convolution.width)
    if linear is not None:
        yield _HeadCount(
            "model.linear_attention.key_heads", "key heads of linear attention", linear.key_heads
        )
    if mamba is not None:
        yield _HeadCount("model.mamba.heads", "Mamba heads", mamba.heads)
    if mamba is not None and mamba.groups > 1:  # a single group is copied to every rank
        yield _HeadCount("model.mamba.groups", "groups of Mamba heads", mamba.groups)


def _splits_recurrent_heads_unevenly(problem: ServingProblem, layout: ServingLayout) -> bool:
    return any(heads.number % layout.tp for heads in _recurrent_head_counts(problem.model))


def _splits_vocabulary_unevenly(problem: ServingProblem, layout: ServingLayout) -> bool:
    return padded_vocab(problem.model.vocab) % layout.tp != 0


class _SplitTensor(NamedTuple):
    """Width of a part of the model, and the number of ranks over which it is split."""

    path: str
    """Spec path of the width."""
    what: str
    """Part of the model with its article, for findings."""
    width: int
    ranks: int


def _split_tensors(problem: ServingProblem, layout: ServingLayout) -> Iterator[_SplitTensor]:
    """Yield the inner width of each kind of MLP in the model."""
    model = problem.model
    for size in dict.fromkeys(model.ffn_sizes):
        yield _SplitTensor("model.ffn", "the MLP", size, layout.tp)
    if model.experts is not None:
        yield _SplitTensor(
            "model.experts.size", "an expert", model.experts.size, layout.ranks_per_expert
        )
        if model.experts.shared_size:
            size = model.experts.shared_size
            yield _SplitTensor("model.experts.shared_size", "the shared expert", size, layout.tp)


def _quantized_tensors(problem: ServingProblem, layout: ServingLayout) -> Iterator[_SplitTensor]:
    """Yield the width of each split tensor with quantized weights.

    Softmax attention is not included, because each of its heads consists of whole blocks. A block
    is a group of weights with a common scale.
    """
    yield from _split_tensors(problem, layout)
    linear = problem.model.linear
    if linear is not None:
        path = "model.linear_attention"
        yield _SplitTensor(
            f"{path}.key_dim", "the keys of linear attention", linear.key_width, layout.tp
        )
        yield _SplitTensor(
            f"{path}.value_dim", "the values of linear attention", linear.inner_width, layout.tp
        )


def _splits_widths_unevenly(problem: ServingProblem, layout: ServingLayout) -> bool:
    return any(part.width % part.ranks for part in _split_tensors(problem, layout))


def _cuts_scale_blocks(problem: ServingProblem, layout: ServingLayout) -> bool:
    block = problem.service.setup.block_size
    return block > 1 and any(
        part.width % part.ranks == 0 and part.ranks > 1 and part.width // part.ranks % block
        for part in _quantized_tensors(problem, layout)
    )


def _cuts_fp8_blocks(problem: ServingProblem, layout: ServingLayout) -> bool:
    return problem.service.setup.weights == "fp8" and _cuts_scale_blocks(problem, layout)


def _cuts_integer_groups(problem: ServingProblem, layout: ServingLayout) -> bool:
    return problem.service.setup.weights != "fp8" and _cuts_scale_blocks(problem, layout)


def _valid_tp(
    problem: ServingProblem, layout: ServingLayout, violates: Violates
) -> tuple[str, str]:
    """Return (valid tp sizes as text, edit that sets tp to a valid size).

    A size is valid if ``violates`` returns False for the layout with this tp. The edit sets the
    largest valid size that is at most the current tp. It is empty if there is no such size or if
    the current tp is valid.
    """

    def is_valid_tp(tp: int) -> bool:
        ep = tp * layout.pcp * layout.dp if layout.ep > 1 else 1
        return not violates(problem, replace(layout, tp=tp, ep=ep))

    sizes = divisors(problem.model.attention.heads, MOST_SHOWN_DEGREE)
    valid = [tp for tp in sizes if is_valid_tp(tp)]
    largest = max((tp for tp in valid if tp <= layout.tp), default=layout.tp)
    fix = f"layout.tp: {largest}" if largest != layout.tp else ""
    return format_values(valid), fix


def _explain_heads(problem: ServingProblem, layout: ServingLayout) -> Finding:
    heads, tp = _unevenly_split_heads(problem, layout), layout.tp
    valid, fix = _valid_tp(
        problem,
        layout,
        lambda *pair: _splits_heads_unevenly(*pair) or _splits_kv_heads_unevenly(*pair),
    )
    return Finding(
        describe_indivisible(heads, "attention heads", f"tp={tp}"),
        label=f"{heads} % {tp} = {heads % tp}, must be 0",
        help=f"valid tp: {valid}; to use the remaining GPUs, increase pp or replicas",
        fix=fix,
        causes=(
            Cause("model.heads", f"the model has {heads} attention heads"),
            _quote(
                f"Total number of attention heads ({heads}) must be divisible by tensor parallel "
                f"size ({tp})"
            ),
        ),
        targets=TARGETS,
    )


def _explain_kv_heads(problem: ServingProblem, layout: ServingLayout) -> Finding:
    heads, tp = _unevenly_split_kv_heads(problem, layout), layout.tp
    valid, fix = _valid_tp(problem, layout, _splits_kv_heads_unevenly)
    return Finding(
        describe_uncopied_heads(heads, tp),
        label=f"{heads} % {tp} = {heads % tp} and {tp} % {heads} = {tp % heads}, one must be 0",
        help=f"valid tp: {valid}",
        fix=fix,
        causes=(Cause("model.kv_heads", f"the model has {heads} key-value heads"),),
        targets=TARGETS,
    )


def _explain_recurrent_heads(problem: ServingProblem, layout: ServingLayout) -> Finding:
    tp = layout.tp
    uneven = (heads for heads in _recurrent_head_counts(problem.model) if heads.number % tp)
    path, what, count = next(uneven)
    valid, fix = _valid_tp(problem, layout, _splits_recurrent_heads_unevenly)
    reported = _VLLM_MESSAGES.get(path.rpartition(".")[2])
    quoted = (_quote(reported),) if reported else ()
    return Finding(
        describe_indivisible(count, what, f"tp={tp}"),
        label=f"{count} % {tp} = {count % tp}, must be 0",
        help=f"valid tp: {valid}; increase pp or replicas by the remaining factor",
        fix=fix,
        causes=(Cause(path, f"the model has {count} {what}"), *quoted),
        targets=TARGETS,
    )


def _explain_vocabulary(problem: ServingProblem, layout: ServingLayout) -> Finding:
    vocab, tp = padded_vocab(problem.model.vocab), layout.tp
    multiple = engine_constants().sharding.vocab_multiple
    valid, fix = _valid_tp(problem, layout, _splits_vocabulary_unevenly)
    return Finding(
        f"{vocab} is not divisible by {tp}: the embedding has {vocab} rows after padding to a "
        f"multiple of {multiple}, and tp is {tp}",
        label=f"{vocab} % {tp} = {vocab % tp}, must be 0",
        help=f"valid tp: {valid}; powers of two up to {multiple} always divide the {vocab} rows",
        fix=fix,
        causes=(Cause("model.vocab", f"the vocabulary has {problem.model.vocab} tokens"),),
        targets=TARGETS,
    )


def _explain_uneven_widths(problem: ServingProblem, layout: ServingLayout) -> Finding:
    uneven = (part for part in _split_tensors(problem, layout) if part.width % part.ranks)
    path, tensor, width, ranks = next(uneven)
    valid, fix = _valid_tp(problem, layout, _splits_widths_unevenly)
    return Finding(
        describe_indivisible(
            width, tensor, f"tp={ranks}" if ranks == layout.tp else f"its {ranks} ranks"
        ),
        label=f"{width} % {ranks} = {width % ranks}, must be 0",
        help=f"valid tp: {valid}" + _suggest_expert_parallelism(tensor),
        fix=fix,
        causes=(Cause(path, f"the width of {tensor} is {width}"),),
        targets=TARGETS,
    )


def _explain_cut_scale_blocks(problem: ServingProblem, layout: ServingLayout) -> Finding:
    block = problem.service.setup.block_size
    tensors = _quantized_tensors(problem, layout)
    path, tensor, width, ranks = next(part for part in tensors if part.width // part.ranks % block)
    share = width // ranks
    valid, fix = _valid_tp(
        problem, layout, lambda *pair: _splits_widths_unevenly(*pair) or _cuts_scale_blocks(*pair)
    )
    message = (
        f"Weight input_size_per_partition = {share} is not divisible by weight quantization "
        f"block_k = {block}"
        if problem.service.setup.weights == "fp8"
        else "The input size is not aligned with the quantized weight shape. This can be caused "
        "by too large tensor parallel size"
    )
    return Finding(
        describe_cut_blocks(block, share, tensor, ranks),
        label=f"{width} / {ranks} = {share}, {share} % {block} = {share % block}, must be 0",
        help=f"valid tp: {valid}" + _suggest_expert_parallelism(tensor),
        fix=fix,
        causes=(
            Cause("job.precision", f"{block} weights of a block share a scale"),
            Cause(path, f"the width of {tensor} is {width}"),
            _quote(message),
        ),
        targets=TARGETS,
    )


def _quote(message: str) -> Cause:
    """Return a note with the message of vLLM, which users may have seen or search for."""
    return Cause("vLLM", f"vLLM reports: {message}")


def _suggest_expert_parallelism(tensor: str) -> str:
    """Return a hint that expert parallelism avoids splitting experts; "" for other tensors."""
    return "; with layout.ep: on, experts stay whole" if tensor == "an expert" else ""


_TP = ("layout.tp", "model")
_BLOCKS = (*_TP, "job.precision")
TENSOR_PARALLEL_RULES: tuple[ServingRule, ...] = (
    ServingRule("D01", _TP, _splits_heads_unevenly, _explain_heads, ("tp",)),
    ServingRule("D02", _TP, _splits_kv_heads_unevenly, _explain_kv_heads, ("tp",)),
    ServingRule("D18", _TP, _splits_recurrent_heads_unevenly, _explain_recurrent_heads, ("tp",)),
    ServingRule("D06", _TP, _splits_widths_unevenly, _explain_uneven_widths, RANK_FIELDS),
    ServingRule("V20", _TP, _splits_vocabulary_unevenly, _explain_vocabulary, ("tp",)),
    ServingRule("V07", _BLOCKS, _cuts_fp8_blocks, _explain_cut_scale_blocks, RANK_FIELDS),
    ServingRule("V06", _BLOCKS, _cuts_integer_groups, _explain_cut_scale_blocks, RANK_FIELDS),
)
