"""Rules of DeepSpeed for a valid layout, by topic."""
