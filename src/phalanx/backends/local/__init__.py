"""The local backend: runs on this machine."""
