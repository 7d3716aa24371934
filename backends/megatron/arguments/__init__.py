"""Values of Megatron-LM arguments, computed from the plan."""
