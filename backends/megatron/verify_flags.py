"""Types and defaults of the Megatron flags that a plan determines.

The tables repeat those of Megatron's own parser, not those of the emitter. Source:
megatron/training/arguments.py of Megatron-Core 0.17 to 0.20, in which these flags have equal types
and defaults. A flag that is not listed here can only be in ``launch.args``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from parc.backends.megatron.verify_arguments import WrittenFlags
from parc.compiler.ir.frozen import frozen

LONGEST_LIST = 100_000
"""Maximum number of layers in a list expression; it bounds the memory for damaged files."""

SWITCHES = frozenset(
    (
        "account-for-embedding-in-pipeline-split",
        "account-for-loss-in-pipeline-split",
        "add-qkv-bias",
        "async-save",
        "attention-output-gate",
        "bf16",
        "cross-entropy-loss-fusion",
        "delay-wgrad-compute",
        "disable-bias-linear",
        "exit-on-missing-checkpoint",
        "exit-signal-handler",
        "fine-grained-activation-offloading",
        "finetune",
        "fp16",
        "fp4-param-gather",
        "fp8-param-gather",
        "grad-reduce-in-bf16",
        "group-query-attention",
        "init-model-with-meta-device",
        "log-throughput",
        "manual-gc",
        "mock-data",
        "moe-grouped-gemm",
        "moe-permute-fusion",
        "moe-router-enable-expert-bias",
        "moe-router-force-load-balancing",
        "moe-router-fusion",
        "moe-router-padding-for-quantization",
        "moe-router-pre-softmax",
        "moe-shared-expert-gate",
        "moe-shared-expert-overlap",
        "multi-latent-attention",
        "no-bias-dropout-fusion",
        "no-bias-gelu-fusion",
        "no-check-for-nan-in-loss-and-grad",
        "no-create-attention-mask-in-dataloader",
        "no-gradient-accumulation-fusion",
        "no-rope-fusion",
        "overlap-grad-reduce",
        "overlap-moe-expert-parallel-comm",
        "overlap-param-gather",
        "profile",
        "qk-layernorm",
        "quick-geglu",
        "reuse-grad-buf-for-mxfp8-param-ag",
        "sequence-parallel",
        "squared-relu",
        "swiglu",
        "te-rng-tracker",
        "tp-comm-overlap",
        "untie-embeddings-and-output-weights",
        "use-distributed-optimizer",
        "use-megatron-fsdp",
        "use-persistent-ckpt-worker",
        "use-precision-aware-optimizer",
        "use-rope-scaling",
        "use-tp-pp-dp-mapping",
    )
)
"""Flags without a value, which are off unless they are given."""

INTEGERS: Mapping[str, int | None] = {
    "context-parallel-size": 1,
    "decoder-first-pipeline-num-layers": None,
    "decoder-last-pipeline-num-layers": None,
    "distributed-timeout-minutes": 10,
    "eval-iters": 100,
    "expert-model-parallel-size": 1,
    "expert-tensor-parallel-size": None,
    "ffn-hidden-size": None,
    "fp8-amax-history-len": 1,
    "global-batch-size": None,
    "hidden-size": None,
    "kv-channels": None,
    "kv-lora-rank": 32,
    "linear-conv-kernel-dim": 4,
    "linear-key-head-dim": 128,
    "linear-num-key-heads": 16,
    "linear-num-value-heads": 32,
    "linear-value-head-dim": 128,
    "log-interval": 100,
    "lr-decay-iters": None,
    "lr-warmup-iters": 0,
    "lr-wsd-decay-iters": None,
    "make-vocab-size-divisible-by": 128,
    "mamba-head-dim": 64,
    "mamba-num-groups": 8,
    "mamba-num-heads": None,
    "mamba-state-dim": 128,
    "max-position-embeddings": None,
    "micro-batch-size": None,
    "moe-ffn-hidden-size": None,
    "moe-latent-size": None,
    "moe-router-group-topk": None,
    "moe-router-num-groups": None,
    "moe-router-topk": 2,
    "moe-shared-expert-intermediate-size": None,
    "mtp-num-layers": None,
    "num-attention-heads": None,
    "num-distributed-optimizer-instances": 1,
    "num-experts": None,
    "num-layers": None,
    "num-query-groups": 1,
    "num-virtual-stages-per-pipeline-rank": None,
    "pipeline-model-parallel-size": 1,
    "q-lora-rank": None,
    "qk-head-dim": 128,
    "qk-pos-emb-head-dim": 64,
    "recompute-num-layers": None,
    "rotary-base": 10000,
    "rotary-seq-len-interpolation-factor": None,
    "save-interval": None,
    "seed": 1234,
    "seq-length": None,
    "tensor-model-parallel-size": 1,
    "tensor-parallel-num-weight-shards": None,
    "expert-tensor-parallel-num-weight-shards": None,
    "train-iters": None,
    "v-head-dim": 128,
    "vocab-size": None,
    "window-attn-skip-freq": None,
    "linear-attention-freq": None,
    "yarn-original-max-position-embeddings": None,
    "manual-gc-interval": 0,
    "profile-step-end": 12,
    "profile-step-start": 10,
}
"""Flag that takes an integer -> default of the flag."""

NUMBERS: Mapping[str, float | None] = {
    "activation-func-clamp-value": None,
    "adam-beta1": 0.9,
    "adam-beta2": 0.999,
    "adam-eps": 1e-8,
    "attention-dropout": 0.1,
    "clip-grad": 1.0,
    "glu-linear-offset": 0.0,
    "hidden-dropout": 0.1,
    "init-method-std": 0.02,
    "lr": None,
    "lr-warmup-fraction": None,
    "min-lr": 0.0,
    "moe-aux-loss-coeff": 0.0,
    "moe-router-topk-scaling-factor": None,
    "mscale": 1.0,
    "mscale-all-dim": 0.0,
    "mtp-loss-scaling-factor": 0.1,
    "norm-epsilon": 1e-5,
    "rope-scaling-factor": 8.0,
    "rotary-percent": 1.0,
    "rotary-scaling-factor": 1.0,
    "weight-decay": 0.01,
}
"""Flag that takes a number -> default of the flag."""

TEXTS: Mapping[str, str | None] = {
    "async-strategy": "nvrx",
    "attention-backend": "auto",
    "ckpt-format": "torch_dist",
    "cuda-graph-impl": "none",
    # Since 0.18; before, the default is no_shard.
    "data-parallel-sharding-strategy": "optim_grads_params",
    "exp-avg-dtype": "fp32",
    "exp-avg-sq-dtype": "fp32",
    "experimental-attention-variant": None,
    "fp4-format": None,
    "fp4-recipe": "nvfp4",
    "fp8-amax-compute-algo": "most_recent",
    "fp8-format": None,
    "fp8-recipe": "delayed",
    "hybrid-layer-pattern": None,
    "load": None,
    "lr-decay-style": "linear",
    "lr-wsd-decay-style": "exponential",
    "megatron-fsdp-main-grads-dtype": "auto",
    "moe-flex-dispatcher-backend": "deepep",
    "moe-router-dtype": None,
    "moe-router-load-balancing-type": "aux_loss",
    "moe-router-score-function": "softmax",
    "pretrained-checkpoint": None,
    "moe-token-dispatcher-type": "allgather",
    "normalization": "LayerNorm",
    "pipeline-model-parallel-layout": None,
    "position-embedding-type": "learned_absolute",
    "recompute-granularity": None,
    "recompute-method": None,
    # The parser's default is None; multi-latent attention then uses yarn.
    "rope-type": None,
    "save": None,
    "softmax-type": "vanilla",
    # The parser's default is None; data sets then use 969,30,1.
    "split": None,
    "tokenizer-model": None,
    "tokenizer-type": None,
    "transformer-impl": "transformer_engine",
    "tensorboard-dir": None,
    "wandb-exp-name": None,
    "wandb-project": None,
    "wandb-save-dir": None,
}
"""Flag that takes a text -> default of the flag."""

LISTS: Mapping[str, tuple[Callable[[str], Any], tuple[Any, ...]]] = {
    "cp-comm-type": (str, ("p2p",)),
    "cuda-graph-modules": (str, ()),
    "cuda-graph-scope": (str, ()),
    "data-path": (str, ()),
    "hierarchical-context-parallel-sizes": (int, ()),
    "offload-modules": (str, ()),
    "profile-ranks": (int, ()),
    "recompute-modules": (str, ()),
    "spec": (str, ()),
}
"""Flag with several values -> (function that parses one value, default)."""

SPECIAL: Mapping[str, Callable[[str], Any]] = {
    "moe-layer-freq": lambda text: read_layer_list(text),
    "window-size": lambda text: read_number_pair(text),
}
"""Flag whose value has a notation of its own -> function that parses the value, or raises
ValueError. The default of these flags is None."""

FLAGS = frozenset((*SWITCHES, *INTEGERS, *NUMBERS, *TEXTS, *LISTS, *SPECIAL))
"""Flags that a plan determines. Any other flag must be in ``launch.args``."""


@frozen
class RejectedFlagValues:
    """Values of a flag that Megatron's parser would reject. They never equal a value of a plan."""

    words: tuple[str, ...]


