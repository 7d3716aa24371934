"""Replacements on a CPU for the GPU queries and triton that Megatron-Core and torchtitan import.

Runs under the Python that has torch and Megatron-Core, not under PARC's own; it may import neither
PARC nor pytest.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from absent_modules import any_name

TRANSFORMER_ENGINE = "2.19.0"
"""Version that is reported as installed; its functions are looked up and never called."""


def make_megatron_importable(megatron: str) -> None:
    """Make Megatron-Core importable from the folder ``megatron``. Call it once, before its first
    import.
    """
    sys.path.insert(0, megatron)
    import typing

    if not hasattr(typing, "override"):  # Python 3.11; Megatron-Core requires 3.12
        import typing_extensions

        typing.override = typing_extensions.override  # type: ignore[attr-defined]
    try:
        import triton  # noqa: F401
    except ImportError:
        install_fake_triton()


def install_fake_triton() -> None:
    """Install a triton whose decorators do nothing, because modules that are imported on the way
    define triton kernels.
    """
    import torch.utils._triton

    for module in ("torch._dynamo", "torch._inductor.codecache"):
        import_module(module)  # they look for triton, and must not find this one
    torch.utils._triton.has_triton_package()  # caches that triton is absent
    kernel, language = types.ModuleType("triton"), types.ModuleType("triton.language")

    def decorator(*args: Any, **options: Any) -> Any:
        bare = len(args) == 1 and callable(args[0]) and not options
        return args[0] if bare else lambda function: function

    values = {"jit": decorator, "autotune": decorator, "heuristics": decorator}
    values |= {"Config": lambda *_, **__: None, "cdiv": lambda a, b: -(-a // b)}
    values |= {"next_power_of_2": lambda n: 1 << (n - 1).bit_length()}
    values |= {"__version__": "0.0.0", "__path__": [], "language": language}
    vars(kernel).update(values)
    vars(language)["__getattr__"] = any_name
    sys.modules["triton"], sys.modules["triton.language"] = kernel, language


@contextlib.contextmanager
def hardware(major: int) -> Iterator[None]:
    """Report a GPU of compute capability ``major``.0 with TransformerEngine to all queries of
    Megatron-Core.
    """
    import megatron.core.models.common.embeddings.rope_utils as rope
    import megatron.core.transformer.moe.moe_utils as moe
    import megatron.core.utils as core
    import megatron.training.arguments as parser
    import torch
    from packaging.version import Version

    def never(*_: Any, **__: Any) -> None:
        raise RuntimeError("a TransformerEngine kernel was called")

    device = types.SimpleNamespace(major=major, minor=0)
    swaps: list[tuple[Any, str, Any]] = [
        (torch.cuda, "get_device_capability", lambda *_, **__: (major, 0)),
        (torch.cuda, "get_device_properties", lambda *_, **__: device),
        (parser, "get_device_arch_version", lambda: major),
        (core, "_te_version", Version(TRANSFORMER_ENGINE)),
    ]
    for module in (rope, moe):
        fused = [name for name in vars(module) if name.startswith("fused_")]
        swaps += [(module, name, never) for name in fused if getattr(module, name) is None]
    with swapped(swaps):
        yield


@contextlib.contextmanager
def swapped(swaps: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace attributes, given as (owner, name, value), and restore them at the end."""
    before = [getattr(owner, name) for owner, name, _ in swaps]
    for owner, name, value in swaps:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(swaps, before, strict=True):
            setattr(owner, name, value)


def read_docstrings_once() -> None:
    """Cache the docstrings of config classes, because every parser reads the source of each class
    again for its help.
    """
    from megatron.training.argument_utils import ArgumentGroupFactory as Factory

    read, known = Factory._get_field_docstrings, {}

    def remember(self: Any, config: type) -> dict[str, str]:
        if config not in known:
            known[config] = read(self, config)
        return dict(known[config])

    Factory._get_field_docstrings = remember
