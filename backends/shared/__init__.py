"""Parts that several backends use: rules, meshes, launch scripts, flag tables, templates."""
