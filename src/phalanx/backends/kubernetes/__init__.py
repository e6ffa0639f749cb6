"""Kubernetes: the replicas of a run as pods, by Jobs of its own or through Kubeflow's operators."""
