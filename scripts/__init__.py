"""What the Makefile runs; `framework_environments` is read by tests, too."""
