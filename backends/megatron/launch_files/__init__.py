"""Launch files of Megatron-LM that PARC did not write: ``parc lint`` and ``parc import``."""
