"""Rules on the files of a job that torchtitan reads."""

from __future__ import annotations

from parc.backends.shared.common_rules import always_violated_rule
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Problem
from parc.compiler.ir.rule import Rule

NAME = "torchtitan"


def file_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return a rule (E11) for each path of the job that torchtitan cannot use."""
    load = problem.job.load_dir
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
