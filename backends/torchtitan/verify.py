"""Verifier of ``torchtitan/parc_titan.py``, which it reads without executing the module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from parc.backends.shared.verify_llama import UNUSED_IN_LLAMA
from parc.backends.shared.verify_torch_layout import NOT_IN_TORCH_FILES, fixed_decisions
from parc.backends.torchtitan.verify_model import model_decisions
from parc.backends.torchtitan.verify_module import MODULE, read_module
from parc.backends.torchtitan.verify_settings import AXES, run_decisions
from parc.backends.verifier import Decision, FileDependencies
from parc.compiler.verify.device_mesh import DeviceMeshVerifier, MeshSizes, positive_sizes
from parc.compiler.verify.emitted_settings import EmittedSettings
from parc.compiler.verify.program_code import code_decisions, read_program_digests

UNUSED = {
    "problem.job.wsd_decay_steps": "only relevant with the decay wsd",
    "problem.model.position.scaling_factor": "only relevant with the scaling llama3",
    "problem.model.position.original_max_positions": "only relevant with the scaling llama3",
}


def read_sizes(text: str) -> MeshSizes:
    """Return the sizes of the device mesh in ``ParallelismConfig``; 1 if a size is omitted.

    Raises:
        Malformed: the text is not such a module, or a size is not a positive integer.
    """
    return _mesh_sizes(read_module(text).settings)


def _mesh_sizes(settings: EmittedSettings) -> MeshSizes:
    # A size that is not passed is 1: torchtitan's other default, -1 for dp_shard, is never emitted.
    sizes = {axis: settings.values.get(setting, 1) for axis, setting in AXES.items()}
    return MeshSizes(**positive_sizes(MODULE, sizes))


class TorchtitanVerifier(DeviceMeshVerifier):
    """Verifier that reads the settings of the module as torchtitan does."""

    not_in_files = MappingProxyType(NOT_IN_TORCH_FILES | UNUSED_IN_LLAMA | UNUSED)

    def decisions(self, artifacts: Mapping[str, str]) -> Iterator[Decision]:
        """Yield the settings of the module, and code that PARC does not emit."""
        if MODULE not in artifacts:
            return
        found = read_module(artifacts[MODULE])
        settings, sizes = found.settings, _mesh_sizes(found.settings)
        yield from fixed_decisions(MODULE)
        yield from run_decisions(settings, sizes)
        yield from model_decisions(settings)
        yield from settings.unread()
        digest = read_program_digests(__package__)[found.variant].code
        yield from code_decisions(MODULE, found.code, digest)


VERIFIER = TorchtitanVerifier(
    file=MODULE,
    builder="torchtitan",
    read_sizes=read_sizes,
    columns=("pp", "dp-replicate", "dp-shard", "cp", "tp", "ep", "efsdp"),
    other_families=("dp", "dp-shard-cp", "dp-cp"),
    files=FileDependencies(references={MODULE: "/torchtitan"}),
)
