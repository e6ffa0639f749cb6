"""TensorBoard over many runs: a folder with one entry per run, and the user's own `tensorboard` on it."""
