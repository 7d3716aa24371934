"""The targets: what each accepts, and the files it reads."""
