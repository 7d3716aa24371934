"""Settings of the computing site in an imported job, for ``parc import --site``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from parc.compiler.topology.readers.reader_state import Fragment

_SLURM = (
    *("partition", "account", "qos", "constraint", "mail", "extra"),
    *("container_image", "container_mounts", "log_dir"),
)
"""Keys of ``launch.slurm`` that all jobs of a site or of a group share. The time limit, the hosts
and the reservation belong to one job."""
_LAUNCH = ("env", "setup", "network_interface", "kubernetes")
_CLUSTER = ("node", "gpu", "fabric")
_SECRET = re.compile(r"(?:.*_)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)")
"""Matches names of variables whose values a shared file must not contain."""
_MODULE = re.compile(r"module load ([\w./+-]+)")


def site_of_fragment(fragment: Fragment) -> Fragment:
    """Return the part of ``fragment`` that a site file can contain.

    The values of variables that are secret by their names are replaced by references to the
    environment of the job.
    """
    found = fragment.spec
    launch, cluster = found.get("launch", {}), found.get("cluster", {})
    site: dict[str, Any] = {
        "cluster": {key: cluster[key] for key in _CLUSTER if key in cluster},
        "launch": {key: launch[key] for key in _LAUNCH if key in launch},
        "versions": dict(found.get("versions", {})),
    }
    slurm = {key: value for key, value in launch.get("slurm", {}).items() if key in _SLURM}
    if slurm:
        site["launch"]["slurm"] = slurm
    if "env" in site["launch"]:
        site["launch"]["env"] = {
            name: {"from": "environment"} if _SECRET.fullmatch(name) else value
            for name, value in launch["env"].items()
        }
    _move_modules(site)
    return replace(fragment, spec={key: value for key, value in site.items() if value}, hosts=())


def _move_modules(site: dict[str, Any]) -> None:
    """Move the first commands of ``launch.setup`` to ``modules``, if they load modules."""
    lines = list(site["launch"].get("setup", ()))
    modules = []
    while lines and (match := _MODULE.fullmatch(lines[0].strip())):
        modules.append(match[1])
        del lines[0]
    if not modules:
        return
    site["modules"] = modules
    site["launch"]["setup"] = lines
    if not lines:
        del site["launch"]["setup"]
