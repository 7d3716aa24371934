"""Backend for DeepSpeed: ds_config.json, a hostfile, a launch script and a program."""
