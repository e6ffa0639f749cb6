"""Kubeflow operators."""
