"""Backends: one package per target, with its rules, emitted files and verifier."""
