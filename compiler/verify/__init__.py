"""Independent verification of emitted files; shares no code with the emitters."""
