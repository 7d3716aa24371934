"""Jinja templates, a folder a backend; they print and do not compute."""
