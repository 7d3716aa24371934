"""Megatron-Core: arguments of its pretraining programs and the rules of its parser."""
