"""The schema revisions, in plain SQL."""
