"""Environment variables of the TensorRT-LLM processes: network, MPI, then those of the spec."""

from __future__ import annotations

from parc.backends.shared.launch_environment import drop_inherited_variables
from parc.backends.shared.network import Variable, network_environment
from parc.compiler.ir import ServingPlan
from parc.compiler.topology.arrange_hosts import engine_hosts

MPI_INTERFACE = "OMPI_MCA_btl_tcp_if_include"
"""Variable with the network interface through which the MPI ranks of an engine communicate."""


def serving_environment(plan: ServingPlan) -> tuple[Variable, ...]:
    """Return (name, value, reason) of each environment variable of the processes.

    Each name occurs once. A variable in ``launch.env`` of the spec replaces any other variable of
    the same name.
    """
    problem = plan.problem
    launch = problem.launch
    hosts = engine_hosts(plan.layout, problem.cluster.node.gpus) or 1
    network = network_environment(problem.cluster, launch) if hosts > 1 else ()
    interface = launch.network_interface
    mpi = ((MPI_INTERFACE, interface, "launch.network_interface"),) if interface else ()
    user = tuple((name, value, "from launch.env of the spec") for name, value in launch.env)
    return drop_inherited_variables((*network, *mpi, *user), launch)
