"""Scripts of the Makefile; tests import `environments` too."""
