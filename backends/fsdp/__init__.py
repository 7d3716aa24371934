"""Backend for plain PyTorch: DDP, FSDP2, hybrid sharding, tensor parallelism with FSDP2."""
