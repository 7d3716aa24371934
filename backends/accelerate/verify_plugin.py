"""Verifier of the files that Accelerate and DeepSpeed emit together.

DeepSpeed's own verifier checks ``ds_config.json``. The registry provides that verifier, because a
backend may not import another backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from parc.backends.accelerate.verify import (
    CONFIG,
    DEEPSPEED_CONFIG,
    LAUNCHER,
    accelerate_program_start,
    read_accelerate_settings,
    read_sizes,
    verify_accelerate_programs,
)
from parc.backends.registry import verifier_of_backend
from parc.backends.verifier import (
    DerivedGroups,
    DerivedSetting,
    FrameworkVerifier,
    LaunchedProgram,
    LauncherWrappedVerifier,
)
from parc.compiler.diagnostics import Sink


def read_world(text: str) -> int:
    """Return the number of ranks on all hosts that ``config.yaml`` configures."""
    return read_sizes(text).world


class PluginVerifier(FrameworkVerifier):
    """Verifier of jobs that Accelerate starts with DeepSpeed; it reads the files of both."""

    def __init__(self, deepspeed: FrameworkVerifier) -> None:
        """Store DeepSpeed's verifier, which reads ``ds_config.json``."""
        self._deepspeed = deepspeed
        self.file, self.needs, self.launcher = deepspeed.file, deepspeed.needs, deepspeed.launcher
        self.files, self.not_in_files = deepspeed.files, deepspeed.not_in_files

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
        """Yield the plan settings in the files of DeepSpeed and Accelerate."""
        yield from self._deepspeed.derive_settings(artifacts)
        yield from read_accelerate_settings(artifacts)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report contradictions between the files of DeepSpeed and Accelerate (A18).

        Emitted programs whose code differs from the code that PARC emits are reported too.
        """
        self._deepspeed.check_file_contents(artifacts, sink)
        verify_accelerate_programs(artifacts, sink)

    def program_start(
        self, plan: Mapping[str, Any], artifacts: Mapping[str, str]
    ) -> LaunchedProgram | None:
        """Return the ``accelerate launch`` command that the launch script must contain.

        The command includes the path of DeepSpeed's config.
        """
        return accelerate_program_start(plan, DEEPSPEED_CONFIG)

    def derive_groups(
        self, artifacts: Mapping[str, str], world: int, sink: Sink
    ) -> DerivedGroups | None:
        """Return the process groups that DeepSpeed creates; each process is one replica."""
        return self._deepspeed.derive_groups(artifacts, world, sink)


VERIFIER = PluginVerifier(
    cast(LauncherWrappedVerifier, verifier_of_backend("deepspeed")).verifier_when_wrapped(
        CONFIG, read_world, LAUNCHER
    )
)
