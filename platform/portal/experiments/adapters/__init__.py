"""Adapters of external systems: MLflow's tables, and the artifact store."""
