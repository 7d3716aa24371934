"""torchtitan: FSDP2, tensor, context, pipeline and expert parallelism of PyTorch."""
