"""Kubernetes as an engine: a pod for each task. Only the control worker loads the client."""
