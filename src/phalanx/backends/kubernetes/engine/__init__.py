"""The engine: attempts in a live cluster."""
