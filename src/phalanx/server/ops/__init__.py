"""Operation of the server."""
