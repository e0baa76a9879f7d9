"""The MLflow server behind the portal: loopback only, one workspace a project, nothing to steal."""
