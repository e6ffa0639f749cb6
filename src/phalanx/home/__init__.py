"""The folders and files of a home: the only package that spells the paths of a run."""
