"""Backend for Hugging Face Accelerate: DDP, FSDP2, hybrid sharding; tp and cp in user programs."""
