"""Pages of workloads of any kind."""
