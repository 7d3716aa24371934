"""DeepSpeed: ds_config.json, a hostfile, launch lines and a small program."""
