"""Room for the process inside a training workload: warm start, ranks, checkpoints."""
