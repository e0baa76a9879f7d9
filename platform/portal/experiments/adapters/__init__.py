"""Foreign systems: MLflow's tables, and the place its artifacts rest."""
