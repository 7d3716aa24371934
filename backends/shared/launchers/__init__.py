"""Parts that several launchers use: paths and NVLink channels in containers."""
