"""Importer and linter of launch files with SGLang."""
