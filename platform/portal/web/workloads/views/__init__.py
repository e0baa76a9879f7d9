"""Views: workloads of any kind."""
