"""Launch files of vLLM that PARC did not write: ``parc lint`` and ``parc import``."""
