"""Pipeline stages of Megatron-LM: layer splits, balance, layout strings."""
