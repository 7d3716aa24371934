"""Train tiny models with emitted programs on CPU ranks that are forked after the imports.

    python family_ranks.py < cases.jsonl > verdicts.jsonl

A case: {"name", "program", "arguments", "ranks", "family"}. Each rank runs the program over gloo,
as torchrun would start it; the verdict adds "output", the output of rank 0. Imports take most of
the time of a run with a tiny model, and here they happen once.

Runs under the Python that has torch, transformers and DeepSpeed; imports neither PARC nor pytest.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "shared"))

from case_lines import Case, Rejected, Verdict, answer_cases, import_before_forks
from free_ports import free_ports
from rank_site import sitecustomize as rank_site


def check(case: Case, verdict: Verdict) -> None:
    """Run all ranks of a case, and raise if one fails."""
    verdict["stage"] = "run"
    port = free_ports(2)[0]
    with tempfile.TemporaryDirectory() as folder:
        children = [start_rank(case, rank, port, Path(folder)) for rank in range(case["ranks"])]
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        outputs = [(Path(folder) / str(rank)).read_text() for rank in range(case["ranks"])]
    verdict["output"] = outputs[0]
    if failed := [rank for rank, end in enumerate(ends) if end]:
        raise Rejected(f"ranks {failed} failed: {outputs[failed[0]][-1500:]}")


def start_rank(case: Case, rank: int, port: int, folder: Path) -> int:
    """Return the process id of a forked rank, whose output goes to the file ``folder``/``rank``."""
    child = os.fork()
    if child:
        return child
    with (folder / str(rank)).open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    status = 1
    try:
        run_program(case, rank, port)
        status = 0
    except SystemExit as ending:
        status = int(bool(ending.code))
        print(ending, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run_program(case: Case, rank: int, port: int) -> None:
    """Run the program with the environment of torchrun."""
    sizes = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": case["ranks"]}
    sizes |= {"LOCAL_WORLD_SIZE": case["ranks"], "MASTER_PORT": port}
    os.environ |= {name: str(size) for name, size in sizes.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    program = Path(case["program"])
    sys.argv = [str(program), *case["arguments"]]
    sys.path.insert(0, str(program.parent))
    os.chdir(program.parent)
    runpy.run_path(str(program), run_name="__main__")


def modules_of(case: Case) -> tuple[str, ...]:
    """Return the module of the class of the model, which takes seconds to import."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    if case["family"] not in CLASSES:
        return ()
    config: Any = CONFIG_MAPPING[case["family"]]
    return (config.__module__.replace(".configuration_", ".modeling_"),)


def main() -> int:
    os.environ["DS_ACCELERATOR"] = "cpu"
    import_before_forks("torch", "transformers", "transformers.trainer", "deepspeed")
    import_before_forks("torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp")
    assert not rank_site.PATCHES, "torch or DeepSpeed was imported before its patches"
    return answer_cases(check, needs=modules_of)


if __name__ == "__main__":
    sys.exit(main())
