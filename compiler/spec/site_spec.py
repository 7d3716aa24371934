"""Models of a site file: the settings of one computing site, which several specs share."""

from __future__ import annotations

from pydantic import Field

from parc.compiler.spec.base import StrictModel
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.spec.launch_spec import LaunchSpec


class FoldersSpec(StrictModel):
    """Folders on file systems that all hosts of the site share."""

    checkpoints: str | None = None
    """Parent of the checkpoint folders. A training spec without job.checkpoint_dir saves to the
    folder NAME below it, where NAME is the name of the run. A path of the spec that starts with
    $checkpoints/ is a path below this folder."""
    data: str | None = None
    """Folder of data sets and models. A path of the spec that starts with $data/ is a path below
    this folder."""
    cache: str | None = None
    """Folder for downloads. HF_HOME is its subfolder huggingface, unless launch.env sets HF_HOME. A
    path of the spec that starts with $cache/ is a path below this folder."""


class SiteSpec(StrictModel):
    """Default settings of all specs that name this site file. A value of the spec takes precedence.

    Mappings of the site and the spec are combined key by key. A list of the spec replaces the
    list of the site, except in launch.setup: commands of the site run before commands of the spec.
    """

    base: str | None = None
    """Site to start from: a preset that `parc catalog sites` lists, or the path of another site
    file, relative to this file. Keys of this file take precedence."""
    source: str | None = None
    """Source of the settings: a document or a page."""
    cluster: ClusterSpec = ClusterSpec()
    """Default values of the spec's section cluster, such as node and fabric. Ignored if the spec
    names a cluster of the catalog. If the spec sets nodes, racks or topology, the hosts of the site
    are ignored; if it sets node, the gpu of the site is ignored."""
    launch: LaunchSpec = LaunchSpec()
    """Default values of the spec's section launch, such as slurm.partition, env and setup. A job
    without container_image ignores slurm.container_mounts and slurm.container_runtime of the
    site."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Default values of the spec's section versions, such as {slurm: "24.11"}."""
    modules: tuple[str, ...] = ()
    """Environment modules that each host loads before the commands of launch.setup. Ignored if
    launch.slurm.container_image is set, because an image contains its software."""
    folders: FoldersSpec = FoldersSpec()
    """Folders on shared file systems."""
