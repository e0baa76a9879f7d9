"""MLflow's REST API at `/mlflow`: a checking proxy in front of a server nobody else reaches."""
