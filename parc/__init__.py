"""PARC compiles a model, a cluster and a goal into launch files with a verified rank map.

>>> import parc
>>> plan = parc.compile("spec.yaml")        # doctest: +SKIP
>>> plan.layout.tp                          # doctest: +SKIP
8
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parc.compiler.api import check, compile, estimate, sweep

__version__ = "0.1.0"
__all__ = ["__version__", "check", "compile", "estimate", "sweep"]


def __getattr__(name: str) -> Any:
    """Load the functions on first use, so that ``parc --help`` does not import pydantic."""
    if name in ("check", "compile", "estimate", "sweep"):
        from parc.compiler import api

        return getattr(api, name)
    raise AttributeError(f"module 'parc' has no attribute {name!r}")
