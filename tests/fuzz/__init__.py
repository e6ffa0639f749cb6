"""A fuzzer of the reader: mutated polyaxonfiles through `check`, `convert` and `plan`. `make fuzz` runs it."""
