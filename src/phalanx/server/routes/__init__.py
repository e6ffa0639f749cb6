"""One router per resource, /api/v1."""
