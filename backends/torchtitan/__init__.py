"""Backend for torchtitan: a config for FSDP2, HSDP, tp, cp, pipelines and experts."""
