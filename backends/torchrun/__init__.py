"""torchrun: a launch script for every node, with a static rendezvous."""
