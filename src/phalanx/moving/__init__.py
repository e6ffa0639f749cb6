"""Runs moved in, from other tools and other homes, and out, as files that others read."""
