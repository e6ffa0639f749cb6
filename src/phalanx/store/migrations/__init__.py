"""The schema, one revision at a time, in plain SQL."""
