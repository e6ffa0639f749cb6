"""One verb of the command line, one module."""
