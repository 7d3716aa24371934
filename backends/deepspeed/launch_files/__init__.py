"""Launch files of DeepSpeed that PARC did not write: ``parc lint`` and ``parc import``."""
