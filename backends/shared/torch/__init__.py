"""Shared code of the PyTorch backends fsdp, torchtitan and accelerate."""
