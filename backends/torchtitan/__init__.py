"""Backend for torchtitan: FSDP2, tensor, context, pipeline and expert parallelism."""
