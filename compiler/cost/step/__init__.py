"""Seconds of one optimizer step by term, including communication inside layers."""
