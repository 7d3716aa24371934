"""Megatron-Core: arguments of pretrain_gpt.py and the rules of its parser."""
