"""Kubeflow operators: job kinds and their rendering."""
