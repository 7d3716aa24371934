"""GPU of the catalog that a name means, among several variants of the GPU.

Schedulers often list only ``a100``, which can be a GPU with 40 or 80 GB. The features of the hosts
and the site may state which one it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from parc.compiler.catalog.find_hardware import find_gpus, is_part_of_gpu, narrow_gpus
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics.similar_names import did_you_mean
from parc.compiler.ir.frozen import frozen
from parc.compiler.topology.readers.reader_state import HostLabels


class StarterError(ValueError):
    """Error in the arguments of ``parc init``; the message is for the user."""


@frozen
class GpuChoice:
    """GPU of the catalog that is chosen for a name, and the other GPUs with this name."""

    named: str
    """Name in the words of the user or of the node list."""
    name: str
    """Catalog name of the GPU."""
    others: tuple[str, ...] = ()
    """Catalog names of the other GPUs that the name can mean; empty if it is unambiguous."""

    @property
    def note(self) -> str:
        """Sentence for the user about the choice; empty if the name is unambiguous."""
        if not self.others:
            return ""
        return (
            f"several GPUs are called {self.named}; this spec uses {self.name}. For another one, "
            f"add --gpu {_one_of(self.others)}"
        )


def choose_gpu(named: str, labels: Sequence[HostLabels], usual: str = "") -> GpuChoice:
    """Return the GPU that ``named`` means for hosts with these labels.

    ``usual`` is the catalog name of the GPU of the site, which is chosen if the name fits it.

    Raises:
        StarterError: the catalog has no such GPU, or the hosts have different variants of it.
    """
    names = find_gpus(named)
    if not names:
        raise StarterError(_unknown_gpu(named))
    variants = {
        tuple(name for name in names if name in listed)
        for one in labels
        if (listed := possible_gpus(one))
    } - {()}
    common = [name for name in names if all(name in variant for variant in variants)]
    if not common:
        shown = sorted({variant[0] for variant in variants})
        raise StarterError(
            f"the hosts with GPU type {named} have different GPUs ({', '.join(shown)}); select one "
            f"of them, such as --gpu {shown[0]}"
        )
    name = usual if usual in common else common[0]
    # The site and the features of the hosts are facts, so nothing is left to choose.
    others = () if name == usual else tuple(other for other in common if other != name)
    return GpuChoice(named, name, others)


@cache
def possible_gpus(labels: HostLabels) -> tuple[str, ...]:
    """Return the catalog names of the GPUs that hosts with ``labels`` can have, if known."""
    found = (narrow_gpus(find_gpus(one), labels.features) for one in labels.type_words)
    return tuple(dict.fromkeys(name for names in found for name in names))


def _unknown_gpu(named: str) -> str:
    """Return the message that the catalog has no GPU ``named``."""
    if is_part_of_gpu(named):
        return (
            f"{named} is a part of a GPU (MIG), and PARC plans whole GPUs; select hosts with whole "
            "GPUs with --gpu or --partition"
        )
    names = Library().names("gpus")
    lower = named.lower()
    near = [name for name in names if name.split("-")[0] in lower.replace("_", "-").split("-")]
    near = near or [name for name in names if lower and name.startswith(lower[:5])]
    near = near or list(did_you_mean(lower, names))
    hint = f"similar names are {', '.join(near[:4])}; " if near else ""
    return f"the catalog has no GPU {named!r}; {hint}`parc catalog gpus` lists the names"


def _one_of(names: Sequence[str]) -> str:
    """Return the names as text: ``a, b or c``."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
