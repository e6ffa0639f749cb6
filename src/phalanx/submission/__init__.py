"""Submission of runs: checks, submit, clone, resume, remove. CLI, server and Python all use it."""
