"""Parts that several launchers use: paths in containers."""
