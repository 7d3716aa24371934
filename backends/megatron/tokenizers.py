"""Megatron's tokenizer types, and the vocabulary that a tokenizer reports."""

from __future__ import annotations

from parc.backends.megatron.capabilities import core_version
from parc.backends.shared.versions import parse_version
from parc.compiler.ir import Problem

VOCAB_MULTIPLE = 128
"""Value of ``--make-vocab-size-divisible-by``: Megatron's default, which PARC always emits."""
NULL_TOKENIZER = "NullTokenizer"
HUGGING_FACE_TOKENIZER = "HuggingFaceTokenizer"
READ_A_MODEL = (
    HUGGING_FACE_TOKENIZER,
    "GPTSentencePieceTokenizer",
    "Llama2Tokenizer",
    "SentencePieceTokenizer",
    "SFTTokenizer",
    "TikTokenizer",
)
"""Types that read ``--tokenizer-model``; the other types ignore the flag (Megatron-LM 0.19.0,
megatron/core/tokenizers/utils/build_tokenizer.py)."""
EXACT_NULL_TOKENIZER_SINCE = (0, 18)
"""First Megatron version whose NullTokenizer has as many tokens as ``--vocab-size``."""


def tokenizer_types() -> tuple[str, ...]:
    """Return the tokenizer types that Megatron's parser accepts, in all supported versions."""
    # Imported here, because few commands need the readers of launch files.
    from parc.backends.shared.extra_arguments import rows_of_known_flags

    return tuple(rows_of_known_flags(__package__)["--tokenizer-type"]["choices"])


def tokenizer_type(problem: Problem) -> str:
    """Return Megatron's name for the tokenizer of the job.

    If the spec sets none, a tokenizer model is read as one of Hugging Face; without a model, the
    data are token ids.
    """
    given = HUGGING_FACE_TOKENIZER if problem.job.tokenizer_model else NULL_TOKENIZER
    return problem.job.tokenizer_type or given


def tokenizer_vocab_size(problem: Problem) -> int:
    """Return the size of the vocabulary that Megatron's tokenizer reports."""
    added = tokenizer_adds_token(tokenizer_type(problem), core_version(problem))
    return problem.model.vocab + added


def tokenizer_adds_token(tokenizer: str, version: str) -> bool:
    """Return True if the tokenizer reports one token more than ``--vocab-size``.

    Megatron 0.17.1 adds a token for the end of a document to NullTokenizer; 0.18.2 uses the last
    token (megatron/core/tokenizers/text/libraries/null_tokenizer.py).
    """
    return tokenizer == NULL_TOKENIZER and parse_version(version) < EXACT_NULL_TOKENIZER_SINCE


def padded_vocab(problem: Problem, tp: int) -> int:
    """Return the number of embedding rows, including padding, of the model of ``problem``."""
    return padded_rows(tokenizer_vocab_size(problem), tp)


def padded_rows(tokens: int, tp: int) -> int:
    """Return the number of embedding rows: ``tokens`` rounded up to a multiple of 128 x tp.

    Source: Megatron-LM, training/vocab_utils.py.
    """
    step = VOCAB_MULTIPLE * tp
    return -(-tokens // step) * step
