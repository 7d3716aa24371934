"""Rules of Megatron-LM for a valid layout, by topic."""
