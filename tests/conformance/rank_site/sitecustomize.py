"""Patches of torch and DeepSpeed for runs on a CPU that would otherwise fail at random or be slow.

Python imports this module by name from PYTHONPATH, before the program. Two things are replaced,
neither of which an emitted file uses: the shutdown of gloo, and DeepSpeed's collectives over
shared memory. Imports neither PARC nor pytest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any


def leave_with_the_group(distributed: Any) -> None:
    """End the process as soon as it destroys all its process groups, because its work is done.

    Gloo's threads and the interpreter's shutdown can otherwise deadlock or abort.
    """
    destroy = distributed.destroy_process_group

    def destroy_or_leave(group: Any = None) -> None:
        if group is not None:
            destroy(group)
            return
        distributed.barrier()  # no rank may exit while another communicates with it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    distributed.destroy_process_group = destroy_or_leave


def without_shared_memory(backend: Any) -> None:
    """Skip an extension that DeepSpeed would compile for a minute, in a folder that all runs
    share.
    """
    backend.build_shm_op = lambda: None


PATCHES: dict[str, Callable[[Any], None]] = {
    "torch.distributed": leave_with_the_group,
    "deepspeed.comm.torch": without_shared_memory,
}


class Patched(MetaPathFinder):
    """Import hook that patches the listed modules directly after their import."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        patch = PATCHES.pop(name, None)
        spec = find_spec(name) if patch is not None else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Patched())
