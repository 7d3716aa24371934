"""Environment variables of the TensorRT-LLM processes: network, MPI, then those of the spec."""

from __future__ import annotations

from parc.backends.shared.launch_environment import engine_environment
from parc.backends.shared.network import Variable
from parc.compiler.ir import ServingPlan

MPI_INTERFACE = "OMPI_MCA_btl_tcp_if_include"
"""Variable with the network interface through which the MPI ranks of an engine communicate."""


def serving_environment(plan: ServingPlan) -> tuple[Variable, ...]:
    """Return (name, value, reason) of each environment variable of the processes.

    ``engine_environment`` describes the order of precedence.
    """
    interface = plan.problem.launch.network_interface
    mpi = ((MPI_INTERFACE, interface, "launch.network_interface"),) if interface else ()
    return engine_environment(plan, mpi)
