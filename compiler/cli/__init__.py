"""The click commands, a file each, no logic."""
