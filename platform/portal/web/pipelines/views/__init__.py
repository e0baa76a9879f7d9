"""Views of pipelines."""
