"""Plan to objects; pure."""
