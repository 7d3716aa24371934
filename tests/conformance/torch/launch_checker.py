"""Parse command lines with the real parsers of torchrun and of DeepSpeed's launcher.

    python launch_checker.py < cases.jsonl > verdicts.jsonl

A case: {"name", "launcher": "torchrun" | "deepspeed", "argv": [...], "hostfile": "h1 slots=8\\n"}.
"argv" has all words after the launcher's name, including the script; "hostfile" replaces the file
of --hostfile. A verdict adds "resolved": for torchrun its sizes, rendezvous and environment, for
deepspeed "hosts" ([name, slots] in the order of ranks).

Runs under the Python that has torch and DeepSpeed; imports neither PARC nor pytest.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from case_lines import Case, Rejected, Verdict, answer_cases, import_before_forks


def check(case: Case, verdict: Verdict) -> None:
    """Parse as the launcher does before it starts anything."""
    verdict["stage"] = "parse"
    for variable in [name for name in os.environ if name.startswith("PET_")]:
        del os.environ[variable]  # torchrun reads defaults from them
    launchers = {"torchrun": torchrun, "deepspeed": deepspeed}
    verdict["resolved"] = launchers[case["launcher"]](case)


def torchrun(case: Case) -> dict[str, Any]:
    from torch.distributed import run

    args = rejecting(run.parse_args, case["argv"])
    config, command, words = run.config_from_args(args)
    return {
        "min_nodes": config.min_nodes,
        "max_nodes": config.max_nodes,
        "nproc_per_node": config.nproc_per_node,
        "node_rank": args.node_rank,
        "max_restarts": config.max_restarts,
        "rdzv_backend": config.rdzv_backend,
        "rdzv_endpoint": config.rdzv_endpoint,
        "script": args.training_script,
        "script_args": args.training_script_args,
        "command": [command, *words] if isinstance(command, str) else words,
    }


def deepspeed(case: Case) -> dict[str, Any]:
    from deepspeed.launcher import runner

    args = rejecting(runner.parse_args, case["argv"])
    found: dict[str, Any] = {
        "launcher": args.launcher,
        "master_addr": args.master_addr,
        "master_port": args.master_port,
        "no_ssh": args.no_ssh,
        "node_rank": args.node_rank,
        "script": args.user_script,
        "script_args": args.user_args,
    }
    if "hostfile" in case:
        pool = runner._parse_hostfile(case["hostfile"].splitlines(keepends=True))
        active = runner.parse_inclusion_exclusion(pool, args.include, args.exclude)
        found["hosts"] = [[host, list(slots)] for host, slots in active.items()]
    return found


def rejecting(parse: Callable[[list[str]], Any], argv: list[str]) -> Any:
    """Turn the exit of argparse into Rejected with its message."""
    heard = io.StringIO()
    try:
        with contextlib.redirect_stderr(heard):
            return parse(argv)
    except SystemExit as stop:
        raise Rejected(heard.getvalue().rpartition("error: ")[2].strip()) from stop


def main() -> int:
    os.environ["DS_ACCELERATOR"] = "cpu"
    import_before_forks("torch", "torch.distributed.run", "deepspeed.launcher.runner")
    return answer_cases(check)


if __name__ == "__main__":
    sys.exit(main())
