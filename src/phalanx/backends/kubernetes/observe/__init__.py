"""Objects to meaning; pure."""
