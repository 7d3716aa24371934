"""Verifier of ``torchtitan/parc_titan.py``, which it reads without executing the module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from parc.backends.shared.torch.verify_program_start import python_path_command, start_of_program
from parc.backends.shared.verify_torch import (
    NOT_IN_TORCH_FILES,
    UNUSED_IN_LLAMA,
    settings_fixed_by_framework,
)
from parc.backends.torchtitan.verify_module import MODULE, read_model_settings, read_module
from parc.backends.torchtitan.verify_settings import AXES, read_run_settings
from parc.backends.verifier import DerivedSetting, FileDependencies, LaunchedProgram
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.device_mesh import DeviceMeshVerifier, MeshSizes, positive_sizes
from parc.compiler.verify.program_code import read_program_digests, verify_code
from parc.compiler.verify.verify_settings import EmittedSettings

UNUSED = {
    "problem.job.wsd_decay_steps": "only relevant with the decay wsd",
    "problem.model.position.scaling_factor": "only relevant with the scaling llama3",
    "problem.model.position.original_max_positions": "only relevant with the scaling llama3",
}
REGISTRY = {
    "problem.model.experts.aux_loss_coefficient": "torchtitan balances experts with a bias",
    "problem.model.experts.router_bias": "torchtitan balances experts with a bias",
    "problem.model.norm_epsilon": "the registry has no value for DeepSeek; the default is used",
    "problem.model.position.max_positions": "a registered model accepts its own longest sequence",
}
"""Path of the plan -> why a model of torchtitan's registry does not determine the value there."""


def read_sizes(text: str) -> MeshSizes:
    """Return the sizes of the device mesh in the module; a size that the module omits is 1.

    Raises:
        MalformedFileError: the text is not such a module, or a size is not a positive integer.
    """
    return _mesh_sizes(read_module(text).settings)


def _mesh_sizes(settings: EmittedSettings) -> MeshSizes:
    # A size that is not passed is 1: torchtitan's other default, -1 for dp_shard, is never emitted.
    sizes = {axis: settings.values.get(setting, 1) for axis, setting in AXES.items()}
    return MeshSizes(**positive_sizes(MODULE, sizes))


class TorchtitanVerifier(DeviceMeshVerifier):
    """Verifier that reads the settings of the module as torchtitan does."""

    not_in_files = MappingProxyType(NOT_IN_TORCH_FILES | UNUSED_IN_LLAMA | UNUSED | REGISTRY)

    def check_file_contents(self, artifacts: Mapping[str, str], sink: Sink) -> None:
        """Report code in the module that differs from the code that PARC emits (A18)."""
        found = read_module(artifacts[MODULE])
        _mesh_sizes(found.settings)
        digest = read_program_digests(__package__)[found.variant].code
        verify_code(MODULE, found.code, digest, sink)

    def program_start(
        self, plan: Mapping[str, Any], artifacts: Mapping[str, str]
    ) -> LaunchedProgram | None:
        """Return how the launch script must start torchtitan or the user's program.

        The arguments name the emitted module, and PYTHONPATH contains its folder.
        """
        start = start_of_program(plan, "", ("--module", "parc_titan", "--config", "run"))
        start = replace(start, setup=(python_path_command("torchtitan"),))
        own = plan["problem"]["launch"]["program"]
        return start if own else replace(start, program="", module="torchtitan.train")

    def derive_settings(self, artifacts: Mapping[str, str]) -> Iterator[DerivedSetting]:
        """Yield the plan settings in the module."""
        if MODULE not in artifacts:
            return
        found = read_module(artifacts[MODULE])
        settings, sizes = found.settings, _mesh_sizes(found.settings)
        yield from settings_fixed_by_framework(MODULE)
        yield DerivedSetting("problem.job.lora", None, MODULE)
        yield from read_run_settings(settings, sizes)
        yield from read_model_settings(settings)
        yield from settings.unread_settings()


VERIFIER = TorchtitanVerifier(
    file=MODULE,
    builder="torchtitan",
    read_sizes=read_sizes,
    columns=("pp", "dp-replicate", "dp-shard", "cp", "tp", "ep", "efsdp"),
    other_families=("dp", "dp-shard-cp", "dp-cp"),
    files=FileDependencies(references={MODULE: "/torchtitan"}),
)
