"""A local home or a server, with the same methods."""
