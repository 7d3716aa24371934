"""Slurm release of a test: the machine's own, or a newer one mounted over the machine's /usr.

``topology/block`` was added in Slurm 23.11. If the machine's packages are older, newer ones are
unpacked into a folder (tests/conformance/run). A process that uses them has that folder mounted
over /usr in a separate mount namespace, so that all other programs are unaffected.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TOOLS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "unshare")
BLOCK_SINCE = (23, 11)
NEWER = "PARC_CONFORMANCE_SLURM"
OVERLAY = 'mount -t overlay overlay -o "lowerdir=$1:/usr" /usr'


@dataclass(frozen=True)
class SlurmRelease:
    """Slurm that can be started: version such as (22, 5), and the folder ``usr`` that is mounted
    over /usr while it runs.
    """

    number: tuple[int, ...]
    usr: Path | None = None

    def within(self, setup: str, *words: str) -> list[str]:
        """Return a command that runs ``setup`` and then ``words`` with this Slurm on the path.

        Args:
            setup: shell text that may use arguments from ``$1`` on and must shift them away.
            words: the arguments of ``setup``, then the command.
        """
        over = f"{OVERLAY}; shift; {setup}" if self.usr else setup
        usr = [str(self.usr)] if self.usr else []
        script = f'set -e; {over}; exec "$@"'
        return ["unshare", "--uts", "--mount", "bash", "-c", script, "_", *usr, *words]

    def plugins(self) -> str:
        """Return the line of slurm.conf that sets the plugin folder of an unpacked release, or an
        empty string for the machine's own.
        """
        if self.usr is None:
            return ""
        (folder,) = self.usr.glob("lib/*/slurm-wlm")
        return f"PluginDir={folder}\n"


def reason_to_skip() -> str:
    """Return the reason why no cluster can be started here, or an empty string."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "needs root, for namespaces of the nodes"


@cache
def installed_release() -> SlurmRelease:
    """Return this machine's own release."""
    return SlurmRelease(_number(["slurmctld", "-V"]))


@cache
def unpacked_release() -> SlurmRelease | None:
    """Return the unpacked newer release, or None. Skip the test if it cannot be started."""
    folder = os.environ.get(NEWER, "")
    if not folder:
        return None
    usr = Path(folder, "usr")
    try:
        number = _number(SlurmRelease((), usr).within("true", "slurmctld", "-V"))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"Slurm in {folder} does not start over this machine's /usr: {error.stderr}")
    return SlurmRelease(number, usr)


def choose_release(name: str) -> tuple[SlurmRelease, str]:
    """Return (Slurm, topology plugin) for "tree", "newer tree" or "block"; skip the test if there
    is none.

    "tree" is the machine's own release. "block" is also the machine's own if it supports blocks.
    """
    own, kind = installed_release(), name.split()[-1]
    if name == "tree" or (kind == "block" and own.number >= BLOCK_SINCE):
        return own, kind
    other = unpacked_release()
    if other is None:
        why = os.environ.get(f"{NEWER}_ABSENT", "run tests/conformance/run, which unpacks one")
        pytest.skip(f"no other Slurm than {own.number}: {why}")
    return other, kind


def newest_supported(known: Sequence[str], release: SlurmRelease) -> str:
    """Return the newest version of ``known`` that is not newer than ``release``."""
    older = [one for one in known if _parts(one) <= release.number]
    return older[-1] if older else known[0]


def _number(command: list[str]) -> tuple[int, ...]:
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return _parts(output.split()[1])[:2]


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