@frozen
class ParsedFlags:
    """Values of all flags as Megatron's parser sees them, including defaults of absent flags."""

    arguments: WrittenFlags

    def __getitem__(self, flag: str) -> Any:
        """Return the value of ``--flag``, or the default of the flag if the flag is absent.

        Returns ``RejectedFlagValues`` if Megatron's parser would reject the value.
        """
        words = self.arguments.flags.get(flag)
        if flag in SWITCHES:
            return words is not None if not words else RejectedFlagValues(words)
        if words is None:
            return default_of_flag(flag)
        try:
            if flag in LISTS:
                return tuple(LISTS[flag][0](word) for word in words)
            (word,) = words
            return _flag_parser(flag)(word)
        except (ValueError, SyntaxError, RecursionError):
            return RejectedFlagValues(words)

    def line(self, flag: str) -> int:
        """Return the line number of ``--flag``; 1 if the flag is absent."""
        return self.arguments.lines.get(flag, 1)

    def text(self, flag: str) -> str:
        """Return ``--flag`` and its values as one text; "" if the flag is absent."""
        words = self.arguments.flags.get(flag)
        return "" if words is None else " ".join((f"--{flag}", *words))


def default_of_flag(flag: str) -> Any:
    """Return the value that Megatron uses if ``--flag`` is absent."""
    for table in (INTEGERS, NUMBERS, TEXTS):
        if flag in table:
            return table[flag]
    return LISTS[flag][1] if flag in LISTS else None


