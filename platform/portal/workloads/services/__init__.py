"""Use cases of workloads, for users, other apps and agents."""
