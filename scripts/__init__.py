"""What the Makefile runs; `environments` is read by tests, too."""
