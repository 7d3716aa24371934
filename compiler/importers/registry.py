"""Every kind of ``parc import``: the readers of topologies, and those of launches and models."""

from __future__ import annotations

from collections.abc import Sequence

from parc.compiler.diagnostics import Sink
from parc.compiler.importers.deepspeed_json import read_deepspeed_json
from parc.compiler.importers.hf_config import read_hf_config
from parc.compiler.importers.megatron_args import read_megatron_args
from parc.compiler.importers.nccl_tests import read_nccl_tests, read_outputs
from parc.compiler.importers.sbatch import read_sbatch
from parc.compiler.importers.vllm_args import read_vllm_args
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.racks import merge
from parc.compiler.topology.readers.registry import FORMATS, Format

KINDS: dict[str, Format] = {
    **FORMATS,
    "nccl-tests": Format(
        read_nccl_tests,
        "output of nccl-tests",
        (r"(?m)^# nccl-tests version", r"(?m)^#[ \t]+Rank[ \t]+[0-9]+[ \t]+Group"),
    ),
    "hf-config": Format(
        read_hf_config, "config.json of Hugging Face", (r'"model_type"\s*:', r'"architectures"\s*:')
    ),
    "deepspeed-json": Format(
        read_deepspeed_json,
        "config of DeepSpeed",
        (r'"(train_batch_size|zero_optimization|train_micro_batch_size_per_gpu)"\s*:',),
    ),
    "sbatch": Format(
        read_sbatch, "batch script of Slurm with its launch line", (r"(?m)^#SBATCH[ \t]",)
    ),
    "megatron-args": Format(
        read_megatron_args,
        "arguments of Megatron-LM, or a script with them",
        (r"--(tensor|pipeline)-model-parallel-size\b", r"--num-attention-heads\b"),
    ),
    "vllm-args": Format(
        read_vllm_args,
        "command of vLLM, or a script with it",
        (r"\bvllm[ \t]+serve\b", r"--tensor-parallel-size\b"),
    ),
}
"""In the order in which a text is compared with them."""


def read_files(kind: str, files: Sequence[tuple[str, str]], sink: Sink) -> Fragment | None:
    """One fragment of (text, name) pairs of ``kind``; None after an error."""
    if kind == "nccl-tests":
        return read_outputs(list(files), sink)
    fragments = [KINDS[kind].reader(text, name, sink) for text, name in files]
    sound = [fragment for fragment in fragments if fragment is not None]
    return merge(sound, sink) if len(sound) == len(files) and not sink.failed() else None
