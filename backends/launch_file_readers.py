"""Modules of the backends that read launch files which PARC did not write."""

from __future__ import annotations

LINTERS: dict[str, str] = {
    "megatron": "parc.backends.megatron.launch_files.lint",
    "deepspeed": "parc.backends.deepspeed.launch_files.lint",
    "vllm": "parc.backends.vllm.launch_files.lint",
}
"""Backend -> module with ``LINTER``, for ``parc lint``."""
IMPORTERS: dict[str, str] = {
    "megatron": "parc.backends.megatron.launch_files.import_arguments",
    "deepspeed": "parc.backends.deepspeed.launch_files.import_config",
    "vllm": "parc.backends.vllm.launch_files.import_command",
}
"""Backend -> module with ``IMPORTERS``, for ``parc import``."""
