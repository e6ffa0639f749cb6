"""The Kubernetes backend: the replicas of a run as pods, in native Jobs or in jobs of Kubeflow's operators."""
