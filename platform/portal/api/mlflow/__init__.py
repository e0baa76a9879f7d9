"""MLflow's REST at `/mlflow`: a door of our own in front of a server nobody else reaches."""
