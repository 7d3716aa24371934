"""PyTorch alone: DDP, FSDP2, hybrid shards, tensor parallelism beside FSDP2."""
