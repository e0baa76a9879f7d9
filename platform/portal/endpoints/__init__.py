"""Endpoints: revisions of models that answer predictions, their replicas, rollouts and keys."""
