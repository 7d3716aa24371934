"""Megatron's flags in a launch file as settings, for ``parc diff``.

Defaults: NVIDIA/Megatron-LM, megatron/training/arguments.py of Megatron-Core 0.17 to 0.20.
"""

from __future__ import annotations

from collections.abc import Mapping

from parc.backends.megatron.arguments.arguments import PACKAGE
from parc.backends.megatron.launch_files.import_rest import values_of_flag
from parc.compiler.tools.importers.flags import LAUNCHER, flags_in_statements, load_import_table
from parc.compiler.tools.importers.formats import FrameworkSettings
from parc.compiler.tools.importers.launch_commands import framework_words
from parc.compiler.tools.importers.script_commands import words_used_by_launch

DEFAULTS = {
    "--tensor-model-parallel-size": "1",
    "--pipeline-model-parallel-size": "1",
    "--context-parallel-size": "1",
    "--expert-model-parallel-size": "1",
    "--attention-dropout": "0.1",
    "--hidden-dropout": "0.1",
    "--make-vocab-size-divisible-by": "128",
    "--distributed-timeout-minutes": "10",
    "--eval-iters": "100",
    "--log-interval": "100",
    "--split": "969,30,1",
    "--seed": "1234",
    "--min-lr": "0.0",
    "--lr-decay-style": "linear",
    "--weight-decay": "0.01",
    "--adam-beta1": "0.9",
    "--adam-beta2": "0.999",
    "--adam-eps": "1e-08",
    "--clip-grad": "1.0",
    "--normalization": "LayerNorm",
    "--norm-epsilon": "1e-05",
    "--position-embedding-type": "learned_absolute",
    "--rotary-base": "10000",
    "--rotary-percent": "1.0",
    "--transformer-impl": "transformer_engine",
    "--attention-backend": "auto",
    "--ckpt-format": "torch_dist",
}
"""Flag -> value that Megatron uses if the flag is absent."""


SIGNS = frozenset(load_import_table(PACKAGE).rows) - {
    *("--seed", "--lr", "--weight-decay", "--load", "--save", "--bf16", "--fp16", "--data-path"),
    *("--tokenizer-model", "--tokenizer-type", "--finetune", "--adam-beta1", "--adam-beta2"),
}
"""Flags that identify a launch of Megatron. Flags that other programs have as well are excluded."""


def read_settings(text: str, name: str) -> Mapping[str, str]:
    """Return Megatron flag -> values of the flag in ``text``, joined by spaces.

    The result is empty if no flag in ``text`` identifies a launch of Megatron.
    """
    words = framework_words(words_used_by_launch(text, name)[0])
    # Arrays of arguments also count if PARC imports none of their flags.
    flags = flags_in_statements(words, load_import_table(PACKAGE).rows, whole=True)
    if SIGNS.isdisjoint(flag.name for flag in flags):
        return {}
    found = {
        flag.name: " ".join(values_of_flag(flag))
        for flag in flags
        if flag.name.startswith("--") and flag.name.replace("_", "-") not in LAUNCHER
    }
    if found.pop("--use-rotary-position-embeddings", None) is not None:  # the older spelling
        found["--position-embedding-type"] = "rope"
    return found


SETTINGS = FrameworkSettings("megatron", read_settings, DEFAULTS)
