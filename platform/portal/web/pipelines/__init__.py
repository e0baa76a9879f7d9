"""Pages of pipelines."""
