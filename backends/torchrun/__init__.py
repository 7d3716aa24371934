"""torchrun: one script for any node, static rendezvous."""
