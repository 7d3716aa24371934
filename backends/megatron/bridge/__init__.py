"""Megatron-Bridge: the settings of its ConfigContainer, and a program that pretrains with them."""
