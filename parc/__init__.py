"""PARC compiles a model, a cluster and a goal into launch files with a verified rank map.

>>> import parc
>>> spec = {
...     "parc": 1,
...     "name": "demo",
...     "model": "llama-3-8b",
...     "cluster": {"node": "dgx-h100", "nodes": 1},
...     "job": {"sequence_length": 4096, "global_batch": 64},
... }
>>> parc.compile(spec)
<TrainingPlan demo: tp ...>
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parc.compiler.api import SpecError, check, compile, estimate, sweep

__version__ = "0.1.0"
__all__ = ["SpecError", "__version__", "check", "compile", "estimate", "sweep"]


def __getattr__(name: str) -> Any:
    """Load the names of the API on first use, so that ``parc --help`` does not import pydantic."""
    if name in __all__:
        from parc.compiler import api

        return getattr(api, name)
    raise AttributeError(f"module 'parc' has no attribute {name!r}")
