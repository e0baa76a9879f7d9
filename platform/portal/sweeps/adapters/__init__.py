"""Search algorithms, from Optuna."""
