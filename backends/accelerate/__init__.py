"""Hugging Face Accelerate: DDP, FSDP2, hybrid shards; TP and CP in a program of the user."""