def _flag_parser(flag: str) -> Callable[[str], Any]:
    if flag in INTEGERS:
        return read_integer
    if flag in NUMBERS:
        return float
    return SPECIAL.get(flag, str)


def read_integer(text: str) -> int:
    """Return ``text`` as an integer.

    Raises ValueError if ``text`` is not an integer, or is longer than 18 characters.
    """
    if len(text) > 18:
        raise ValueError(text)
    return int(text)


def read_number_pair(text: str) -> tuple[int, ...]:
    """Return the pair of integers in a text such as ``(4095,0)``.

    Megatron's parser calls this type of value ``tuple_type``.
    """
    pair = tuple(map(read_integer, text.strip().strip("()").split(",")))
    if len(pair) != 2:
        raise ValueError(text)
    return pair


def read_layer_list(text: str) -> Any:
    """Return the list in a text such as ``([0]*3+[1]*58)``, or the integer in a text such as ``2``.

    Megatron evaluates the text as Python (``moe_freq_type``). This function accepts only lists,
    sums and repeats.
    """
    if not re.fullmatch(r"[\[\]()0-9,*+ ]{1,10000}", text):
        raise ValueError(text)
    return _evaluate_list_expression(ast.parse(text, mode="eval").body)


def _evaluate_list_expression(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [_evaluate_list_expression(one) for one in node.elts]
    if isinstance(node, ast.BinOp):
        left, right = _evaluate_list_expression(node.left), _evaluate_list_expression(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        repeats = isinstance(node.op, ast.Mult) and isinstance(left, list)
        if repeats and isinstance(right, int) and len(left) * right <= LONGEST_LIST:
            return left * right
    raise ValueError(ast.dump(node))
