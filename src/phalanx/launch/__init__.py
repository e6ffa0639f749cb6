"""Runs started from Python: `phalanx.run`, `submit`, `map`, `attach` and `Executor`.

A function's run is an ordinary run whose command is `python -m phalanx.tracking.calls`. Each place where runs can be
(a home, a server) has the same few methods: see `places`.
"""
