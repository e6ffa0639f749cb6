"""The runs of the ops of a pipeline, made from its submission."""
