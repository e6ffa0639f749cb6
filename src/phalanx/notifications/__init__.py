"""Tells people of the ends of runs: rules, what is said, and how it is sent, each at most once per event."""
