"""Compiler of a spec to a plan and its files; read :mod:`parc.compiler.pipeline` first."""
