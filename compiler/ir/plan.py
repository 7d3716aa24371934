"""Result of a compile, and the part of the result that a lock file stores.

A plan contains the chosen layout, its cost and placement, and the next best candidates. A locked
plan contains what is needed to use the same layout on the same hosts again, for training or
serving.
"""

from __future__ import annotations

from parc.compiler.ir.estimate import Estimate, Run
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.layout import Layout
from parc.compiler.ir.placement import Placement
from parc.compiler.ir.problem import Problem
from parc.compiler.ir.serving import ServingLayout


@frozen
class Candidate:
    """Layout that the search evaluated, with its estimated step time, memory and MFU."""

    layout: Layout
    step_seconds: float
    """Seconds per step, including ``placed_seconds``."""
    peak_bytes: float
    mfu: float
    placed_seconds: float = 0.0
    """Seconds per step that communication over links between hosts adds under the best host order
    found, for this layout or for a better one with the same parallel sizes; 0 if neither was
    placed."""


@frozen
class Search:
    """Statistics of the search: layouts enumerated, layouts rejected per rule, best candidates."""

    enumerated: int
    dropped: tuple[tuple[str, int], ...]
    """(rule code, number of rejected layouts) pairs, sorted by code. A layout is counted for the
    first rule that it violates."""
    ranked: tuple[Candidate, ...]
    """Best candidates, fastest first; the first one is the chosen layout."""


@frozen
class Plan:
    """Complete result of a compile, and the only input of the backends."""

    problem: Problem
    layout: Layout
    estimate: Estimate
    placement: Placement
    search: Search
    run: Run
    """Expected length and cost of the run."""

    @property
    def occupied_gpus(self) -> int:
        """Number of GPUs that other jobs cannot use; see ``Task.occupied_gpus``."""
        return self.problem.occupied_gpus(len(self.placement.hosts), self.layout.world)

    @property
    def cost_per_hour(self) -> float | None:
        """Price of the occupied GPUs for one hour; None if the spec states no price."""
        return self.problem.cluster.price_of(self.occupied_gpus)


@frozen
class JobStart:
    """Start of a job, or of its part on one host, with an output file."""

    command: str = ""
    """Command that is given the path of the file, such as ``sbatch``; empty if the file itself is
    executed."""
    hosts: int = 0
    """Number of hosts, on each of which the file is executed; 0 if it starts the whole job."""
    program: str = ""
    """Training program, as a relative path, whose folder has to be the working folder; empty if
    the working folder does not matter."""
    beside: bool = False
    """True if the file runs in addition to the job, even if another file starts the job."""
    place: str = ""
    """Place where the file has to run, such as ``in a pod``; empty if it can run on any host."""
    in_image: bool = False
    """True if the working folder is that of a container image."""


@frozen
class Artifact:
    """Output file: its path relative to the output folder, and its text.

    The path has forward slashes, and the text ends in a newline.
    """

    path: str
    text: str
    executable: bool = False
    start: JobStart | None = None
    """None if a user does not start a job with this file."""


@frozen
class LockedPlan:
    """Layout and hosts of an earlier compile, as stored in a lock file."""

    # Lock files of training and serving jobs have the same form.
    layout: Layout | ServingLayout
    hosts: tuple[str, ...]
    """Host names in the order of their node ranks."""
    ranks_per_node: int
    unavailable: tuple[str, ...]
    """Names of the hosts that were unavailable or drained when the lock file was written."""
