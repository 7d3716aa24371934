"""Preflight: a program that checks every rank and group against the rank map at job start."""
