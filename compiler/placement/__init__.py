"""Passes that assign node ranks to hosts, keep them from a lock file, or replan them."""
