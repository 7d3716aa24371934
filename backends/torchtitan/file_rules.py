"""Rules on the files of a job that torchtitan reads."""

from __future__ import annotations

import json

from parc.backends.shared.common_rules import always_violated_rule
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Problem
from parc.compiler.ir.rule import Rule

NAME = "torchtitan"


def file_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return a rule (E11) for each path of the job that torchtitan cannot use."""
    return (*_data_rules(problem.job.data), *_load_rules(problem.job.load_dir))


def _data_rules(data: tuple[str, ...]) -> tuple[Rule, ...]:
    # HuggingFaceTextDataLoader.Config has one dataset_path.
    if len(data) < 2:
        return ()
    first = next((word for word in data if not _is_number(word)), data[0])
    finding = Finding(
        message="torchtitan reads one path of training data",
        label=f"{len(data)} words in job.data; torchtitan would read only the first",
        help="merge the data into one folder, or use fsdp, which reads several files with weights",
        fix=f"job.data: [{json.dumps(first, ensure_ascii=False)}]",
        targets=(NAME,),
    )
    return (always_violated_rule("E11", ("job.data",), finding),)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _load_rules(load: str | None) -> tuple[Rule, ...]:
    # CheckpointManager.Config, __post_init__: a path from the root, or a URI of fsspec.
    if load is None or load.startswith("/") or "://" in load:
        return ()
    finding = Finding(
        message="torchtitan starts only from an absolute path or a URI",
        label=f"{load} is a relative path, or a repository of Hugging Face",
        help="for a repository, run `hf download` first, and set load_dir to the folder",
        fix="job.load_dir: /path/to/checkpoint",
        targets=(NAME,),
    )
    return (always_violated_rule("E11", ("job.load_dir",), finding),)
