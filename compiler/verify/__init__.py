"""Independent verification of emitted files: framework-neutral comparisons with the rank map.

What a framework, engine or launcher makes of its files is derived by the verifier of its backend
(``backends/<name>/verify.py``), which shares no code with the emitter.
"""
