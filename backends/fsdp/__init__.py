"""Backend for plain PyTorch: a program and its config, with DDP, FSDP2, HSDP and tp."""
