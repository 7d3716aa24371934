"""Backend for Hugging Face Accelerate: its config, and a program with DDP, FSDP2 or HSDP."""
